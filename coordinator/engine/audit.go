package engine

import (
	"context"
	"sync/atomic"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Entry is the audit entry of a call (X4). It travels in the context of the call, and is committed together with the change that the call
// makes.
type Entry struct {
	records.Audit
	kept atomic.Bool // the entry is in a batch
}

// Kept reports whether the entry goes, or went, with a change.
func (a *Entry) Kept() bool { return a.kept.Load() }

type entryKey struct{}

// Audited returns a context with which a call leaves the entry in the audit: in the commit of the first change that the call makes. A bulk
// command leaves a copy of the entry with each of its steps that changed something.
func Audited(ctx context.Context, a *Entry) context.Context {
	return context.WithValue(ctx, entryKey{}, a)
}

// EntryOf returns the audit entry of a call; nil if the call leaves none.
func EntryOf(ctx context.Context) *Entry {
	a, _ := ctx.Value(entryKey{}).(*Entry)
	return a
}

// Record commits an entry that goes with no change. It sets the times of the entry to now.
func (e *Engine) Record(a records.Audit) error {
	return e.perform(a.Tenant, func() { e.audit(a) })
}

// alter is ask for an fn that changes something: the audit entry of the call goes with the change.
func alter[T any](ctx context.Context, e *Engine, tenant string, fn func() (T, error)) (T, error) {
	return ask(ctx, e, tenant, func() (T, error) {
		answer, err := fn()
		if err == nil {
			e.auditOnce(EntryOf(ctx))
		}
		return answer, err
	})
}

// auditOnce adds the entry of a call, if it leaves one, to the batch.
func (e *Engine) auditOnce(a *Entry) {
	if a != nil && a.kept.CompareAndSwap(false, true) {
		e.audit(a.Audit)
	}
}

// auditStep adds the entry of a bulk command, for a step of it that has changed tasks.
func (e *Engine) auditStep(a *Entry, tasks uint64) {
	if a == nil || tasks == 0 {
		return
	}
	a.kept.Store(true)
	step := a.Audit
	step.Tasks = tasks
	e.audit(step)
}

// audit adds an entry to the batch. Of two at the same moment the second has a later time, so that each has a place of its own.
func (e *Engine) audit(a records.Audit) {
	a.At, a.Serving = e.now.Wall, e.now.Serving
	if last := e.audited; last.Serving == a.Serving {
		a.At = max(a.At, last.At+1)
	}
	e.audited = a.Key()
	e.batch.audits = append(e.batch.audits, &a)
}

// Keep commits records that do not concern the engine itself, such as credentials: while a store is served, only the engine writes to it. Keep
// returns once the records are durable (A6), even if ctx ends before. ErrStopped and ErrOverloaded mean that nothing was committed. put adds
// the records to a batch of the store, and must not block.
func (e *Engine) Keep(ctx context.Context, tenant string, put func(*store.Batch)) error {
	entry := EntryOf(ctx)
	return e.perform(tenant, func() {
		e.batch.others = append(e.batch.others, put)
		e.auditOnce(entry)
	})
}

// perform runs fn on the loop, and returns when what it did is durable.
func (e *Engine) perform(tenant string, fn func()) error {
	done := make(chan error, 1)
	if err := e.inbox.put(tenant, op{run: fn, after: func(err error) { done <- err }}); err != nil {
		return err
	}
	return <-done
}
