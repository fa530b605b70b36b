package engine

import (
	"context"
	"sync/atomic"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Entry is what a call will leave in the audit (X4). It goes with the context of the call, down to the change that it records.
type Entry struct {
	records.Audit
	kept atomic.Bool // or about to be, with a change
}

// Kept reports whether a change has taken the entry along.
func (a *Entry) Kept() bool { return a.kept.Load() }

type entryKey struct{}

// Audited is ctx of a call that leaves an entry in the audit: the first change that it makes has the entry in its commit. A bulk command
// leaves one with each of its steps that has changed something.
func Audited(ctx context.Context, a *Entry) context.Context {
	return context.WithValue(ctx, entryKey{}, a)
}

// EntryOf is the entry that a call will leave; nil where it leaves none.
func EntryOf(ctx context.Context) *Entry {
	a, _ := ctx.Value(entryKey{}).(*Entry)
	return a
}

// Record makes an entry durable by itself, where there is no change to go with. The times of the entry are those of now.
func (e *Engine) Record(a records.Audit) error {
	return e.perform(a.Tenant, func() { e.audit(a) })
}

// alter is ask for what changes something: with the change goes the entry of the call.
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

// Keep commits records that are no business of the engine, with what it commits itself: nobody else writes to a store that is served. It
// returns once they are durable (A6), whatever becomes of the caller meanwhile; ErrStopped and ErrOverloaded mean that nothing was kept.
// put must not block.
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
