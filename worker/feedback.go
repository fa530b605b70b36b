package worker

import (
	"sync"
	"time"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// chunkOverhead is what a chunk costs beside its data, in bytes: many tiny ones are bounded as well.
const chunkOverhead = 64

// feedback is what one attempt has to tell and has not sent: its newest progress and its last output. It is bounded, and
// full means that the oldest goes (W11), so that a handler never waits for the stream.
type feedback struct {
	// limit is the most output kept, in bytes.
	limit int
	// flush is called, from a timer's goroutine, flushDelay after something new came.
	flush func()

	mu struct {
		sync.Mutex
		progress *lessorv1.Progress
		// changed: progress has not been sent.
		changed bool
		// chunks is the output, oldest first; size is what it costs.
		chunks []chunk
		size   int
		// next is the index of each channel's next chunk.
		next map[string]uint64
		// dropped counts the bytes that fell off.
		dropped int
		// timer runs flush; nil while nothing is new.
		timer *time.Timer
		// closed: the attempt is over, and nothing is kept any more.
		closed bool
	}
}

// chunk is a piece of one channel.
type chunk struct {
	channel string
	index   uint64
	data    []byte
}

func newFeedback(limit int, flush func()) *feedback {
	f := &feedback{limit: limit, flush: flush}
	f.mu.next = make(map[string]uint64)
	return f
}

// outputWriter is one channel of a feedback.
type outputWriter struct {
	feedback *feedback
	channel  string
}

// Write keeps a copy of p.
func (o outputWriter) Write(p []byte) (int, error) {
	o.feedback.write(o.channel, p)
	return len(p), nil
}

func (f *feedback) write(channel string, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed || len(p) == 0 {
		return
	}
	for len(p) > 0 {
		p = f.fillLocked(channel, p)
	}
	f.shrinkLocked()
	f.scheduleLocked()
}

// fillLocked puts the front of p into the last chunk, or into a new one, and returns the rest.
func (f *feedback) fillLocked(channel string, p []byte) []byte {
	last := len(f.mu.chunks) - 1
	if last < 0 || f.mu.chunks[last].channel != channel || len(f.mu.chunks[last].data) > maxChunk-utf8.UTFMax {
		f.mu.chunks = append(f.mu.chunks, chunk{channel: channel, index: f.mu.next[channel]})
		f.mu.next[channel]++
		f.mu.size += chunkOverhead
		last++
	}
	c := &f.mu.chunks[last]
	cut := len(p)
	if free := maxChunk - len(c.data); free < cut {
		cut = runeStart(p, free)
	}
	c.data = append(c.data, p[:cut]...)
	f.mu.size += cut
	return p[cut:]
}

// shrinkLocked drops the oldest chunks that are over the limit, the newest never.
func (f *feedback) shrinkLocked() {
	for f.mu.size > f.limit && len(f.mu.chunks) > 1 {
		n := len(f.mu.chunks[0].data)
		f.mu.chunks = f.mu.chunks[1:]
		f.mu.size -= n + chunkOverhead
		f.mu.dropped += n
	}
}

// setProgress replaces the progress.
func (f *feedback) setProgress(p *lessorv1.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return
	}
	f.mu.progress, f.mu.changed = p, true
	f.scheduleLocked()
}

func (f *feedback) scheduleLocked() {
	if f.mu.timer == nil {
		f.mu.timer = time.AfterFunc(flushDelay, f.flush)
	}
}

// progress returns the newest progress; nil where there is none.
func (f *feedback) progress() *lessorv1.Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.progress
}

// waiting is the most that take would return now, in bytes.
func (f *feedback) waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.changed && len(f.mu.chunks) == 0 {
		return 0
	}
	return f.mu.size + itemOverhead*(1+len(f.mu.chunks)/maxChunks)
}

// take returns what is new and forgets it; nothing where there is none. From here on it may be lost with the stream.
func (f *feedback) take() (items []*lessorv1.FeedbackItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.timer != nil {
		f.mu.timer.Stop()
		f.mu.timer = nil
	}
	for f.mu.changed || len(f.mu.chunks) > 0 {
		items = append(items, f.itemLocked())
	}
	f.mu.size = 0
	return items
}

// itemLocked takes as much as one item may have. Each has the progress: absent would mean none.
func (f *feedback) itemLocked() *lessorv1.FeedbackItem {
	n := min(len(f.mu.chunks), maxChunks)
	item := &lessorv1.FeedbackItem{
		Stage:    f.mu.progress.GetStage(),
		Progress: f.mu.progress.GetFraction(),
		Message:  f.mu.progress.GetMessage(),
	}
	for _, c := range f.mu.chunks[:n] {
		item.Chunks = append(item.Chunks, c.proto())
	}
	f.mu.chunks, f.mu.changed = f.mu.chunks[n:], false
	return item
}

// close ends the feedback and returns how many bytes were dropped in its time.
func (f *feedback) close() (dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.closed, f.mu.chunks, f.mu.changed = true, nil, false
	if f.mu.timer != nil {
		f.mu.timer.Stop()
	}
	return f.mu.dropped
}

// proto converts a chunk; what is not UTF-8 goes as bytes.
func (c chunk) proto() *lessorv1.FeedbackChunk {
	p := &lessorv1.FeedbackChunk{Channel: c.channel, Index: c.index}
	if utf8.Valid(c.data) {
		p.Body = &lessorv1.FeedbackChunk_Text{Text: string(c.data)}
	} else {
		p.MimeType = "application/octet-stream"
		p.Body = &lessorv1.FeedbackChunk_Data{Data: c.data}
	}
	return p
}
