package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Bounds of AwaitTasks.
var (
	mostAwaited = 100_000 // tasks of a stream
	// maxAwaitedBytes is for a task that is sent whole: with maxPageBytes it bounds an answer well
	// below what clients accept.
	maxAwaitedBytes = 1 << 20
)

// AwaitTasks tells the ends of the tasks that a client adds. One goroutine has all of the stream
// but its reading: it takes a request only when the answers to the one before are sent, so a client
// that does not read them adds nothing. Of the tasks it keeps the ids; what to send it reads from
// the store when the client takes it. The engine never waits for it.
func (s *taskService) AwaitTasks(
	stream grpc.BidiStreamingServer[lessorv1.AwaitTasksRequest, lessorv1.AwaitTasksResponse],
) error {
	if err := stream.SendHeader(nil); err != nil { // see SubmitStream
		return err
	}
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	a := &awaiter{taskService: s, ctx: ctx, send: stream.SendMsg, who: gate.Identify(ctx), ends: s.Engine.Ends()}
	defer a.close()
	requests, read := make(chan *lessorv1.AwaitTasksRequest), make(chan error, 1)
	go func() { read <- s.recovered(ctx, func() error { return a.readAll(stream, requests) }) }()
	return refusal.Status(a.run(requests, read))
}

// awaiter serves one AwaitTasks.
type awaiter struct {
	*taskService
	ctx      context.Context //nolint:containedctx // of the call; an awaiter serves only one call
	send     func(any) error
	who      gate.Identity
	ends     *engine.Ends // has all tasks that are waited for
	counted  int          // how many of them count in the quota: all, except while a request is taken or an answer made
	requests uint64       // taken so far
}

// readAll reads requests until the client closes its side of the stream. It refuses those that are
// too large before it waits for the one before.
func (a *awaiter) readAll(
	stream grpc.BidiStreamingServer[lessorv1.AwaitTasksRequest, lessorv1.AwaitTasksResponse],
	requests chan<- *lessorv1.AwaitTasksRequest,
) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		f := a.fields()
		f.Err = convert.UnknownItself(req)
		a.check(f, "add", req.GetAdd())
		a.check(f, "forget", req.GetForget())
		if f.Err != nil {
			return f.Err
		}
		select {
		case requests <- req:
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		}
	}
}

// run serves the stream until it ends, or until the ends of all tasks have been reported after the
// client has closed its side.
func (a *awaiter) run(requests <-chan *lessorv1.AwaitTasksRequest, read <-chan error) error {
	var err error
	for closed := false; err == nil && (!closed || a.ends.Len() > 0); {
		select {
		case req := <-requests:
			a.requests++
			err = a.take(req)
		case <-a.ends.More():
			err = a.tell(a.ends.Take())
		case err = <-read:
			if closed = errors.Is(err, io.EOF); closed {
				read, err = nil, nil
			}
		case <-a.ends.Stopped():
			err = engine.ErrStopped
		case <-a.ctx.Done():
			err = context.Cause(a.ctx)
		}
	}
	return err
}

func (a *awaiter) close() {
	a.ends.Close()
	a.Quotas.Leave(a.who.Caller(), quota.Waits, a.counted)
}

// take does what a request asks for.
func (a *awaiter) take(req *lessorv1.AwaitTasksRequest) error {
	for _, sent := range req.GetForget() {
		if id, ok := lease.ParseTaskID(sent); ok && a.ends.Has(id) {
			a.ends.Forget(id)
		}
	}
	a.leave()
	return a.add(req.GetAdd())
}

// check checks a list of ids as a whole. What is wrong with a single id is answered for that alone,
// unless the id is too long to be sent back. Clients that share the stream between callers do not
// know the limit that an operator set, so a lower one does not end it.
func (a *awaiter) check(f *convert.Fields, field string, ids []string) {
	f.Count(field, len(ids), a.Limits.MaxFrameItems())
	for i, id := range ids {
		if len(id) > max(a.Limits.ID, lease.DefaultLimits().ID) {
			f.ID(fmt.Sprintf("%s[%d]", field, i), id)
			return
		}
	}
}

// add begins to wait for tasks. It listens before it looks, so that it misses no end.
func (a *awaiter) add(sent []string) error {
	var ids []lease.TaskID
	var bad []*lessorv1.AwaitedTask
	for _, s := range sent {
		f := a.fields()
		switch id, known := f.TaskID(s); {
		case f.Err != nil:
			bad = append(bad, refused(s, f.Err))
		case !known:
			bad = append(bad, refused(s, lease.ErrNotFound))
		case !a.ends.Has(id):
			a.ends.Listen(id)
			ids = append(ids, id)
		}
	}
	if err := a.refuseAll(bad); err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	if err := a.Quotas.Spend(a.who.Caller(), quota.Calls, len(ids)); err != nil {
		return a.refuse(ids, err)
	}
	ids, err := a.answer(ids)
	if err != nil {
		return err
	}
	return a.keep(ids)
}

