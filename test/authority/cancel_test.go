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

// TestCancelRacesComplete: a task is cancelled and completed at the same time. It ends as one of
// the two, and all answers fit that (T7, A5): if the cancel comes before the worker's Start, it
// wins, otherwise the Complete.
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
		t.Errorf("one side won only %d of %d races, want each side at least %d times", fewest, races, races/10)
	}
}

// answers holds the answers to both sides.
type answers struct {
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
	var got answers
	var startErr, completeErr error
	var both sync.WaitGroup
	both.Go(func() {
		sleepRandomly()
		got.start, startErr = r.start(a)
		got.complete, completeErr = r.complete(a)
	})
	both.Go(func() {
		sleepRandomly()
		got.cancel, got.cancelled = r.tasks().CancelTask(r.ctx, &lessorv1.CancelTaskRequest{TaskId: a.GetTask().GetTaskId()})
	})
	both.Wait()
	task, err := r.get(a.GetTask().GetTaskId())
	if err := errors.Join(startErr, completeErr, err); err != nil {
		return 0, err
	}
	return task.GetState(), got.checkAgainst(task)
}

// sleepRandomly waits up to 4 ms, so that either side may be first.
func sleepRandomly() { time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond) }

// checkAgainst compares the answers with the final state.
func (got *answers) checkAgainst(task *lessorv1.Task) error {
	completions := count(task, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED)
	refused := status.Code(got.cancelled) == codes.FailedPrecondition
	accepted := got.cancelled == nil && got.cancel.GetTask().GetState() == lessorv1.TaskState_TASK_STATE_CANCELLING
	var ok bool
	switch task.GetState() {
	case lessorv1.TaskState_TASK_STATE_COMPLETED:
		ok = completions == 1 && (refused || accepted) &&
			got.start.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED &&
			got.complete.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED
	case lessorv1.TaskState_TASK_STATE_CANCELLED:
		ok = completions == 0 && accepted &&
			got.start.GetReason() == lessorv1.Reason_REASON_TASK_CANCELLED &&
			got.complete.GetReason() == lessorv1.Reason_REASON_TASK_CANCELLED
	}
	if !ok {
		return fmt.Errorf("T7: the answers contradict the state %v of the task: Start %v, Complete %v, CancelTask %v, %w; history: %v",
			task.GetState(), got.start, got.complete, got.cancel.GetTask().GetState(), got.cancelled, task.GetHistory())
	}
	return nil
}
