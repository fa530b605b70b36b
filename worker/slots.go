package worker

import (
	"slices"
	"time"
)

// slots limit how many handlers run at once. They are guarded by Worker.mu.
type slots struct {
	limit, taken int
	// ofType is how many slots of each type are taken, and typeLimits how many may be; a type that
	// is not in typeLimits has no limit of its own.
	ofType, typeLimits map[string]int
	// waiting are the attempts that wait for a slot, oldest first. Each gets one as soon as there
	// is room for its type.
	waiting []*attempt
}

// acquire gives a slot to the attempt a, or adds it to those that wait for one.
func (s *slots) acquire(a *attempt) {
	if s.hasRoom(a) {
		s.assign(a)
		return
	}
	a.slotReady = make(chan struct{})
	s.waiting = append(s.waiting, a)
}

// hasRoom reports whether there is a free slot for a. The coordinator obeys the limits too, but it
// does not know of handlers that still run after their lease was lost.
func (s *slots) hasRoom(a *attempt) bool {
	limit, limited := s.typeLimits[a.task.Type]
	return s.taken < s.limit && (!limited || s.ofType[a.task.Type] < limit)
}

func (s *slots) assign(a *attempt) {
	a.hasSlot = true
	s.taken++
	s.ofType[a.task.Type]++
}

// release frees a's slot, if a has one.
func (s *slots) release(a *attempt) {
	if !a.hasSlot {
		return
	}
	a.hasSlot = false
	s.taken--
	countDown(s.ofType, a.task.Type)
	s.assignWaiting()
}

// countDown subtracts 1 from the count of a key, and forgets a key that has none left.
func countDown[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// assignWaiting gives free slots to the attempts that wait.
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

// removeWaiting removes a from the attempts that wait.
func (s *slots) removeWaiting(a *attempt) {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *attempt) bool { return other == a })
}

// awaitSlot waits for the slot of an attempt that got none at once, and reports whether it got one.
// The coordinator itself counts free slots, so there is one, except for the moment that a handler
// needs to return after its lease was lost. The attempt has nothing to do with that handler: it is
// given back long before the wait could cost it its lease, which ends by its attempt_timeout and
// deadline, too (A3).
func (w *Worker) awaitSlot(a *attempt) bool {
	if a.slotReady == nil {
		return true
	}
	timer := time.NewTimer(min(slotWait, w.leaseLeft(a)/8))
	defer timer.Stop()
	select {
	case <-a.slotReady:
		return true
	case <-a.ctx.Done():
	case <-timer.C:
		// before the attempt is given back, or the coordinator would grant it to this worker again
		w.markUnleasedStuck()
	}
	return w.stopAwaitingSlot(a)
}

// leaseLeft returns how long the lease of an attempt lives without a renewal.
func (w *Worker) leaseLeft(a *attempt) time.Duration {
	w.lock()
	defer w.unlock()
	return a.lease.left(time.Now())
}

// markUnleasedStuck counts the handlers that have slots and no leases as stuck: one of them is what
// an attempt has waited for.
func (w *Worker) markUnleasedStuck() {
	w.lock()
	defer w.unlock()
	for a := range w.mu.unleased {
		if a.hasSlot {
			w.markStuckLocked(a)
		}
	}
}

// stopAwaitingSlot stops waiting, and reports whether the attempt got a slot at the last moment.
func (w *Worker) stopAwaitingSlot(a *attempt) bool {
	w.lock()
	defer w.unlock()
	w.mu.slots.removeWaiting(a)
	return a.hasSlot
}
