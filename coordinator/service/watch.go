package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// WatchTask streams the events of a task or run (S5). It first subscribes to the engine's news,
// then sends the events in the store, then the news. An event that is in both is sent once: its
// second copy has a sequence number that was sent already. Send blocks while the client is slow.
// The engine never waits for a watch: a watch that is too slow misses news, and is told how many.
func (s *taskService) WatchTask(
	req *lessorv1.WatchTaskRequest, stream grpc.ServerStreamingServer[lessorv1.WatchTaskResponse],
) error {
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	to := &eventSender{send: stream.Send, sequence: req.GetAfterSequence()}
	w, what, err := s.newWatcher(ctx, req, to)
	if err != nil {
		return refusal.Status(err)
	}
	sub := s.Engine.Watch(what)
	defer sub.Close()
	if err := stream.SendHeader(nil); err != nil { // now the client knows that the watch has begun: see Deleted
		return refusal.Status(err)
	}
	return refusal.Status(watch(ctx, w, sub))
}

// watcher sends the events of one watch.
type watcher interface {
	// catchUp sends the events in the store that were not sent yet. A watch begins with it.
	catchUp() error
	// tell sends what the news has and was not sent yet.
	tell(n *engine.News) error
	// skipped tells the client that n items of news were dropped because the client was slow. Of
	// these, gone were about deleted tasks. It also sends the durable events of the dropped items,
	// unless the next item has them.
	skipped(n, gone int) error
}

// errWatchOver ends a watch whose task is final or deleted, after the last event was sent.
var errWatchOver = errors.New("the watch is over")

func watch(ctx context.Context, w watcher, sub *engine.Subscription) error {
	err := w.catchUp()
	for err == nil {
		n, missed, ended := sub.Next(ctx)
		if ended != nil {
			return ended
		}
		err = passOn(w, n, missed)
	}
	if errors.Is(err, errWatchOver) {
		return nil
	}
	return err
}

func passOn(w watcher, n *engine.News, missed engine.Missed) error {
	if missed.All > 0 {
		if err := w.skipped(missed.All, missed.Gone); err != nil {
			return err
		}
	}
	return w.tell(n)
}

func (s *taskService) newWatcher(
	ctx context.Context, req *lessorv1.WatchTaskRequest, to *eventSender,
) (watcher, engine.Watching, error) {
	f := s.fields()
	f.Err = convert.Unknown("", req)
	if req.GetRunId() == "" {
		return s.newTaskWatcher(ctx, f, req, to)
	}
	return s.newRunWatcher(ctx, f, req, to)
}

// resumable refuses an after_sequence that no event of this store has. It may come from another
// coordinator, or from an event that was undone when the store was restored from a backup. If the
// watch resumed there, it would leave out new events as already sent, or the client would keep
// believing the undone events. space is 0 before the first task of the workspace.
func (s *taskService) resumable(ctx context.Context, space uint32, req *lessorv1.WatchTaskRequest) error {
	after := req.GetAfterSequence()
	if after == 0 {
		return nil
	}
	var all engine.Sequences
	var err error
	if space != 0 {
		all, err = s.Engine.Sequences(ctx, gate.Identify(ctx).Tenant, space)
	}
	switch {
	case err != nil:
		return err
	case after > all.Last():
		return &lease.FieldError{
			Field:   "after_sequence",
			Problem: fmt.Sprintf("is %d; the last one of the workspace is %d", after, all.Last()),
		}
	case all.Lost(after) && all.Lost(after+2):
		// the two before the first event since the restore come from this store: see runWatcher
		return &lease.FieldError{
			Field:   "after_sequence",
			Problem: fmt.Sprintf("is %d, which no event has: the store was restored from a backup that is older than that event", after),
		}
	}
	return nil
}
