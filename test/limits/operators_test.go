package limits

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// commands is a command about one task.
func (w *world) commands(tn *tenant) {
	id := w.book.anyTask(w.rng, tn)
	if id == "" {
		return
	}
	if late := w.book.lateResult(w.rng, tn); late != "" && one(w.rng, 4) {
		w.adopts(tn, late)
		return
	}
	switch w.rng.IntN(7) {
	case 0, 1, 2:
		w.command(tn, "CancelTask", id, func(ctx context.Context, c *client) (err error) {
			_, err = c.tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id, Reason: "by chance"})
			return err
		})
	case 3, 4:
		w.command(tn, "RetryTask", id, func(ctx context.Context, c *client) (err error) {
			_, err = c.tasks.RetryTask(ctx,
				&lessorv1.RetryTaskRequest{TaskId: id, Deadline: timestamppb.New(time.Now().Add(time.Hour))})
			return err
		})
	case 5:
		force := one(w.rng, 2)
		w.ask(tn, "DeleteTask", 0, func(ctx context.Context, c *client) error {
			w.book.mayBeGone(id)
			_, err := c.tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, Force: force})
			if err == nil {
				w.book.isGone(id)
			}
			return err
		})
	case 6:
		w.adopts(tn, id)
	}
}

// adopts makes a result that came too late the outcome of its task.
func (w *world) adopts(tn *tenant, id string) {
	w.ask(tn, "AdoptResult", 0, func(ctx context.Context, c *client) error {
		res, err := c.tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: id})
		if err == nil {
			w.book.adopted(id, res.GetTask())
		}
		return err
	})
}

// command is a command that a task with an outcome refuses.
func (w *world) command(tn *tenant, what, id string, call func(ctx context.Context, c *client) error) {
	w.ask(tn, what, 0, func(ctx context.Context, c *client) error {
		known := w.book.known(id)
		err := call(ctx, c)
		if err == nil && known.done != nil {
			w.problem("T9: %s of %s was done, although attempt %d has completed it", what, id, known.done.attempt)
		}
		return err
	})
}

// governs changes the settings of a queue.
func (w *world) governs(tn *tenant) {
	req := &lessorv1.UpdateQueueRequest{WorkspaceId: pick(w.rng, tn.spaces...), Name: pick(w.rng, queues...)}
	switch w.rng.IntN(5) {
	case 0:
		paused := one(w.rng, 2)
		req.Paused = &paused
	case 1:
		most := pick[uint32](w.rng, 0, 1, 2, 5)
		req.MaxInflight = &most
	case 2:
		req.RateLimit = pick(w.rng, &lessorv1.RateLimit{}, &lessorv1.RateLimit{PerSecond: 2, Burst: 1},
			&lessorv1.RateLimit{PerSecond: 0.5, Burst: 3})
	case 3:
		req.FairnessWeights = map[string]float64{"f1": pick(w.rng, 0.1, 1, 10)}
	case 4:
		req.RetryPolicy = &lessorv1.RetryPolicy{
			MaxAttempts: pick[uint32](w.rng, 1, 3, 0),
			MaxLosses:   pick[uint32](w.rng, 1, 3, 0),
		}
	}
	w.note("%s: %v", tn.name, req)
	w.ask(tn, "UpdateQueue", 0, func(ctx context.Context, c *client) error { return w.updateQueue(ctx, tn, c, req) })
}

// updateQueue makes a call of UpdateQueue, and notes what holds from its answer on.
func (w *world) updateQueue(ctx context.Context, tn *tenant, c *client, req *lessorv1.UpdateQueueRequest) error {
	tn.ruled.Store(queueOf{req.GetWorkspaceId(), req.GetName()}, true)
	answered := w.book.ruling(placeOf{tn, req.GetWorkspaceId()}, req)
	_, err := c.admin.UpdateQueue(ctx, req)
	answered(err)
	return err
}

