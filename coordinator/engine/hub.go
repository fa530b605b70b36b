package engine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// hub passes news to those who watch. It never waits for a reader.
type hub struct {
	mu      sync.Mutex
	tasks   map[lease.TaskID]*topic
	runs    map[runKey]*topic
	touched []*topic                         // have news since publish last woke their watchers
	recent  map[lease.TaskID]*lease.Feedback // what live attempts have reported so far
	output  int                              // number of bytes of output in recent
	closed  bool

	ends     map[lease.TaskID][]*Ends // who listens to the ends of tasks
	toldEnds []*Ends                  // have heard of ends since publish last woke them
	stopped  chan struct{}            // closed with closed
}

type runKey struct {
	space Space
	run   string
}

func runOf(t *lease.Task) runKey { return runKey{Space{t.Tenant, t.Workspace}, t.Spec.RunID} }

func newHub() *hub {
	return &hub{
		tasks: map[lease.TaskID]*topic{}, runs: map[runKey]*topic{}, recent: map[lease.TaskID]*lease.Feedback{},
		ends: map[lease.TaskID][]*Ends{}, stopped: make(chan struct{}),
	}
}

// Watch subscribes to all further news of a task (Task set) or a run (Run set). A slow reader
// blocks nobody, but misses news, and Next says how many. Close the subscription when done.
func (e *Engine) Watch(w Watching) *Subscription {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	return e.hub.topic(w).subscribe(e.hub, w)
}

// topic finds what is watched, or makes it.
func (h *hub) topic(w Watching) *topic {
	switch {
	case h.closed:
		t := newTopic()
		t.close()
		return t
	case w.Run != "":
		return find(h.runs, runKey{w.Space, w.Run})
	}
	return find(h.tasks, w.Task)
}

func find[K comparable](topics map[K]*topic, k K) *topic {
	t := topics[k]
	if t == nil {
		t = newTopic()
		topics[k] = t
	}
	return t
}

// publish sends the news of a committed batch to watchers. For each changed task, it first sends
// what the attempt reported during the batch, with the version of that time, and then the new
// version, because nothing may follow the final version of a task. Then it sends the feeds of
// attempts whose tasks the batch did not change. It costs little while nobody watches.
func (h *hub) publish(b *batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ends) > 0 {
		h.publishEnds(b)
	}
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
	for i, t := range h.touched {
		t.wake()
		h.touched[i] = nil
	}
	h.touched = h.touched[:0]
}

// publishEnds tells those who listen which tasks a committed batch has ended or deleted.
func (h *hub) publishEnds(b *batch) {
	for _, c := range b.changes {
		if c.New == nil || c.New.State().Final() {
			h.sendEnd(c.id)
		}
	}
	h.wakeEnds()
}

// laterEvents returns News.Later for each change of a batch. The changes are in the order in which
// the batch first changed their tasks. Their events may have another order: for example, if a
// renewal, which makes no event, was the first change of a task.
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

// firstEvent returns the sequence of the first event that a change has made; 0 if it has made none,
// or the task was deleted.
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
	h.add(h.tasks[n.ID], n)
	if t.Spec.RunID != "" {
		h.add(h.runs[runOf(t)], n)
	}
}

// add adds news to a topic; nil: nobody watches it.
func (h *hub) add(t *topic, n News) {
	if t != nil && t.add(n) {
		h.touched = append(h.touched, t)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	close(h.stopped)
	h.ends = nil
	for _, t := range h.tasks {
		t.close()
	}
	for _, t := range h.runs {
		t.close()
	}
	h.tasks, h.runs = nil, nil
}
