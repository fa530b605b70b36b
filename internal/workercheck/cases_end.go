package workercheck

import (
	"syscall"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func drain(r *rig) error {
	a, err := r.begin(r.cfg.Long)
	if err != nil {
		return err
	}
	r.rec.note("(drain the worker)")
	err = r.eachWorker(func(w *lessorv1.Worker) error {
		_, err := r.workers.DrainWorker(r.ctx, &lessorv1.DrainWorkerRequest{WorkerId: w.GetWorkerId(), Reason: "checked"})
		return err
	})
	if err != nil {
		return err
	}
	next, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	if _, err := r.committedFirst(a.task); err != nil {
		return err
	}
	if err := r.pause(settle); err != nil {
		return err
	}
	if err := r.untouched(next, "it was drained"); err != nil {
		return err
	}
	err = r.await("it was drained and has nothing left to do: it did not say goodbye", func() bool { return r.rec.streams == 0 })
	if r.worker.ended() != "" {
		return nil
	}
	return err
}

func termIdle(r *rig) error {
	r.launch()
	if err := r.worksOn(); err != nil {
		return err
	}
	r.worker.signal(syscall.SIGTERM)
	return r.exits()
}

func termBusy(r *rig) error { return r.termWhile(func() {}) }

func termCut(r *rig) error { return r.termWhile(r.cut) }

// termWhile sends SIGTERM to the worker while it executes a task, and then does something.
func (r *rig) termWhile(then func()) error {
	a, err := r.begin(r.cfg.Long, lasting)
	if err != nil {
		return err
	}
	r.worker.signal(syscall.SIGTERM)
	if err := r.pause(crossing); err != nil {
		return err
	}
	then()
	next, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	if err := r.exits(); err != nil {
		return err
	}
	if err := r.untouched(next, "SIGTERM"); err != nil {
		return err
	}
	t, err := r.state(a.task)
	if err != nil {
		return err
	}
	switch t.GetState() {
	case lessorv1.TaskState_TASK_STATE_LEASED, lessorv1.TaskState_TASK_STATE_RUNNING:
		return wrong("it ended (%v) without a word about %s, which nobody else can have before the lease runs out", r.worker.state, a.task)
	}
	return nil
}
