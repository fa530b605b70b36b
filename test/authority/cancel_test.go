//go:build faults

package authority

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// TestCancelRacesComplete: a task is cancelled and completed at the same time. It ends as one of the two, and all answers fit that (T7, A5): if the
// cancel comes before the worker's Start, it wins, otherwise the Complete.
func TestCancelRacesComplete(t *testing.T) {
	const races, atOnce = 1000, 8
	r := newRig(t)
	r.c.Start()
	r.submit(races, spec("race", time.Minute))
	var mu sync.Mutex
	ends := map[lessorv1.TaskState]int{}
	var busy sync.WaitGroup
	for range atOnce {
		busy.Go(func() {
			for range races / atOnce {
				end, err := r.race()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				ends[end]++
				mu.Unlock()
			}
		})
	}
	busy.Wait()
	t.Logf("%d races: %v", races, ends)
	if fewest := min(ends[lessorv1.TaskState_TASK_STATE_CANCELLED], ends[lessorv1.TaskState_TASK_STATE_COMPLETED]); fewest < races/10 {
		t.Errorf("one of the two won %d times only: that was no race", fewest)
	}
}

// raced holds the answers to both sides.
type raced struct {
	start     *lessorv1.StartResponse
	complete  *lessorv1.CompleteResponse
	cancel    *lessorv1.CancelTaskResponse
	cancelled error
}

func (r *rig) race() (lessorv1.TaskState, error) {
	a, err := r.lease("race")
	if err != nil {
		return 0, err
	}
	var told raced
	var startErr, completeErr error
	var both sync.WaitGroup
	both.Go(func() {
		moment()
		told.start, startErr = r.start(a)
		told.complete, completeErr = r.complete(a)
	})
	both.Go(func() {
		moment()
		told.cancel, told.cancelled = r.tasks().CancelTask(r.ctx, &lessorv1.CancelTaskRequest{TaskId: a.GetTask().GetTaskId()})
	})
	both.Wait()
	task, err := r.get(a.GetTask().GetTaskId())
	if err := errors.Join(startErr, completeErr, err); err != nil {
		return 0, err
	}
	return task.GetState(), told.fits(task)
}

// moment waits up to 4 ms, so that either side may be first.
func moment() { time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond) }

// fits compares the answers with the final state.
func (told *raced) fits(task *lessorv1.Task) error {
	completions := count(task, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED)
	refused := status.Code(told.cancelled) == codes.FailedPrecondition
	asked := told.cancelled == nil && told.cancel.GetTask().GetState() == lessorv1.TaskState_TASK_STATE_CANCELLING
	var ok bool
	switch task.GetState() {
	case lessorv1.TaskState_TASK_STATE_COMPLETED:
		ok = completions == 1 && (refused || asked) &&
			told.start.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED && told.complete.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED
	case lessorv1.TaskState_TASK_STATE_CANCELLED:
		ok = completions == 0 && asked &&
			told.start.GetReason() == lessorv1.Reason_REASON_TASK_CANCELLED && told.complete.GetReason() == lessorv1.Reason_REASON_TASK_CANCELLED
	}
	if !ok {
		return fmt.Errorf("T7: the task is %v; start was told %v, complete %v, cancel %v, %w; history: %v", task.GetState(),
			told.start, told.complete, told.cancel.GetTask().GetState(), told.cancelled, task.GetHistory())
	}
	return nil
}
