package engine

import (
	"context"
	"sync/atomic"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Entry is the audit entry of a call (X4). The context of the call carries it, and it is committed
// together with the change that the call makes.
type Entry struct {
	records.Audit
	kept atomic.Bool // the entry is in a batch
}

// Kept reports whether the entry is in a batch, together with a change.
func (a *Entry) Kept() bool { return a.kept.Load() }

type entryKey struct{}

// Audited returns a context that carries the audit entry of a call. The first change that the call
// makes commits the entry. A bulk command commits a copy of the entry with each step that changed
// something.
func Audited(ctx context.Context, a *Entry) context.Context {
	return context.WithValue(ctx, entryKey{}, a)
}

// EntryOf returns the audit entry of a call; nil if the call has none.
func EntryOf(ctx context.Context) *Entry {
	a, _ := ctx.Value(entryKey{}).(*Entry)
	return a
}

// Record commits an entry without a change. It sets the times of the entry to now.
func (e *Engine) Record(a records.Audit) error {
	return e.inbox.await(a.Tenant, op{settles: true, run: func() { e.audit(a) }})
}

// alter is ask for a fn that changes something for a caller: the audit entry of the call is
// committed with the change. If fn says that it has changed nothing, alter leaves the entry to the
// caller.
func alter[T any](
	ctx context.Context, e *Engine, tenant string, fn func() (answer T, changed bool, err error),
) (T, error) {
	return askAs(ctx, e, tenant, op{settles: true}, func() (T, error) {
		answer, changed, err := fn()
		if err == nil && changed {
			e.auditOnce(EntryOf(ctx))
		}
		return answer, err
	})
}

// auditOnce adds the entry of a call to the batch, unless a is nil or a batch has it already.
func (e *Engine) auditOnce(a *Entry) {
	if a != nil && a.kept.CompareAndSwap(false, true) {
		e.audit(a.Audit)
	}
}

// auditStep adds a copy of the entry of a bulk command to the batch, for a step that has changed
// tasks.
func (e *Engine) auditStep(a *Entry, tasks uint64) {
	if a == nil || tasks == 0 {
		return
	}
	a.kept.Store(true)
	step := a.Audit
	step.Tasks = tasks
	e.audit(step)
}

// audit adds an entry to the batch. If two entries have the same time, the second one gets a later
// time, so that their keys differ.
func (e *Engine) audit(a records.Audit) {
	a.At, a.Serving = e.now().Wall, e.now().Serving
	if last := e.lastAudit; last.Serving == a.Serving {
		a.At = max(a.At, last.At+1)
	}
	e.lastAudit = a.Key()
	e.batch().addAudit(&a)
}

// Keep commits records that the engine itself does not use, such as credentials. The engine writes
// them because nobody else may write to the store while the engine runs. Keep returns once the
// records are durable (A6), even if ctx ends before. ErrStopped and ErrOverloaded mean that nothing
// was committed. put adds the records to a batch of the store, and must not block.
func (e *Engine) Keep(ctx context.Context, tenant string, put func(*store.Batch)) error {
	entry := EntryOf(ctx)
	return e.inbox.await(tenant, op{settles: true, run: func() {
		e.batch().addPut(put)
		e.auditOnce(entry)
	}})
}
