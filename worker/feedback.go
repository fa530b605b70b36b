package worker

import (
	"maps"
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// metricOverhead is what a gauge costs beside its name, in bytes.
const metricOverhead = 16

// feedback is what one attempt has to tell and has not sent: its newest progress and metrics, and its last output. It is bounded, and
// full means that the oldest goes (W11), so that a handler never waits for the stream.
type feedback struct {
	// limit is the most output kept, in bytes.
	limit int
	// owner is told, from a timer's goroutine, flushDelay after something new came.
	owner feedbackOwner

	mu struct {
		sync.Mutex
		progress *lessorv1.Progress
		// metrics are the newest values; replaced, not changed, since a frame may hold them.
		metrics map[string]float64
		// metricsSize is what they cost, in bytes.
		metricsSize int
		// progressChanged and measured: progress and metrics have not been sent.
		progressChanged, metricsChanged bool
		// chunks is the output, oldest first; size is what it costs.
		chunks []chunk
		size   int
		// nextIndex is the index of each channel's next chunk, lost how many bytes fell off before what is there of it; made when needed.
		nextIndex    map[string]uint64
		droppedSince map[string]int
		// dropped counts the bytes that fell off.
		dropped int
		// timer runs flush; nil while nothing is new.
		timer *time.Timer
		// closed: the attempt is over, and nothing is kept any more.
		closed bool
	}
}

// feedbackOwner sends what a feedback has to tell.
type feedbackOwner interface{ queueFeedback() }

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
		p = f.appendLocked(channel, p)
	}
	f.dropOldestLocked()
	f.scheduleLocked()
}

// appendLocked puts the front of p into the last chunk, or into a new one, and returns the rest.
func (f *feedback) appendLocked(channel string, p []byte) []byte {
	last := len(f.mu.chunks) - 1
	if last < 0 || !f.mu.chunks[last].accepts(channel) {
		f.mu.chunks = append(f.mu.chunks, chunk{channel: channel, index: f.nextIndexLocked(channel)})
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

// addChunk keeps a chunk that is not joined with others.
func (f *feedback) addChunk(c chunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return
	}
	c.index, c.complete = f.nextIndexLocked(c.channel), true
	if c.size() > f.limit || len(c.data) > maxChunkData {
		f.countDroppedLocked(c)
		return
	}
	f.mu.chunks = append(f.mu.chunks, c)
	f.mu.size += c.size()
	f.dropOldestLocked()
	f.scheduleLocked()
}

// nextIndexLocked is the index of a new chunk of the channel.
func (f *feedback) nextIndexLocked(channel string) uint64 {
	if f.mu.nextIndex == nil {
		f.mu.nextIndex = make(map[string]uint64)
	}
	index := f.mu.nextIndex[channel]
	f.mu.nextIndex[channel]++
	return index
}

// dropOldestLocked drops the oldest chunks that are over the limit, the newest never.
func (f *feedback) dropOldestLocked() {
	for f.mu.size > f.limit && len(f.mu.chunks) > 1 {
		oldest := f.mu.chunks[0]
		f.mu.chunks = f.mu.chunks[1:]
		f.mu.size -= oldest.size()
		f.countDroppedLocked(oldest)
	}
}

// countDroppedLocked counts what fell off; the next chunk of the channel tells of it.
func (f *feedback) countDroppedLocked(c chunk) {
	if f.mu.droppedSince == nil {
		f.mu.droppedSince = make(map[string]int)
	}
	f.mu.droppedSince[c.channel] += len(c.data)
	f.mu.dropped += len(c.data)
}

// changeProgress lets change make the next progress out of a copy of the last.
func (f *feedback) changeProgress(change func(*lessorv1.Progress)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return
	}
	next := &lessorv1.Progress{
		Fraction: f.mu.progress.GetFraction(), Message: f.mu.progress.GetMessage(), Stage: f.mu.progress.GetStage(),
	}
	change(next)
	f.mu.progress, f.mu.progressChanged = next, true
	f.scheduleLocked()
}

// setMetric sets one gauge.
func (f *feedback) setMetric(name string, value float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.mu.metrics[name]
	if f.mu.closed || (!known && len(f.mu.metrics) >= maxMetrics) {
		return
	}
	next := make(map[string]float64, len(f.mu.metrics)+1)
	maps.Copy(next, f.mu.metrics)
	next[name] = value
	if !known {
		f.mu.metricsSize += len(name) + metricOverhead
	}
	f.mu.metrics, f.mu.metricsChanged = next, true
	f.scheduleLocked()
}

func (f *feedback) scheduleLocked() {
	if f.mu.timer == nil {
		f.mu.timer = time.AfterFunc(flushDelay, f.owner.queueFeedback)
	}
}

// newest returns the newest progress and metrics; nil where there are none.
func (f *feedback) newest() (*lessorv1.Progress, map[string]float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.progress, f.mu.metrics
}

// pendingSize is the most that take would return now, in bytes.
func (f *feedback) pendingSize() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.hasNewLocked() {
		return 0
	}
	return f.mu.size + f.mu.metricsSize + itemOverhead*(1+len(f.mu.chunks)/maxChunks)
}

// newestSize is what newest returns costs beside the overhead of an item, in bytes.
func (f *feedback) newestSize() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.metricsSize
}

// take returns what is new and forgets it; nothing where there is none. From here on it may be lost with the stream.
func (f *feedback) take() (items []*lessorv1.FeedbackItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.timer != nil {
		f.mu.timer.Stop()
		f.mu.timer = nil
	}
	for f.hasNewLocked() {
		items = append(items, f.itemLocked())
	}
	f.mu.size = 0
	return items
}

func (f *feedback) hasNewLocked() bool {
	return f.mu.progressChanged || f.mu.metricsChanged || len(f.mu.chunks) > 0
}

// itemLocked takes as much as one item may have. What is absent in it stays as it was.
func (f *feedback) itemLocked() *lessorv1.FeedbackItem {
	item := &lessorv1.FeedbackItem{}
	if f.mu.progressChanged {
		p := f.mu.progress
		item.Stage, item.Message = p.GetStage(), p.GetMessage()
		item.Progress, item.ZeroProgress = p.GetFraction(), p.GetFraction() == 0
	}
	if f.mu.metricsChanged {
		item.Metrics = f.mu.metrics
	}
	n := min(len(f.mu.chunks), maxChunks)
	for _, c := range f.mu.chunks[:n] {
		item.Chunks = append(item.Chunks, c.proto(f.mu.droppedSince[c.channel]))
		delete(f.mu.droppedSince, c.channel)
	}
	f.mu.chunks, f.mu.progressChanged, f.mu.metricsChanged = f.mu.chunks[n:], false, false
	return item
}

// close ends the feedback and returns how many bytes were dropped in its time.
func (f *feedback) close() (dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.closed, f.mu.chunks, f.mu.progressChanged, f.mu.metricsChanged = true, nil, false, false
	if f.mu.timer != nil {
		f.mu.timer.Stop()
	}
	return f.mu.dropped
}
