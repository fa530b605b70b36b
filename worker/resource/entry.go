package resource

import (
	"maps"
	"time"

	"github.com/lessor-dev/lessor/worker"
)

// entry is a resource and its leases. It is guarded by Registry.mu.
type entry struct {
	Resource
	// registered: the entry is in the registry. Whoever first finds it neither registered nor
	// leased closes it.
	registered bool
	leases     int
	// expiresAt is when the time to live ends, unless the resource is leased then; zero: never.
	expiresAt time.Time
	// timer removes the entry at expiresAt; nil if there was none yet.
	timer *time.Timer
}

// expired reports whether the time to live has ended. At expiresAt it has ended, as with all
// leases.
func (e *entry) expired(now time.Time) bool {
	return e.leases == 0 && !e.expiresAt.IsZero() && !now.Before(e.expiresAt)
}

// stopTimer stops the timer.
func (e *entry) stopTimer() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

func (e *entry) close() error {
	if e.Close == nil {
		return nil
	}
	return e.Close()
}

// artifact describes the resource. It does not say when the resource may be gone: each use moves
// that, and a task that refers to the resource with an earlier time would be FAILED while the
// resource lives.
func (e *entry) artifact() worker.Artifact {
	return worker.Artifact{ResourceID: e.ID, Type: e.Type, Metadata: maps.Clone(e.Metadata)}
}

// restartTTLLocked starts the time to live again. While e is leased, it does not end.
func (r *Registry) restartTTLLocked(e *entry) {
	e.stopTimer()
	if e.TTL <= 0 {
		return
	}
	e.expiresAt = time.Now().Add(e.TTL)
	if e.leases == 0 {
		e.timer = time.AfterFunc(e.TTL, func() { r.expire(e) })
	}
}

// expire runs when the timer fires. If a lease or a Touch came at the same moment, the end has
// already moved.
func (r *Registry) expire(e *entry) {
	r.mu.Lock()
	idle := e.registered && e.expired(time.Now()) && r.removeLocked(e)
	r.mu.Unlock()
	if idle {
		r.closeAndReport(e)
	}
}

// closeAndReport closes e when no caller waits for the result, and passes an error to
// Config.OnError.
func (r *Registry) closeAndReport(e *entry) {
	if err := e.close(); err != nil {
		r.cfg.OnError(e.ID, err)
	}
}
