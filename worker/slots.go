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

// take gives a a place, or lets it wait for its turn.
func (s *slots) take(a *attempt) {
	if s.room(a) {
		s.place(a)
		return
	}
	a.turn = make(chan struct{})
	s.waiting = append(s.waiting, a)
}

// room reports whether there is a free place for a. The coordinator keeps to the limits, too, but knows nothing of a handler whose lease was lost.
func (s *slots) room(a *attempt) bool {
	limit, limited := s.typeLimits[a.task.Type]
	return s.taken < s.limit && (!limited || s.ofType[a.task.Type] < limit)
}

func (s *slots) place(a *attempt) {
	a.slotted = true
	s.taken++
	if s.ofType == nil {
		s.ofType = make(map[string]int)
	}
	s.ofType[a.task.Type]++
}

// free takes a's place back, if it has one.
func (s *slots) free(a *attempt) {
	if !a.slotted {
		return
	}
	a.slotted = false
	s.taken--
	if s.ofType[a.task.Type]--; s.ofType[a.task.Type] == 0 {
		delete(s.ofType, a.task.Type)
	}
	s.fill()
}

// fill gives free places to those that wait.
func (s *slots) fill() {
	s.waiting = slices.DeleteFunc(s.waiting, func(a *attempt) bool {
		if !s.room(a) {
			return false
		}
		s.place(a)
		close(a.turn)
		return true
	})
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
