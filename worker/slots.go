package worker

import (
	"slices"
	"time"
)

// slots are the places for handlers that run at once. They are guarded by Worker.mu.
type slots struct {
	limit, taken int
	// waiting came first and get the next places first.
	waiting []*attempt
}

// take gives a a place, or lets it wait for its turn.
func (s *slots) take(a *attempt) {
	if s.taken < s.limit {
		s.taken++
		a.slotted = true
		return
	}
	a.turn = make(chan struct{})
	s.waiting = append(s.waiting, a)
}

// free takes a's place back, if it has one.
func (s *slots) free(a *attempt) {
	if a.slotted {
		a.slotted = false
		s.taken--
		s.fill()
	}
}

// fill gives free places to those that wait.
func (s *slots) fill() {
	for s.taken < s.limit && len(s.waiting) > 0 {
		a := s.waiting[0]
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.taken++
		a.slotted = true
		close(a.turn)
	}
}

// forgo takes a out of those that wait.
func (s *slots) forgo(a *attempt) {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *attempt) bool { return other == a })
}

// awaitSlot waits for the slot of an attempt that got none at once. The coordinator counts free ones itself, so that there is
// one, but for the moment that a handler takes to return after its lease was lost.
func (w *Worker) awaitSlot(a *attempt) bool {
	if a.turn == nil {
		return true
	}
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case <-a.turn:
		return true
	case <-a.ctx.Done():
	case <-timer.C:
	}
	return w.slotAtLast(a)
}

// slotAtLast ends the waiting; the turn may have come at the last moment.
func (w *Worker) slotAtLast(a *attempt) bool {
	w.lock()
	defer w.unlock()
	w.mu.slots.forgo(a)
	return a.slotted
}
