//go:build faults

package crash

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// TestKillAtCommit: a coordinator dies right before a commit, or right after it but before anybody
// is told. The next start has everything that was acknowledged. The commits are those of a start, a
// submit, a grant, the end of a lease by report or expiry, and a delete (A6, A9, A10).
func TestKillAtCommit(t *testing.T) {
	t.Parallel()
	hits := 0
	for _, when := range []string{"before", "after"} {
		for _, what := range []string{"put meta 1", "put meta 2", "put spec 2", "put lease 2", "delete lease 1", "put output 2", "put timer 1", "delete task 1"} {
			t.Run(when+" "+what, func(t *testing.T) {
				w := &walker{t: t, c: harness.NewCoordinator(t, t.TempDir())}
				w.c.Env = []string{fmt.Sprintf("LESSOR_FAULT_KILL=%s %s", when, what)}
				if w.c.Try() {
					w.runUntilKilled()
				}
				if !w.hasEnded() {
					t.Fatal("the coordinator was not killed: it made no such commit")
				}
				if p := w.c.Process(); p.Wait() != -1 || !p.Killed() {
					t.Fatalf("the coordinator ended with exit code %d, want that SIGKILL ended it\n%s", p.Wait(), p.Stderr())
				}
				hits++
				w.c.Env = nil
				w.checkAfterRestart()
			})
		}
	}
	t.Logf("%d kills", hits)
}

// runUntilKilled takes tasks through all kinds of commits, until the process dies.
func (w *walker) runUntilKilled() {
	w.expire()
	for len(w.ids) < 20 && !w.hasEnded() {
		w.runTask()
		w.remove()
	}
}

// expire leases a task and waits until the lease has expired.
func (w *walker) expire() {
	tasks, workers := lessorv1.NewTaskServiceClient(w.c.Conn()), lessorv1.NewWorkerServiceClient(w.c.Conn())
	made, err := tasks.SubmitTask(w.t.Context(), &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: shortQueue, HeartbeatTimeout: durationpb.New(shortLease)},
	})
	if err != nil {
		return
	}
	w.ids = append(w.ids, made.GetTask().GetTaskId())
	if _, err := workers.Lease(w.t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{shortQueue}}); err != nil {
		return
	}
	for ready := lessorv1.TaskState_TASK_STATE_READY; ; time.Sleep(50 * time.Millisecond) {
		got, err := tasks.GetTask(w.t.Context(), &lessorv1.GetTaskRequest{TaskId: made.GetTask().GetTaskId()})
		if err != nil || got.GetTask().GetState() == ready {
			return
		}
	}
}

// remove submits a task and deletes it; checkAfterRestart does not look for it.
func (w *walker) remove() {
	tasks := lessorv1.NewTaskServiceClient(w.c.Conn())
	made, err := tasks.SubmitTask(w.t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: shortQueue}})
	if err == nil {
		_, _ = tasks.DeleteTask(w.t.Context(), &lessorv1.DeleteTaskRequest{TaskId: made.GetTask().GetTaskId(), Force: true})
	}
}
