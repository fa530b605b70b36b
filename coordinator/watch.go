package coordinator

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
	"github.com/lessor-dev/lessor/store"
)

// WatchTask streams the events of a task or run (S5). It subscribes first, then sends what the store holds, then the news. An event that is in both
// has a sequence that was sent already, and is left out. Send blocks while the reader is slow; the engine never waits for it, but counts what did not
// fit.
func (s *taskService) WatchTask(req *lessorv1.WatchTaskRequest, stream grpc.ServerStreamingServer[lessorv1.WatchTaskResponse]) error {
	ctx, cancel := s.untilStop(stream.Context())
	defer cancel()
	to := &eventSender{send: stream.Send, sequence: req.GetAfterSequence()}
	w, what, err := s.newWatcher(ctx, req, to)
	if err != nil {
		return refusal.Status(err)
	}
	sub := s.engine.Watch(what)
	defer sub.Close()
	return refusal.Status(watch(ctx, w, sub.C))
}

// watcher sends the events of one watch.
type watcher interface {
	// catchUp sends what the store holds and was not sent yet.
	catchUp() error
	// tell sends what the news has and was not sent yet.
	tell(n *engine.News) error
	// skipped sends that n news were lost because the reader was slow, gone of them about deleted tasks; catchUp is called next.
	skipped(n, gone int) error
}

// errWatchOver ends a watch: its task is final or gone, and the reader was told.
var errWatchOver = errors.New("the watch is over")

func watch(ctx context.Context, w watcher, news <-chan engine.News) error {
	err := w.catchUp()
	for err == nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case n, ok := <-news:
			if !ok {
				return engine.ErrStopped
			}
			err = passOn(w, &n)
		}
	}
	if errors.Is(err, errWatchOver) {
		return nil
	}
	return err
}

func passOn(w watcher, n *engine.News) error {
	if n.Skipped > 0 {
		if err := w.skipped(n.Skipped, n.Gone); err != nil {
			return err
		}
		if err := w.catchUp(); err != nil {
			return err
		}
	}
	return w.tell(n)
}

func (s *taskService) newWatcher(ctx context.Context, req *lessorv1.WatchTaskRequest, to *eventSender) (watcher, engine.Watching, error) {
	f := s.fields()
	f.Err = convert.Unknown("", req)
	tenant := gate.Identify(ctx).Tenant
	if req.GetRunId() == "" {
		id, err := parseTaskID(ctx, f, req.GetTaskId())
		if err == nil && req.GetAfterSequence() != 0 {
			err = s.view(func(r store.Reader) error { // a missing task is refused first, just like that of another tenant (X2)
				_, err := readTask(r, tenant, id)
				return err
			})
		}
		if err == nil {
			err = s.resumable(ctx, id.Space, req)
		}
		return &taskWatcher{edge: s.edge, eventSender: to, tenant: tenant, id: id}, engine.Watching{Task: id}, err
	}
	if req.GetTaskId() != "" {
		f.Fail("run_id", "is set together with task_id; set only one of them")
	}
	run := f.ID("run_id", req.GetRunId())
	space := engine.Space{Tenant: tenant, Workspace: f.Workspace("workspace_id", req.GetWorkspaceId())}
	if f.Err != nil {
		return nil, engine.Watching{}, f.Err
	}
	number, ok := s.engine.SpaceNumber(space)
	if !ok {
		return nil, engine.Watching{}, lease.ErrNotFound
	}
	if err := s.resumable(ctx, number, req); err != nil {
		return nil, engine.Watching{}, err
	}
	logFields(ctx, "id", run)
	w := &runWatcher{edge: s.edge, eventSender: to, space: number, run: run, told: req.GetAfterSequence()}
	return w, engine.Watching{Space: number, Run: run}, nil
}

// resumable refuses a sequence that no event has had: it is from another coordinator, or from a future that a restore has lost. The next events would be
// taken for ones that were sent already, or what the restore has undone for what is.
func (s *taskService) resumable(ctx context.Context, space uint32, req *lessorv1.WatchTaskRequest) error {
	after := req.GetAfterSequence()
	if after == 0 {
		return nil
	}
	all, err := s.engine.Sequences(ctx, gate.Identify(ctx).Tenant, space)
	switch {
	case err != nil:
		return err
	case after > all.Last():
		return &lease.FieldError{Field: "after_sequence", Problem: fmt.Sprintf("is %d; the last one of the workspace is %d", after, all.Last())}
	case all.Lost(after):
		return &lease.FieldError{Field: "after_sequence", Problem: fmt.Sprintf("is %d, which no event has: the store was restored from a backup of before it", after)}
	}
	return nil
}

// taskWatcher watches one task until it is final.
type taskWatcher struct {
	*edge
	*eventSender
	tenant string
	id     lease.TaskID
	found  bool
}

func (w *taskWatcher) catchUp() error {
	var t *lease.Task
	err := w.view(func(r store.Reader) (err error) {
		t, err = readTask(r, w.tenant, w.id)
		return err
	})
	if errors.Is(err, lease.ErrNotFound) && w.found { // deleted between two looks
		return w.gone()
	}
	if err != nil {
		return err
	}
	w.found = true
	if err := w.version(t); err != nil {
		return err
	}
	if t.State().Final() { // whatever sequence the caller resumes after
		return errWatchOver
	}
	return nil
}

func (w *taskWatcher) tell(n *engine.News) error {
	switch {
	case n.Feed != nil:
		if err := w.version(n.Task); err != nil {
			return err
		}
		return w.feed(w.id, n)
	case n.Task == nil:
		return w.gone()
	}
	return w.version(n.Task)
}

func (w *taskWatcher) gone() error {
	if err := w.deleted(w.id); err != nil {
		return err
	}
	return errWatchOver
}

// skipped leaves it to catchUp to find that the task is gone.
func (w *taskWatcher) skipped(n, _ int) error { return w.missed(w.id.String(), n, 0) }

// version sends what is new in a version of the task. A version may be older than what was sent; then nothing is new.
func (w *taskWatcher) version(t *lease.Task) error {
	for _, e := range unsentEvents(t, w.sequence) {
		w.sequence = e.seq
		if err := w.durable(&e); err != nil {
			return err
		}
	}
	if t.State().Final() && t.LastSeq() >= w.sequence {
		return errWatchOver
	}
	return nil
}
