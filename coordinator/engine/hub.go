package engine

import (
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// newsBuffer is how many news a subscription holds for a slow reader.
const newsBuffer = 256

// hub passes what happened to those who watch. It never waits for a reader.
type hub struct {
	mu     sync.Mutex
	tasks  map[lease.TaskID]map[*Subscription]struct{}
	runs   map[runKey]map[*Subscription]struct{}
	recent map[lease.TaskID]recent // volatile news of live attempts
	closed bool
}

type recent struct {
	attempt uint32
	feed    *Feed
}

type runKey struct {
	space uint32
	run   string
}

func newHub() *hub {
	return &hub{
		tasks:  map[lease.TaskID]map[*Subscription]struct{}{},
		runs:   map[runKey]map[*Subscription]struct{}{},
		recent: map[lease.TaskID]recent{},
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
		if r, ok := h.recent[c.id]; ok && !holds(c.New, r.attempt) {
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

func (h *hub) feed(t *lease.Task, f *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	r := h.recent[t.ID]
	if r.attempt != t.Lease.Attempt {
		r = recent{attempt: t.Lease.Attempt}
	}
	r.feed = r.feed.join(f)
	h.recent[t.ID] = r
	h.tell(t.ID, t.Spec, News{ID: t.ID, Feed: f, State: t.State()})
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
