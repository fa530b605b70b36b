package worker

import (
	"bytes"
	"maps"
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

var newline = []byte{'\n'}

// metricOverhead is counted for each gauge in addition to its name, in bytes.
const metricOverhead = 16

// feedback is what one attempt has not sent yet: its newest progress and metrics, and its last
// output. Its size is limited. When it is full the oldest output is dropped (W11), so that a
// handler never waits for the stream.
type feedback struct {
	// limit is how much output is kept, in bytes.
	limit int
	// owner is called flushDelay after something new came, on the goroutine of a timer.
	owner feedbackOwner

	// mu comes after Worker.mu: the writer takes it while it holds that one. So nothing that is
	// done under mu may take Worker.mu, which is why owner is called by a timer.
	mu struct {
		sync.Mutex
		progress *lessorv1.Progress
		// metrics are the newest values. The map is replaced and never changed, because a frame may
		// still use it.
		metrics map[string]float64
		// metricsSize is the size of metrics, in bytes.
		metricsSize int
		// progressChanged and metricsChanged: the newest progress and metrics have not been sent.
		progressChanged, metricsChanged bool
		// chunks is the unsent output, oldest first; size is its size in bytes.
		chunks []chunk
		size   int
		// nextIndex holds the index of the next chunk of each channel. droppedSince holds how many
		// bytes of each channel were dropped since its last chunk was sent. Both are made when
		// needed.
		nextIndex    map[string]uint64
		droppedSince map[string]int
		// dropped is how many bytes were dropped in all.
		dropped int
		// timer calls owner; nil while there is nothing new.
		timer *time.Timer
		// closed: the attempt is over, and new feedback is ignored.
		closed bool
	}
}

// feedbackOwner is told when a feedback has something to send.
type feedbackOwner interface{ queueFeedback() }

// outputWriter writes to one channel of a feedback.
type outputWriter struct {
	feedback *feedback
	channel  string
}

// Write adds a copy of p to the output.
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
		f.dropOldestLocked()
	}
	f.copyBorrowedLocked()
	f.scheduleLocked()
}

// appendLocked adds the beginning of p to the last chunk, or to a new one, and returns the rest of
// p. A full chunk ends with a line if it can. A new chunk borrows p; see copyBorrowedLocked.
func (f *feedback) appendLocked(channel string, p []byte) []byte {
	last := len(f.mu.chunks) - 1
	if last < 0 || !f.mu.chunks[last].accepts(channel) {
		f.mu.chunks = append(f.mu.chunks, chunk{channel: channel, index: f.nextIndexLocked(channel)})
		last++
		f.mu.size += f.mu.chunks[last].size()
	}
	c := &f.mu.chunks[last]
	cut := len(p)
	if free := maxChunk - len(c.data); free < cut {
		c.complete = true
		if cut = bytes.LastIndexByte(p[:free], '\n') + 1; cut == 0 && !bytes.HasSuffix(c.data, newline) {
			cut = runeStart(p, free) // a line that is longer than a chunk, or began in the middle of this one
		}
	}
	if c.data == nil {
		c.data, c.borrowed = p[:cut:cut], true
	} else {
		c.data = append(c.data, p[:cut]...)
	}
	f.mu.size += cut
	return p[cut:]
}

// copyBorrowedLocked copies the data of the newest chunks, if it is still the caller's. For a write
// that is done once it is known what is kept: of a long one, most is dropped.
func (f *feedback) copyBorrowedLocked() {
	for i := len(f.mu.chunks) - 1; i >= 0 && f.mu.chunks[i].borrowed; i-- {
		c := &f.mu.chunks[i]
		c.data, c.borrowed = bytes.Clone(c.data), false
	}
}

// addChunk adds a chunk that is not joined with other output. Its data is copied.
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
	f.copyBorrowedLocked()
	f.dropOldestLocked()
	f.scheduleLocked()
}

