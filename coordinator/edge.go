package coordinator

import (
	"context"
	"errors"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// edge is what the services share: handlers read a request, send one command to the engine, wait, and write the answer.
type edge struct {
	engine engine.Calls
	store  store.Store
	cfg    Config
	// taskTokens go out with every lease; callbackURL, which they are good for, is empty without an HTTP listener.
	taskTokens  taskTokens
	callbackURL string // set before anything is served
	// stopping ends when the coordinator begins to stop, so that streams end and unary requests that wait for work come back.
	stopping context.Context
	quotas   *quota.Book
	rejects  rejects
}

func (e *edge) fields() *fields { return &fields{limits: e.cfg.Limits} }

// view reads the store, of which each answer shows one state.
func (e *edge) view(fn func(store.Reader) error) error {
	err := e.store.View(fn)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		e.cfg.Logger.Error("read of the store failed", "error", err)
	}
	return err
}

// until is ctx, ended early when the coordinator stops.
func (e *edge) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(e.stopping, func() { cancel(engine.ErrStopped) })
	return ctx, func() { unhook(); cancel(nil) }
}

// note adds fields to the line that the call leaves in the log: sender, id, corr ... (section 10 of the contract).
func note(ctx context.Context, keysAndValues ...any) { logging.AddFields(ctx, keysAndValues) }

// own reads a task of the tenant from the store; lease.ErrNotFound where there is none, or it is another's.
func own(r store.Reader, tenant string, id lease.TaskID) (*lease.Task, error) {
	t, err := records.Task(r, id)
	if err != nil {
		return nil, err
	}
	if t == nil || t.Tenant != tenant {
		return nil, lease.ErrNotFound
	}
	return t, nil
}

// assignments turns new leases into what their holders need, payloads and checkpoints included. A task that was deleted since
// is left out: its lease has ended.
func (e *edge) assignments(granted []engine.Granted) ([]*lessorv1.Assignment, error) {
	all := make([]*lessorv1.Assignment, 0, len(granted))
	now := e.engine.Now()
	at := &times{now: now}
	made := make([]assigned, len(granted))
	serverTime := at.stamp(now.Wall)
	err := e.view(func(r store.Reader) error {
		for i := range granted {
			a, err := e.assignment(r, at, &granted[i], &made[i])
			if err != nil {
				return err
			}
			if a != nil {
				a.ServerTime = serverTime
				all = append(all, a)
			}
		}
		return nil
	})
	return all, err
}

// payloadFor is the payload of a task, which the engine may have kept in memory for the grant; nil where the task was deleted since.
func payloadFor(r store.Reader, t *lease.Task) ([]byte, error) {
	if len(t.Spec.Payload) == t.Spec.Size {
		return t.Spec.Payload, nil
	}
	return records.Payload(r, t.ID)
}

// assigned is memory for an assignment. All of an answer are made at once.
type assigned struct {
	whole lessorv1.Assignment
	task  lessorv1.Task
	spec  lessorv1.TaskSpec
}

// assignment writes one into m. It leaves out the server's time, which all of an answer share; nil where the task was deleted since.
func (e *edge) assignment(r store.Reader, at *times, g *engine.Granted, m *assigned) (*lessorv1.Assignment, error) {
	t, l := g.Task, g.Task.Lease
	until := t.ExpiresAt(at.now)
	payload, err := payloadFor(r, t)
	if err != nil || payload == nil && t.Spec.Size > 0 {
		return nil, err
	}
	showWork(m, at, t)
	m.spec.Payload = payload
	var checkpoint []byte
	if t.HasCheckpoint {
		if checkpoint, err = records.Checkpoint(r, t.ID); err != nil {
			return nil, err
		}
	}
	token, tokenEnds := e.taskTokens.of(at, t.Holding(), until)
	m.whole = lessorv1.Assignment{
		Task: &m.task, Attempt: l.Attempt, AttemptId: lease.AttemptID(t.ID, l.Attempt), LeaseId: g.LeaseID, FencingToken: g.Token,
		ExpiresAt: at.stampAt(until), ExpiresIn: at.left(until),
		HeartbeatInterval: at.span(t.Spec.HeartbeatInterval), HeartbeatTimeout: at.span(t.Spec.HeartbeatTimeout),
		CancelGrace: at.span(t.Spec.CancelGrace), Traceparent: t.Spec.Traceparent, Checkpoint: checkpoint, RunSeq: runSeq(t),
		TaskToken: token, TokenExpiresAt: tokenEnds, CallbackBaseUrl: e.callbackURL,
	}
	m.task.TaskId, _, _ = strings.Cut(m.whole.GetAttemptId(), "-") // which begins with it
	return &m.whole, nil
}

// runSeq orders the tasks of a run.
func runSeq(t *lease.Task) uint64 {
	if t.Spec.RunID == "" {
		return 0
	}
	return t.ID.Seq
}
