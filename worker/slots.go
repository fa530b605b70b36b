package worker

import (
	"slices"
	"time"
)

// slots are the places for handlers that run at once. They are guarded by Worker.mu.
type slots struct {
	limit, taken int
	// ofType is how many of the places taken are of a type, and typeLimits how many may be; a type that is not there has no limit.
	ofType, typeLimits map[string]int
	// waiting came first and get the next places first, each as soon as there is room for its type.
	waiting []*attempt
}

// acquire gives a a place, or lets it wait for its turn.
func (s *slots) acquire(a *attempt) {
	if s.hasRoom(a) {
		s.assign(a)
		return
	}
	a.slotReady = make(chan struct{})
	s.waiting = append(s.waiting, a)
}

// hasRoom reports whether there is a free place for a. The coordinator keeps to the limits, too, but knows nothing of a handler whose lease was lost.
func (s *slots) hasRoom(a *attempt) bool {
	limit, limited := s.typeLimits[a.task.Type]
	return s.taken < s.limit && (!limited || s.ofType[a.task.Type] < limit)
}

func (s *slots) assign(a *attempt) {
	a.hasSlot = true
	s.taken++
	if s.ofType == nil {
		s.ofType = make(map[string]int)
	}
	s.ofType[a.task.Type]++
}

// release takes a's place back, if it has one.
func (s *slots) release(a *attempt) {
	if !a.hasSlot {
		return
	}
	a.hasSlot = false
	s.taken--
	if s.ofType[a.task.Type]--; s.ofType[a.task.Type] == 0 {
		delete(s.ofType, a.task.Type)
	}
	s.assignWaiting()
}

// assignWaiting gives free places to those that wait.
func (s *slots) assignWaiting() {
	s.waiting = slices.DeleteFunc(s.waiting, func(a *attempt) bool {
		if !s.hasRoom(a) {
			return false
		}
		s.assign(a)
		close(a.slotReady)
		return true
	})
}

// removeWaiting takes a out of those that wait.
func (s *slots) removeWaiting(a *attempt) {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *attempt) bool { return other == a })
}

// awaitSlot waits for the slot of an attempt that got none at once. The coordinator counts free ones itself, so that there is
// one, but for the moment that a handler takes to return after its lease was lost.
func (w *Worker) awaitSlot(a *attempt) bool {
	if a.slotReady == nil {
		return true
	}
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case <-a.slotReady:
		return true
	case <-a.ctx.Done():
	case <-timer.C:
	}
	return w.stopAwaitingSlot(a)
}

// stopAwaitingSlot ends the waiting; the turn may have come at the last moment.
func (w *Worker) stopAwaitingSlot(a *attempt) bool {
	w.lock()
	defer w.unlock()
	w.mu.slots.removeWaiting(a)
	return a.hasSlot
}
