//go:build faults

package authority

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// With the variable workerAddr the test binary runs as a worker, of the coordinator at that
// address. It does not use the SDK, which would notice that its lease is lost and send no report.
const workerAddr = "LESSOR_AUTHORITY_WORKER"

const (
	pausedQueue = "paused"
	pausedTTL   = 3 * time.Second // longer than a busy machine delays the worker's heartbeats
)

// TestPausedWorker: a worker process stands still for longer than its lease, and then goes on. Its
// heartbeat and its Complete are both answered SUPERSEDED, and the result of the second worker
// stays (A4, V9).
func TestPausedWorker(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRig(t)
	r.c.Start()
	r.submit(1, spec(pausedQueue, pausedTTL))
	printed := make(chan string, 1000)
	p := harness.Start(t, harness.Command{
		Path: harness.Self(t), Env: []string{workerAddr + "=" + r.c.Addr()},
		Stdout: harness.Lines(func(line string) { printed <- line }),
	})
	for range 3 { // until the worker has renewed its lease a few times
		select {
		case line := <-printed:
			if line != "heartbeat VERDICT_COMMITTED REASON_NONE" {
				t.Fatalf("before its pause the worker printed %q, want a heartbeat that was COMMITTED", line)
			}
		case <-p.Ended():
			t.Fatalf("the worker ended: %s", p.Stderr())
		}
	}
	p.Pause()
	a, err := r.lease(pausedQueue)
	must(r, a, err)
	m, err := r.complete(a)
	if must(r, m, err).GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Fatalf("Complete of the second worker = %v, want COMMITTED", m)
	}
	p.Resume()
	if code := p.Wait(); code != 0 {
		t.Fatalf("the worker ended with exit code %d: %s", code, p.Stderr())
	}
	close(printed)
	r.checkSuperseded(printed)
	task, err := r.get(a.GetTask().GetTaskId())
	if must(r, task, err).GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || len(task.GetOutput()) > 0 || task.GetAttempt() != 2 {
		t.Errorf("A5: the task is %v, want COMPLETED with the result of the second worker, attempt 2", task)
	}
}

// checkSuperseded checks that the last heartbeat and the Complete of the worker were refused as
// SUPERSEDED.
func (r *rig) checkSuperseded(printed <-chan string) {
	r.t.Helper()
	var last [2]string
	for line := range printed {
		last[0], last[1] = last[1], line
	}
	const refused = " VERDICT_CANCELLED REASON_SUPERSEDED"
	if last != [2]string{"heartbeat" + refused, "complete" + refused} {
		r.t.Errorf("V9: after its pause the worker printed %q, want that its heartbeat and its Complete were SUPERSEDED", last)
	}
}

// beWorker sends heartbeats until should_cancel tells it to stop, and then completes the task all
// the same.
func beWorker(addr string) int {
	if err := ignoreLostLease(context.Background(), addr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func ignoreLostLease(ctx context.Context, addr string) error {
	conn, err := worker.Dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := lessorv1.NewWorkerServiceClient(conn)
	l, err := c.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "paused", Queues: []string{pausedQueue}, MaxTasks: 1})
	if err != nil || len(l.GetAssignments()) == 0 {
		return fmt.Errorf("nothing leased: %w", err)
	}
	id, held := l.GetAssignments()[0].GetTask().GetTaskId(), l.GetAssignments()[0].GetLeaseId()
	for stop := false; !stop; time.Sleep(pausedTTL / 20) {
		m, err := c.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: held})
		if err != nil {
			return err
		}
		fmt.Println("heartbeat", m.GetVerdict(), m.GetReason())
		stop = m.GetShouldCancel()
	}
	m, err := c.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: held, Output: []byte("late")})
	fmt.Println("complete", m.GetVerdict(), m.GetReason())
	return err
}
