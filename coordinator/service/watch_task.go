package service

import (
	"context"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// taskWatcher watches one task until it is final.
type taskWatcher struct {
	*shared
	*eventSender
	tenant string
	id     lease.TaskID
}

func (s *taskService) newTaskWatcher(
	ctx context.Context, f *convert.Fields, req *lessorv1.WatchTaskRequest, to *eventSender,
) (watcher, engine.Watching, error) {
	tenant := gate.Identify(ctx).Tenant
	if req.GetTaskId() == "" {
		f.Fail("task_id", "is empty, and so is run_id; set exactly one of them")
	}
	id, err := parseTaskID(ctx, f, req.GetTaskId())
	if err == nil && req.GetAfterSequence() != 0 {
		// before resumable: a task of another tenant is refused just like a missing one (X2)
		err = s.view(func(r store.Reader) error {
			_, err := readTask(r, tenant, id)
			return err
		})
	}
	if err == nil {
		err = s.resumable(ctx, id.Space, req)
	}
	return &taskWatcher{shared: s.shared, eventSender: to, tenant: tenant, id: id}, engine.Watching{Task: id}, err
}

func (w *taskWatcher) catchUp() error {
	var t *lease.Task
	err := w.view(func(r store.Reader) (err error) {
		t, err = readTask(r, w.tenant, w.id)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.version(t); err != nil {
		return err
	}
	if t.State().Final() { // version ends the watch only if after_sequence is not above the last event of the task
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
		return w.feed(n, n.Task.State())
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

// skipped leaves the durable events to the next news: each has the whole task, and the last one, of
// the final state or the deletion, is never dropped. If it called catchUp and the task was final by
// now, the watch would end before the news that waits, and nobody would count it.
func (w *taskWatcher) skipped(n, _ int) error { return w.missed(w.id.String(), n, 0) }

// version sends those events of a version of the task that were not sent yet. It sends none if the
// version is older than the last one sent.
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
