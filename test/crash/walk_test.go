//go:build faults

package crash

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

var (
	steps = flag.Int("steps", 8, "up to which call of each kind the system fails at some, one after the other; far more than there are: all")
	gap   = flag.Int("gap", 3, "the most from one such call to the next, drawn by chance; 1: every call")
)

// lastMisses is how many runs in a row may survive the fault before the test takes it that there
// are no more such calls. A coordinator survives that the note about a durable commit is not
// written, which is every third write.
const lastMisses = 3

// TestWalk: one system call of the coordinator is its last one, or fails, also during the first
// start. Whichever it is, the next start has all that was acknowledged. A process whose store
// failed ends with the exit code for that (A6, A10).
func TestWalk(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{
		"pwrite64:signal=SIGKILL", "fdatasync:signal=SIGKILL", "ftruncate:signal=SIGKILL", "fsync:signal=SIGKILL", "linkat:signal=SIGKILL",
		"unlinkat:signal=SIGKILL", "pwrite64:error=ENOSPC", "pwrite64:error=EIO", "fdatasync:error=EIO", "fsync:error=EIO",
	} {
		t.Run(fault, func(t *testing.T) {
			hits, misses := 0, 0
			for n := 1; n <= *steps && misses < lastMisses; n += 1 + rand.IntN(*gap) {
				t.Logf("call %d", n)
				w := &walker{t: t, c: harness.NewCoordinator(t, t.TempDir())}
				if w.serveUntilFault(fmt.Sprintf("%s:when=%d", fault, n)) {
					hits, misses = hits+1, 0
				} else {
					misses++
				}
				w.checkAfterRestart()
			}
			t.Logf("%d processes ended by it", hits)
			if hits == 0 {
				t.Error("no process ended by it: the fault hit nothing")
			}
		})
	}
}

// walker takes tasks from submit to COMMITTED, one after the other, until the process ends.
type walker struct {
	t    *testing.T
	c    *harness.Coordinator
	ids  []string
	done []*lessorv1.CompleteRequest // that were COMMITTED
}

// serveUntilFault serves until the fault ends the process; it returns false if the fault did not.
func (w *walker) serveUntilFault(fault string) bool {
	w.t.Helper()
	w.c.Under = harness.Strace(w.t, fault)
	for w.c.Try(); !w.hasEnded(); {
		if len(w.ids) == 20 {
			w.c.Process().Stop() // strace counts the calls of each thread, so one of the last calls may still fail
			break
		}
		w.runTask()
	}
	p := w.c.Process()
	switch code := p.Wait(); {
	case code == 0:
		return false
	case p.Killed() == strings.Contains(fault, "SIGKILL") && (p.Killed() || code == 70 || code == 5 && len(w.ids) == 0):
	default:
		w.t.Errorf("%s: exit code %d, want SIGKILL, 70, or 5 before the first task\n%s", fault, code, p.Stderr())
	}
	return true
}

func (w *walker) hasEnded() bool {
	select {
	case <-w.c.Process().Ended():
		return true
	default:
		return false
	}
}

// runTask takes one task as far as possible.
func (w *walker) runTask() {
	ctx := w.t.Context()
	tasks, workers := lessorv1.NewTaskServiceClient(w.c.Conn()), lessorv1.NewWorkerServiceClient(w.c.Conn())
	made, err := tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", Payload: []byte("in")}})
	if err != nil {
		return
	}
	w.ids = append(w.ids, made.GetTask().GetTaskId())
	got, err := workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
	if err != nil || len(got.GetAssignments()) == 0 {
		return
	}
	a := got.GetAssignments()[0]
	report := &lessorv1.CompleteRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Output: []byte("out")}
	if res, err := workers.Complete(ctx, report); err == nil && res.GetVerdict() == committed {
		w.done = append(w.done, report)
	}
}

// checkAfterRestart starts again without a fault, and checks that everything that was acknowledged
// is there.
func (w *walker) checkAfterRestart() {
	w.t.Helper()
	w.c.Under = nil
	w.c.Start()
	tasks, workers := lessorv1.NewTaskServiceClient(w.c.Conn()), lessorv1.NewWorkerServiceClient(w.c.Conn())
	for _, id := range w.ids {
		if _, err := tasks.GetTask(w.t.Context(), &lessorv1.GetTaskRequest{TaskId: id}); err != nil {
			w.t.Errorf("A6: acknowledged task %s: GetTask = %v, want the task", id, err)
		}
	}
	for _, report := range w.done {
		if res, err := workers.Complete(w.t.Context(), report); err != nil || res.GetVerdict() != committed || !res.GetReplayed() {
			w.t.Errorf("A10: the repeated report on task %s: %v, error %v, want COMMITTED and replayed",
				report.GetTaskId(), res, err)
		}
	}
	w.c.Stop()
	w.c.Verify()
}