// operates is a command about a worker, mostly about one with a stream.
func (w *world) operates(tn *tenant) {
	of, undo, requeue := w.anyWorker(tn), one(w.rng, 3), one(w.rng, 2)
	if one(w.rng, 3) {
		w.kicks(of, requeue)
		return
	}
	w.note("%s: drain %s, undo %v", of.tenant.name, of.name, undo)
	w.ask(of.tenant, "DrainWorker", 0, func(ctx context.Context, c *client) error {
		answered := w.book.draining(of, c, undo)
		res, err := c.admin.DrainWorker(ctx, &lessorv1.DrainWorkerRequest{WorkerId: of.name, Undo: undo})
		answered(res, err)
		return err
	})
}

// anyWorker returns a worker, at times one of the SDK, or one of a tenant, which may have no
// stream.
func (w *world) anyWorker(tn *tenant) workerOf {
	if tn.sdk != nil && one(w.rng, 3) {
		return workerOf{tn, tn.sdk.name}
	}
	open := tn.peers
	if !one(w.rng, 8) {
		open = w.open(w.tenants...)
	}
	if len(open) == 0 {
		open = tn.peers
	}
	return pick(w.rng, open...).worker()
}

// kicks ends the streams of a worker, and with requeue its leases.
func (w *world) kicks(of workerOf, requeue bool) {
	w.note("%s: kick %s, requeue %v", of.tenant.name, of.name, requeue)
	w.busy.Go(func() {
		var lines []*line
		_ = w.call(of.tenant, "KickWorker", 0, func(ctx context.Context, c *client) error {
			reason, answered := w.book.kicking(of, c, requeue)
			res, err := c.admin.KickWorker(ctx, &lessorv1.KickWorkerRequest{WorkerId: of.name, Reason: reason, Requeue: requeue})
			lines = answered(res, err)
			return err
		})
		time.Sleep(10 * sendWithin)
		for _, l := range lines {
			if !l.hasEnded() {
				w.problem("W10: %s: a stream of %s has not ended %v after a kick", of.tenant.name, of.name, 10*sendWithin)
			}
		}
	})
}

// credential is a token of a tenant.
type credential struct {
	id, token string
	revoked   atomic.Bool // somebody has asked for that
}

// revokes replaces the credential of a tenant by a new one, and revokes the old one: no call with
// it is answered any more, and its streams end within a second.
func (w *world) revokes(tn *tenant) {
	old, peers := tn.token.Load(), tn.peers // the end of the history, which may come first, replaces the peers
	w.note("%s revokes its credential", tn.name)
	w.busy.Go(func() {
		made := &credential{}
		err := w.call(tn, "CreateToken", 0, func(ctx context.Context, c *client) error {
			res, err := c.auth.CreateToken(ctx, &lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_OPERATOR, Subject: tn.name})
			made.id, made.token = res.GetInfo().GetTokenId(), res.GetToken()
			return err
		})
		if err != nil || !tn.token.CompareAndSwap(old, made) {
			return
		}
		old.revoked.Store(true)
		tn.revoked.Store(old.id, old)
		starts := w.starts.Load()
		err = w.call(tn, "RevokeToken", 0, func(ctx context.Context, c *client) error {
			_, err := c.auth.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: old.id})
			return err
		})
		if err != nil {
			return
		}
		time.Sleep(1100 * time.Millisecond)
		if l := w.now.Load(); l != nil && starts == w.starts.Load() {
			w.checkRevoked(l, tn, peers, old)
		}
	})
}

// checkRevoked checks that a credential that was revoked more than a second ago is good for
// nothing.
func (w *world) checkRevoked(l *life, tn *tenant, peers []*peer, old *credential) {
	for _, p := range peers {
		for _, line := range p.allLines() {
			if line.with == old && line.slow == 0 && !line.hasEnded() {
				w.problem("X3: %s: a stream of %s has not ended, although its credential was revoked 1.1 s ago", tn.name, p.name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := l.clients[tn.name].admin.GetStatus(metadata.AppendToOutgoingContext(ctx, "authorization",
		"Bearer "+old.token), &lessorv1.GetStatusRequest{})
	if code := status.Code(err); code != codes.Unauthenticated && code != codes.Unavailable && code != codes.Canceled && code != codes.ResourceExhausted {
		w.problem("X3: %s: GetStatus with a revoked credential: %v", tn.name, err)
	}
	w.count("call with a revoked credential", status.Code(err).String())
}