// nextIndexLocked returns the index of a new chunk of the channel.
func (f *feedback) nextIndexLocked(channel string) uint64 {
	if f.mu.nextIndex == nil {
		f.mu.nextIndex = make(map[string]uint64)
	}
	index := f.mu.nextIndex[channel]
	f.mu.nextIndex[channel]++
	return index
}

// dropOldestLocked drops the oldest chunks until the rest is within the limit. It never drops the
// newest chunk.
func (f *feedback) dropOldestLocked() {
	for f.mu.size > f.limit && len(f.mu.chunks) > 1 {
		oldest := f.mu.chunks[0]
		f.mu.chunks[0] = chunk{} // or its data would stay as long as the array does
		f.mu.chunks = f.mu.chunks[1:]
		f.mu.size -= oldest.size()
		f.countDroppedLocked(oldest)
	}
}

// countDroppedLocked counts the bytes of a dropped chunk; the next chunk of the channel says how
// many were dropped.
func (f *feedback) countDroppedLocked(c chunk) {
	if f.mu.droppedSince == nil {
		f.mu.droppedSince = make(map[string]int)
	}
	f.mu.droppedSince[c.channel] += len(c.data)
	f.mu.dropped += len(c.data)
}

// changeProgress makes the next progress: change gets a copy of the last one.
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

// newest returns the newest progress and metrics; nil if there are none.
func (f *feedback) newest() (*lessorv1.Progress, map[string]float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.progress, f.mu.metrics
}

// takeNewest is newest for a heartbeat: watchers get what it brings, so take does not return it
// again.
func (f *feedback) takeNewest() (*lessorv1.Progress, map[string]float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.progressChanged, f.mu.metricsChanged = false, false
	return f.mu.progress, f.mu.metrics
}

// pendingSize is an upper bound for the size of what take would return now, in bytes.
func (f *feedback) pendingSize() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.hasNewLocked() {
		return 0
	}
	return f.mu.size + f.mu.metricsSize + itemOverhead*(1+len(f.mu.chunks)/maxChunks)
}

// newestSize is the size of what newest returns, without the overhead of an item, in bytes.
func (f *feedback) newestSize() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.metricsSize
}

// take returns the unsent feedback and removes it; it may return nothing. The feedback is not sent
// again if it is lost with the stream. Unless the attempt ends, the beginning of a rune stays for
// the write that brings its rest: a chunk that is not valid UTF-8 is not shown as text.
func (f *feedback) take(ends bool) (items []*lessorv1.FeedbackItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.timer != nil {
		f.mu.timer.Stop()
		f.mu.timer = nil
	}
	var channel string
	var begun []byte
	if !ends {
		channel, begun = f.cutRuneLocked()
	}
	for f.hasNewLocked() {
		items = append(items, f.itemLocked())
	}
	f.mu.size = 0
	if len(begun) > 0 {
		f.appendLocked(channel, begun)
		f.copyBorrowedLocked()
	}
	return items
}

// cutRuneLocked removes the beginning of a rune from the end of the last chunk, if the next write
// to its channel may bring the rest.
func (f *feedback) cutRuneLocked() (channel string, begun []byte) {
	last := len(f.mu.chunks) - 1
	if last < 0 || f.mu.chunks[last].complete {
		return "", nil
	}
	c := &f.mu.chunks[last]
	cut := len(c.data) - unfinishedRune(c.data)
	channel, begun = c.channel, c.data[cut:]
	if c.data = c.data[:cut]; cut == 0 {
		f.mu.chunks = f.mu.chunks[:last]
		f.mu.nextIndex[channel]--
	}
	return channel, begun
}

func (f *feedback) hasNewLocked() bool {
	return f.mu.progressChanged || f.mu.metricsChanged || len(f.mu.chunks) > 0
}

// itemLocked removes as much as one item may contain. Fields that are absent in an item leave their
// last values unchanged.
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

// close ends the feedback and returns how many bytes were dropped in all.
func (f *feedback) close() (dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.closed, f.mu.chunks, f.mu.progressChanged, f.mu.metricsChanged = true, nil, false, false
	if f.mu.timer != nil {
		f.mu.timer.Stop()
	}
	return f.mu.dropped
}
