package coordinator

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/room"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// edge holds what the services share. Their handlers read a request, send one command to the engine, wait, and write the answer.
type edge struct {
	engine   *engine.Engine
	store    store.Store
	cfg      Config
	assigner *convert.Assigner
	// stopping is done when the coordinator begins to stop: then streams end, and unary calls that wait for work return.
	stopping context.Context
	quotas   *quota.Book
	rejects  quota.Rejects
	room     *room.Room
	// auditPackage is session.Deps.AuditPackage.
	auditPackage func(ctx context.Context, worker string, end *lessorv1.PkgEvent, code string, asked bool)
}

func (e *edge) fields() *convert.Fields { return &convert.Fields{Limits: e.cfg.Limits} }

// view runs fn in one read transaction of the store, so fn sees one consistent state.
func (e *edge) view(fn func(store.Reader) error) error {
	err := e.store.View(fn)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		e.cfg.Logger.Error("read of the store failed", "error", err)
	}
	return err
}

// longView is a view for an fn that may read much.
func (e *edge) longView(fn func(store.Reader) error) error {
	return e.view(func(r store.Reader) error { return fn(store.Polite(r)) })
}

// untilStop returns a context that is done when ctx is done or when the coordinator begins to stop.
func (e *edge) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(e.stopping, func() { cancel(engine.ErrStopped) })
	return ctx, func() { unhook(); cancel(nil) }
}

// errPanic ends a stream whose reader has panicked. Its status is INTERNAL.
var errPanic = errors.New("the reader of a stream panicked")

// recovered calls fn, for a handler that has more than one goroutine: the interceptors recover only panics of the one that called the handler. It returns
// errPanic if fn panics, and the log tells.
func (e *edge) recovered(ctx context.Context, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.ErrorContext(ctx, "panic in a handler", "panic", p, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return fn()
}

// logFields adds fields such as sender, id and corr to the log line of the call.
func logFields(ctx context.Context, keysAndValues ...any) { logging.AddFields(ctx, keysAndValues) }

// readTask reads a task from the store. It returns lease.ErrNotFound if there is none, or if it belongs to another tenant.
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

// assignments returns the assignments for new leases, for a worker with this credential. An assignment holds everything that a worker needs to run the task.
func (e *edge) assignments(credential string, granted []engine.Granted) ([]*lessorv1.Assignment, error) {
	var all []*lessorv1.Assignment
	now := e.engine.Now()
	err := e.view(func(r store.Reader) (err error) {
		all, err = e.assigner.Assignments(r, now, credential, granted)
		return err
	})
	return all, err
}

// streams returns the server of the workers' sessions. It registers each session in sessions while that is open.
func (e *edge) streams(sessions *session.Registry) *session.Server {
	return session.New(session.Deps{
		Config: e.cfg.Sessions, Limits: e.cfg.Limits, Version: e.cfg.Version, Logger: e.cfg.Logger, Engine: e.engine, Quotas: e.quotas,
		Tokens: e.assigner.Tokens, Registry: sessions, View: e.view, Assign: e.assignments, AuditPackage: e.auditPackage,
		Stopping: e.stopping,
	})
}
