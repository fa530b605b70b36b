package resource

import (
	"maps"
	"time"

	"github.com/lessor-dev/lessor/worker"
)

// entry is a resource and who uses it. It is guarded by Registry.mu.
type entry struct {
	Resource
	// registered: it is in the registry. It is closed by whoever finds it neither present nor leased first.
	registered bool
	leases     int
	// expiresAt is when the time to live ends, if nobody has it leased then; zero: never.
	expiresAt time.Time
	// cancelTimer stops the timer that removes it; nil while there is none.
	cancelTimer func() bool
}

// expired reports whether the time to live has ended (equality included, as of all leases).
func (e *entry) expired(now time.Time) bool {
	return e.leases == 0 && !e.expiresAt.IsZero() && !now.Before(e.expiresAt)
}

// stopTimer stops the timer.
func (e *entry) stopTimer() {
	if e.cancelTimer != nil {
		e.cancelTimer()
		e.cancelTimer = nil
	}
}

func (e *entry) close() error {
	if e.Close == nil {
		return nil
	}
	return e.Close()
}

// artifact describes the resource. Its end may move on later, never back, so that the promise in it is kept.
func (e *entry) artifact() worker.Artifact {
	return worker.Artifact{ResourceID: e.ID, Type: e.Type, ExpiresAt: e.expiresAt, Metadata: maps.Clone(e.Metadata)}
}

// restartTTLLocked begins the time to live anew. While e is leased it does not run out.
func (r *Registry) restartTTLLocked(e *entry) {
	e.stopTimer()
	if e.TTL <= 0 {
		return
	}
	e.expiresAt = r.cfg.Now().Add(e.TTL)
	if e.leases == 0 {
		e.cancelTimer = r.cfg.AfterFunc(e.TTL, func() { r.expire(e) })
	}
}

// expire is what the timer does. A lease or a Touch that came at the same moment has moved the end.
func (r *Registry) expire(e *entry) {
	r.mu.Lock()
	idle := e.registered && e.expired(r.cfg.Now()) && r.removeLocked(e)
	r.mu.Unlock()
	if idle {
		r.closeAndReport(e)
	}
}

// closeAndReport closes e where nobody waits for the outcome.
func (r *Registry) closeAndReport(e *entry) {
	if err := e.close(); err != nil {
		r.cfg.OnError(e.ID, err)
	}
}
