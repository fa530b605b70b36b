package workercheck

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// fate is what becomes of something that was said.
type fate int

const (
	pass   fate = iota
	refuse      // it does not reach the coordinator, and there is no verdict
	spoil       // it reaches the coordinator with a mistake in it
	lose        // the answer does not reach the worker
	mask        // on a stream, the worker gets an error in place of the verdict
)

// faults say what the taps do. A nil function does nothing.
type faults struct {
	// hear decides about what the worker says: pass, refuse or spoil.
	hear func(*word) fate
	// tell decides about the answer: pass, lose or mask.
	tell func(*word) fate
	// grant decides about an answer with work to a worker that asks: pass or lose.
	grant func() fate
	// busy returns for how long the worker shall ask for no work; 0: it may.
	busy func() time.Duration
	// twice makes every dispatch come twice.
	twice bool
	// parts: once the worker was told of an attempt for which it returns true, nothing that the
	// worker says about attempts reaches the coordinator, and nothing more comes to it on a stream.
	parts func(*attempt) bool
	// distort changes what the worker is told.
	distort *distortion
}

// tap is between the worker and the coordinator.
type tap struct {
	rec         *record
	coordinator func() *grpc.ClientConn // the present one

	mu     sync.Mutex
	faults faults
}

// set replaces the faults.
func (t *tap) set(f faults) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = f
}

func (t *tap) now() faults {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults
}

// parted reports whether worker and coordinator hear no more of each other.
func (t *tap) parted() bool {
	parts := t.now().parts
	return parts != nil && t.rec.any(parts)
}

func (t *tap) hear(w *word) fate {
	if t.parted() {
		return refuse
	}
	if f := t.now(); w != nil && f.hear != nil {
		return f.hear(w)
	}
	return pass
}

func (t *tap) tell(w *word) fate {
	if f := t.now(); w != nil && f.tell != nil {
		return f.tell(w)
	}
	return pass
}

// loseGrant reports whether an answer with so many tasks is lost.
func (t *tap) loseGrant(tasks int) bool {
	f := t.now()
	if tasks == 0 || f.grant == nil || f.grant() != lose {
		return false
	}
	t.rec.note("coordinator: here is work: %s", lostOnTheWay)
	return true
}

func (t *tap) busy() time.Duration {
	if f := t.now(); f.busy != nil {
		return f.busy()
	}
	return 0
}
