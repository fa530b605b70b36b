package engine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// What a subscription holds for a slow reader. A single news may be larger.
var (
	newsBuffer = 256
	newsBytes  = 4 << 20
)

// hub passes news to the subscriptions. It never waits for a reader.
type hub struct {
	mu     sync.Mutex
	tasks  map[lease.TaskID]map[*Subscription]struct{}
	runs   map[runKey]map[*Subscription]struct{}
	recent map[lease.TaskID]*lease.Feedback // what live attempts have reported so far
	output int                              // number of bytes of output in recent
	closed bool
}

type runKey struct {
	space Space
	run   string
}

func runOf(t *lease.Task) runKey { return runKey{Space{t.Tenant, t.Workspace}, t.Spec.RunID} }

func newHub() *hub {
	return &hub{
		tasks:  map[lease.TaskID]map[*Subscription]struct{}{},
		runs:   map[runKey]map[*Subscription]struct{}{},
		recent: map[lease.TaskID]*lease.Feedback{},
	}
}

// Subscription receives news on C until Close. C is closed when the engine stops.
type Subscription struct {
	C <-chan News

	c      chan News
	hub    *hub
	w      Watching
	closed bool  // guarded by hub.mu, as are the rest
	sizes  []int // sizes of the newest news that were sent, with all that wait in the channel among them
	bytes  int   // sum of sizes
	sent   int   // number of news sent, dropped ones included
	gone   int   // how many of these were deletions of tasks
}

// Watch subscribes to all further news of a task (Task set) or a run (Run set). A slow reader blocks nobody: when too many news or too
// many bytes wait in its channel, all news in it are dropped; News.Before shows how many. Close the subscription when done.
func (e *Engine) Watch(w Watching) *Subscription {
	c := make(chan News, newsBuffer)
	s := &Subscription{C: c, c: c, hub: e.hub, w: w}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if e.hub.closed {
		s.closed = true
		close(c)
		return s
	}
	if w.Run != "" {
		subscribe(e.hub.runs, runKey{w.Space, w.Run}, s)
	} else {
		subscribe(e.hub.tasks, w.Task, s)
	}
	return s
}

func subscribe[K comparable](m map[K]map[*Subscription]struct{}, k K, s *Subscription) {
	if m[k] == nil {
		m[k] = map[*Subscription]struct{}{}
	}
	m[k][s] = struct{}{}
}

func unsubscribe[K comparable](m map[K]map[*Subscription]struct{}, k K, s *Subscription) {
	delete(m[k], s)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// Close ends a subscription. It may be called twice.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.w.Run != "" {
		unsubscribe(s.hub.runs, runKey{s.w.Space, s.w.Run}, s)
	} else {
		unsubscribe(s.hub.tasks, s.w.Task, s)
	}
}

// send sends news to the subscription. If the channel is full, the reader loses all news that wait there and gets the newest: the last news of a
// task must arrive, because none may follow. Only the holder of hub.mu sends, so there is room after a drop. While send drops news, the reader may
// take one that comes after dropped ones. So each news, and not only the next one, shows how many came before it.
func (s *Subscription) send(n News) {
	s.forgetRead()
	size := n.size()
	if waiting := len(s.c); waiting == cap(s.c) || waiting > 0 && s.bytes+size > newsBytes {
		s.drop()
		s.forgetRead()
	}
	n.Before, n.GoneBefore = s.sent, s.gone
	s.sent++
	if n.Task == nil {
		s.gone++
	}
	s.c <- n
	s.sizes = append(s.sizes, size)
	s.bytes += size
}

// forgetRead forgets the sizes of the news that the reader has taken out of the channel.
func (s *Subscription) forgetRead() {
	read := len(s.sizes) - len(s.c)
	for _, size := range s.sizes[:read] {
		s.bytes -= size
	}
	s.sizes = slices.Delete(s.sizes, 0, read)
}

// drop empties the channel.
func (s *Subscription) drop() {
	for {
		select {
		case <-s.c:
		default:
			return
		}
	}
}

// publish sends the news of a committed batch to watchers. For each changed task, it first sends what the attempt reported during the batch, with
// the version of that time, and then the new version, because nothing may follow the final version of a task. Then it sends the feeds of attempts
// whose tasks the batch did not change. It costs little while nobody watches.
func (h *hub) publish(b *batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tasks) == 0 && len(h.runs) == 0 && len(h.recent) == 0 {
		return
	}
	said := map[lease.TaskID][]ResolvedFeed{}
	for _, n := range b.feeds {
		said[n.id] = append(said[n.id], n)
	}
	later := h.laterEvents(b.changes)
	for i, c := range b.changes {
		if c.New == nil && c.Old == nil {
			continue
		}
		h.sendFeeds(said[c.id], later[i])
		delete(said, c.id)
		if known := h.recent[c.id]; known != nil && !leasedAs(c.New, known.Attempt) {
			h.forget(c.id)
		}
		h.send(cmp.Or(c.New, c.Old), News{Task: c.New, ID: c.id, Later: later[i]})
	}
	for _, n := range b.feeds {
		h.sendFeeds(said[n.id], 0)
		delete(said, n.id)
	}
}

// laterEvents returns News.Later for each change of a batch. The changes are in the order in which the batch first changed their tasks. Their events
// may have another order: for example, if a renewal, which makes no event, was the first change of a task.
func (h *hub) laterEvents(changes []*change) []uint64 {
	later := make([]uint64, len(changes))
	if len(h.runs) == 0 {
		return later
	}
	lowest := map[runKey]uint64{}
	for i, c := range slices.Backward(changes) {
		if c.New == nil && c.Old == nil {
			continue
		}
		run := runOf(cmp.Or(c.New, c.Old))
		if h.runs[run] == nil {
			continue
		}
		later[i] = lowest[run]
		if first := firstEvent(&c.Change); first != 0 && (lowest[run] == 0 || first < lowest[run]) {
			lowest[run] = first
		}
	}
	return later
}

// firstEvent returns the sequence of the first event that a change has made; 0 if it has made none, or the task was deleted.
func firstEvent(c *lease.Change) uint64 {
	switch {
	case c.New == nil:
		return 0
	case c.Old == nil:
		return c.New.ID.Seq
	}
	for _, e := range c.New.Events() {
		if e.Seq > c.Old.LastSeq() {
			return e.Seq
		}
	}
	return 0
}

func (h *hub) sendFeeds(all []ResolvedFeed, later uint64) {
	for _, n := range all {
		h.send(n.task, News{ID: n.id, Task: n.task, Feed: n.feed, Sum: n.sum, Later: later})
	}
}

// send sends news of a task, of which t is any version.
func (h *hub) send(t *lease.Task, n News) {
	for s := range h.tasks[n.ID] {
		s.send(n)
	}
	if t.Spec.RunID != "" {
		for s := range h.runs[runOf(t)] {
			s.send(n)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, subs := range h.tasks {
		for s := range subs {
			s.closed = true
			close(s.c)
		}
	}
	for _, subs := range h.runs {
		for s := range subs {
			s.closed = true
			close(s.c)
		}
	}
	h.tasks, h.runs = nil, nil
}
