package engine

import (
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// Bounds of the hub.
const (
	newsBuffer   = 256 // news that a subscription holds for a slow reader
	recentChunks = 50  // last chunks of output that are kept of a live attempt
)

// hub passes what happened to those who watch. It never waits for a reader.
type hub struct {
	mu     sync.Mutex
	tasks  map[lease.TaskID]map[*Subscription]struct{}
	runs   map[runKey]map[*Subscription]struct{}
	recent map[lease.TaskID]*Feed // volatile news of live attempts
	closed bool
}

type runKey struct {
	space uint32
	run   string
}

func newHub() *hub {
	return &hub{
		tasks:  map[lease.TaskID]map[*Subscription]struct{}{},
		runs:   map[runKey]map[*Subscription]struct{}{},
		recent: map[lease.TaskID]*Feed{},
	}
}

// Subscription receives news on C until Close. C is closed when the engine stops.
type Subscription struct {
	C <-chan News

	c      chan News
	hub    *hub
	w      Watching
	closed bool // guarded by hub.mu
}

// Watch subscribes; see Calls.
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

// give hands news over. A reader that has fallen behind loses all that waits for it, not what is newest: the last word on a task must
// arrive, since no other may follow. Only the holder of hub.mu sends, so that after a drop there is room.
func (s *Subscription) give(n News) {
	if len(s.c) == cap(s.c) {
		n.Skipped = s.drop()
	}
	s.c <- n
}

// drop empties the channel and returns how many news were lost.
func (s *Subscription) drop() (lost int) {
	for {
		select {
		case n := <-s.c:
			lost += 1 + n.Skipped
		default:
			return lost
		}
	}
}

// publish tells of committed changes. It costs little while nobody watches.
func (h *hub) publish(changes []*change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tasks) == 0 && len(h.runs) == 0 && len(h.recent) == 0 {
		return
	}
	for _, c := range changes {
		if c.New == nil && c.Old == nil {
			continue
		}
		if len(h.recent) > 0 && (c.New == nil || c.New.Lease == nil) {
			delete(h.recent, c.id)
		}
		_, spec := about(&c.Change)
		h.tell(c.id, spec, News{Task: c.New, ID: c.id})
	}
}

func (h *hub) tell(id lease.TaskID, spec *lease.Spec, n News) {
	for s := range h.tasks[id] {
		s.give(n)
	}
	if spec.RunID != "" {
		for s := range h.runs[runKey{id.Space, spec.RunID}] {
			s.give(n)
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

// Feed passes volatile news on; see Calls. It returns at once.
func (e *Engine) Feed(tenant string, f Feed) {
	id, ok := lease.ParseTaskID(f.TaskID)
	ticket, genuine := e.rules.Authority.Open(tenant, f.LeaseID)
	if !ok || !genuine || ticket.Task != id {
		return
	}
	_ = e.inbox.put(op{run: func() { // a stopped engine has no watchers
		t := e.set.task(id)
		if t == nil || t.Lease == nil || t.Lease.Attempt != ticket.Attempt {
			return
		}
		// After the batch under way, so that watchers see a start before what it printed.
		b := e.batch
		b.ops = append(b.ops, op{after: func(err error) {
			if err == nil && !b.ended(id) {
				e.hub.feed(t, &f)
			}
		}})
	}})
}

func (h *hub) feed(t *lease.Task, f *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.recent[t.ID] = h.recent[t.ID].join(f)
	h.tell(t.ID, t.Spec, News{ID: t.ID, Feed: f})
}

// join is the sum of what was known and what is new; neither is changed, since readers may have them.
func (f *Feed) join(next *Feed) *Feed {
	if f == nil {
		return next
	}
	sum := *f
	if next.Fraction > 0 {
		sum.Fraction = next.Fraction
	}
	if next.Stage != "" {
		sum.Stage = next.Stage
	}
	if next.Message != "" {
		sum.Message = next.Message
	}
	if next.Metrics != nil {
		sum.Metrics = next.Metrics
	}
	if len(next.Chunks) > 0 {
		all := append(sum.Chunks[:len(sum.Chunks):len(sum.Chunks)], next.Chunks...)
		sum.Chunks = all[max(0, len(all)-recentChunks):]
	}
	return &sum
}

// Volatile returns the last volatile news of a live attempt; see Calls.
func (e *Engine) Volatile(id lease.TaskID) (Feed, bool) {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	f := e.hub.recent[id]
	if f == nil {
		return Feed{}, false
	}
	return *f, true
}
