package resource

import (
	"sync/atomic"

	"github.com/lessor-dev/lessor/worker"
)

// Lease keeps a resource from being closed until the lease is released.
type Lease struct {
	r        *Registry
	e        *entry
	released atomic.Bool
}

// Lease leases a resource. Any number of leases may exist at once. The error is ErrNotFound.
func (r *Registry) Lease(id string) (*Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(id)
	if err != nil {
		return nil, err
	}
	e.stopTimer()
	e.leases++
	return &Lease{r: r, e: e}, nil
}

// Value returns the value of the resource.
func (l *Lease) Value() any { return l.e.Value }

// ID returns the id of the resource.
func (l *Lease) ID() string { return l.e.ID }

// Release ends the lease, and starts the resource's time to live again. A second call does nothing.
func (l *Lease) Release() {
	if !l.released.CompareAndSwap(false, true) {
		return
	}
	l.r.mu.Lock()
	l.e.leases--
	last := l.e.leases == 0
	if last && l.e.registered {
		l.r.restartTTLLocked(l.e)
	}
	orphan := last && !l.e.registered
	l.r.mu.Unlock()
	if orphan {
		l.r.closeAndReport(l.e)
	}
}

// Leases are leases that are released together.
type Leases []*Lease

// LeaseAll leases the resources that a task refers to, in the same order: all or none. The error is
// ErrNotFound.
func (r *Registry) LeaseAll(refs []worker.ResourceRef) (Leases, error) {
	var held Leases
	for _, ref := range refs {
		l, err := r.Lease(ref.ResourceID)
		if err != nil {
			held.Release()
			return nil, err
		}
		held = append(held, l)
	}
	return held, nil
}

// Release ends all of the leases.
func (ls Leases) Release() {
	for _, l := range ls {
		l.Release()
	}
}
