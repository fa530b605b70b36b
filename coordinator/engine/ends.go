package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// Ends tells which of many tasks have ended, once for each time that it listens to one. It keeps no
// versions of them, only their ids: who is slow finds what the tasks have become in the store, and
// no more is kept for it than it listens to. It is for one goroutine.
type Ends struct {
	hub  *hub
	ids  map[lease.TaskID]struct{} // those of Listen without a Forget
	more chan struct{}             // holds a token when ended has got its first id

	ended []lease.TaskID // guarded by the hub
}

// Ends returns an Ends that listens to no task yet. Close it when done.
func (e *Engine) Ends() *Ends {
	return &Ends{hub: e.hub, ids: map[lease.TaskID]struct{}{}, more: make(chan struct{}, 1)}
}

// Listen listens to a task. Take has its id when the task has become final or was deleted, and this
// is durable; then Ends does not listen to it any more. The store says whether that was so before
// Listen.
func (s *Ends) Listen(id lease.TaskID) {
	s.ids[id] = struct{}{}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if all := s.hub.ends[id]; !s.hub.closed && !slices.Contains(all, s) {
		s.hub.ends[id] = append(all, s)
	}
}

// Forget takes back a Listen, whether or not Take had the id.
func (s *Ends) Forget(id lease.TaskID) {
	delete(s.ids, id)
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	all := s.hub.ends[id]
	at := slices.Index(all, s)
	switch {
	case at < 0:
	case len(all) == 1:
		delete(s.hub.ends, id)
	default:
		all[at] = all[len(all)-1] // a Delete would move all that come after it, of thousands perhaps
		all[len(all)-1] = nil
		s.hub.ends[id] = all[:len(all)-1]
	}
}

// Has reports whether there was a Listen of this task without a Forget.
func (s *Ends) Has(id lease.TaskID) bool {
	_, has := s.ids[id]
	return has
}

// Len returns how many tasks are listened to.
func (s *Ends) Len() int { return len(s.ids) }

// More has a token when Take has something.
func (s *Ends) More() <-chan struct{} { return s.more }

// Stopped is closed when the engine has stopped and tells no more.
func (s *Ends) Stopped() <-chan struct{} { return s.hub.stopped }

// Take returns the tasks that have ended since the last Take and that are still listened to. The
// caller then calls Forget, or Listen again, for each.
func (s *Ends) Take() []lease.TaskID {
	s.hub.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.hub.mu.Unlock()
	return slices.DeleteFunc(ended, func(id lease.TaskID) bool { return !s.Has(id) })
}

// Close ends all that Listen began. It may be called twice.
func (s *Ends) Close() {
	for id := range s.ids {
		s.Forget(id)
	}
}

// sendEnd tells those who listen to a task that it has ended. The caller holds mu, and calls
// wakeEnds when all are told.
func (h *hub) sendEnd(id lease.TaskID) {
	for _, s := range h.ends[id] {
		if len(s.ended) == 0 {
			h.toldEnds = append(h.toldEnds, s)
		}
		s.ended = append(s.ended, id)
	}
	delete(h.ends, id)
}

// wakeEnds wakes those who have heard of ends.
func (h *hub) wakeEnds() {
	for i, s := range h.toldEnds {
		select {
		case s.more <- struct{}{}:
		default:
		}
		h.toldEnds[i] = nil
	}
	h.toldEnds = h.toldEnds[:0]
}
