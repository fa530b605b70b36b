package service

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// shared is what the services share.
type shared struct {
	Deps
	rejects quota.Rejects
	behind  chan struct{} // has a token while a watch of a run that has fallen behind reads; see runHistory.read
}

func newShared(d Deps) *shared {
	return &shared{Deps: d, rejects: quota.NewRejects(), behind: make(chan struct{}, 1)}
}

func (sh *shared) fields() *convert.Fields { return &convert.Fields{Limits: sh.Limits} }

// view runs fn in one read transaction of the store, so fn sees one consistent state.
func (sh *shared) view(fn func(store.Reader) error) error {
	err := sh.Store.View(fn)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		sh.Logger.Error("read of the store failed", "error", err)
	}
	return err
}

// longView is a view for an fn that may read much.
func (sh *shared) longView(fn func(store.Reader) error) error {
	return sh.view(func(r store.Reader) error { return fn(store.Polite(r)) })
}

// untilStop returns a context that is done when ctx is done or when the coordinator begins to stop.
func (sh *shared) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(sh.Stopping, func() { cancel(engine.ErrStopped) })
	return ctx, func() { unhook(); cancel(nil) }
}

// errPanic ends a stream whose reader has panicked. Its status is INTERNAL.
var errPanic = errors.New("the reader of a stream panicked")

// recovered calls fn, for a handler that has more than one goroutine: the interceptors recover only
// panics of the one that called the handler. It returns errPanic if fn panics, and the log tells.
func (sh *shared) recovered(ctx context.Context, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			sh.Logger.ErrorContext(ctx, "panic in a handler", "panic", p, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return fn()
}

// logFields adds fields such as sender, id and corr to the log line of the call.
func logFields(ctx context.Context, keysAndValues ...any) { logging.AddFields(ctx, keysAndValues) }

// readTask reads a task from the store. It returns lease.ErrNotFound if there is none, or if it
// belongs to another tenant.
func readTask(r store.Reader, tenant string, id lease.TaskID) (*lease.Task, error) {
	t, err := records.Task(r, id)
	if err != nil {
		return nil, err
	}
	if t == nil || t.Tenant != tenant {
		return nil, lease.ErrNotFound
	}
	return t, nil
}

// assignments returns the assignments for new leases, for a worker with this credential. An
// assignment holds everything that a worker needs to run the task.
func (sh *shared) assignments(credential string, granted []engine.Granted) ([]*lessorv1.Assignment, error) {
	var all []*lessorv1.Assignment
	now := sh.Engine.Now()
	err := sh.view(func(r store.Reader) (err error) {
		all, err = sh.Assigner.Assignments(r, now, credential, granted)
		return err
	})
	return all, err
}

// sweep runs the part of a sweep that fits into one call. An error says how much was changed before
// it.
func (sh *shared) sweep(ctx context.Context, list listing, sw engine.Sweep) (*lessorv1.BatchResult, error) {
	done, err := sh.Engine.Sweep(ctx, sw)
	switch {
	case err != nil && done.Changed > 0:
		return nil, refusal.After(done.Changed, err)
	case err != nil:
		return nil, err
	}
	m := &lessorv1.BatchResult{Changed: done.Changed, Skipped: done.Skipped}
	if done.More {
		m.NextPageToken = list.pairToken(done.After, done.Until)
	}
	return m, nil
}

// streams returns the server of the workers' sessions.
func (sh *shared) streams() *session.Server {
	return session.New(session.Deps{
		Config:       sh.SessionConfig,
		Limits:       sh.Limits,
		Version:      sh.Version,
		Logger:       sh.Logger,
		Engine:       sh.Engine,
		Quotas:       sh.Quotas,
		Tokens:       sh.Assigner.Tokens,
		Registry:     sh.Sessions,
		View:         sh.view,
		Assign:       sh.assignments,
		AuditPackage: sh.Gate.AuditPackage,
		Stopping:     sh.Stopping,
		MaxMessage:   sh.MaxMessage,
	})
}