// keep counts the added ids that have not ended against the quota, as far as there is room, and
// refuses the others.
func (a *awaiter) keep(ids []lease.TaskID) error {
	room := max(mostAwaited-a.counted, 0)
	var err error
	if len(ids) > room {
		err = &quota.Error{Limit: quota.Waits, Of: "stream", Most: fmt.Sprint(mostAwaited), Wait: time.Second}
	}
	n, full := a.Quotas.EnterSome(a.who.Caller(), quota.Waits, min(len(ids), room))
	a.counted += n
	if full != nil {
		err = full
	}
	return a.refuse(ids[n:], err)
}

// leave takes out of the quota what is not waited for any more.
func (a *awaiter) leave() {
	if n := a.counted - a.ends.Len(); n > 0 {
		a.Quotas.Leave(a.who.Caller(), quota.Waits, n)
		a.counted -= n
	}
}

// tell answers those tasks that the engine says have ended. One may have been retried since; then
// it is waited for again.
func (a *awaiter) tell(ids []lease.TaskID) error {
	left, err := a.answer(ids)
	if err != nil || len(left) == 0 {
		a.leave()
		return err
	}
	for _, id := range left {
		a.ends.Listen(id)
	}
	_, err = a.answer(left) // it may have ended again before the Listen
	a.leave()
	return err
}

// answer answers those of the tasks that have ended or are not there, and forgets them. It returns
// the others.
func (a *awaiter) answer(ids []lease.TaskID) (left []lease.TaskID, err error) {
	for len(ids) > 0 {
		place := sendlimit.OfStream(a.ctx)
		if err := place.Take(a.ctx); err != nil {
			return nil, err
		}
		all, others, looked, err := a.look(ids)
		if err != nil {
			place.Free()
			return nil, err
		}
		left, ids = append(left, others...), ids[looked:]
		if err := a.sendPage(all, place); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// look reads the first of the tasks, until they fill a page: looked is how many. It forgets those
// that have ended or are not there, and returns the others.
func (a *awaiter) look(
	ids []lease.TaskID,
) (page []*lessorv1.AwaitedTask, others []lease.TaskID, looked int, err error) {
	err = a.longView(func(r store.Reader) error {
		for bytes := 0; looked < len(ids) && bytes < maxPageBytes; looked++ {
			m := a.lookAt(r, ids[looked])
			if m == nil {
				others = append(others, ids[looked])
				continue
			}
			a.ends.Forget(ids[looked])
			page = append(page, m)
			bytes += wire.Size(m)
		}
		return nil
	})
	return page, others, looked, err
}

// lookAt returns the answer about a task; nil if it has not ended. A damaged record is an answer
// about its task, not the end of the stream for all.
func (a *awaiter) lookAt(r store.Reader, id lease.TaskID) *lessorv1.AwaitedTask {
	t, err := readTask(r, a.who.Tenant, id)
	if err == nil && !t.State().Final() {
		return nil
	}
	var task *lessorv1.Task
	if err == nil {
		task = convert.TaskProto(a.Engine.Now(), t)
		err = addDetails(task, r, t)
	}
	if err != nil {
		if !errors.Is(err, lease.ErrNotFound) {
			a.Logger.ErrorContext(a.ctx, "read of the store failed", "error", err)
		}
		return refused(id.String(), err)
	}
	m := &lessorv1.AwaitedTask{TaskId: id.String(), State: task.GetState()}
	if wire.Size(task) <= maxAwaitedBytes {
		m.Task = task
	}
	return m
}

// refuse forgets tasks, and sends an error for each.
func (a *awaiter) refuse(ids []lease.TaskID, err error) error {
	all := make([]*lessorv1.AwaitedTask, len(ids))
	for i, id := range ids {
		a.ends.Forget(id)
		all[i] = refused(id.String(), err)
	}
	return a.refuseAll(all)
}

func (a *awaiter) refuseAll(all []*lessorv1.AwaitedTask) error {
	place := sendlimit.OfStream(a.ctx)
	if err := place.Take(a.ctx); err != nil {
		return err
	}
	return a.sendPage(all, place)
}

func refused(id string, err error) *lessorv1.AwaitedTask {
	return &lessorv1.AwaitedTask{TaskId: id, Error: refusal.AwaitError(err)}
}

// sendPage sends answers, unless there are none. The place is free when gRPC has sent them.
func (a *awaiter) sendPage(all []*lessorv1.AwaitedTask, place *sendlimit.Place) error {
	if len(all) == 0 {
		place.Free()
		return nil
	}
	return a.send(place.Answer(&lessorv1.AwaitTasksResponse{Tasks: all, Requests: a.requests}))
}
