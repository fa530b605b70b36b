package resource

import (
	"maps"
	"time"

	"github.com/lessor-dev/lessor/worker"
)

// entry is a resource and who uses it. It is guarded by Registry.mu.
type entry struct {
	Resource
	// present: it is in the registry. It is closed by whoever finds it neither present nor leased first.
	present bool
	leases  int
	// until is when the time to live ends, if nobody has it leased then; zero: never.
	until time.Time
	// stop stops the timer that removes it; nil while there is none.
	stop func() bool
}

// over reports whether the time to live has ended (equality included, as of all leases).
func (e *entry) over(now time.Time) bool {
	return e.leases == 0 && !e.until.IsZero() && !now.Before(e.until)
}

// halt stops the timer.
func (e *entry) halt() {
	if e.stop != nil {
		e.stop()
		e.stop = nil
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
	return worker.Artifact{ResourceID: e.ID, Type: e.Type, ExpiresAt: e.until, Metadata: maps.Clone(e.Metadata)}
}

// restLocked begins the time to live anew. While e is leased it does not run out.
func (r *Registry) restLocked(e *entry) {
	e.halt()
	if e.TTL <= 0 {
		return
	}
	e.until = r.cfg.Now().Add(e.TTL)
	if e.leases == 0 {
		e.stop = r.cfg.AfterFunc(e.TTL, func() { r.expire(e) })
	}
}

// expire is what the timer does. A lease or a Touch that came at the same moment has moved the end.
func (r *Registry) expire(e *entry) {
	r.mu.Lock()
	idle := e.present && e.over(r.cfg.Now()) && r.dropLocked(e)
	r.mu.Unlock()
	if idle {
		r.closeAlone(e)
	}
}

// closeAlone closes e where nobody waits for the outcome.
func (r *Registry) closeAlone(e *entry) {
	if err := e.close(); err != nil {
		r.cfg.OnError(e.ID, err)
	}
}
