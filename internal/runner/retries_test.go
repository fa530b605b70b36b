package runner

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// fail plays the worker that fails the task of a line, which is to run again after a second.
func (f *fakeCoordinator) fail(line int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	task, at := f.tasks[line-1], time.Now()
	task.State, task.Attempt, task.Failures = lessorv1.TaskState_TASK_STATE_SCHEDULED, task.Attempt+1, task.Failures+1
	task.Error, task.RetryAt = &lessorv1.TaskError{Message: "exit status 1"}, timestamppb.New(at.Add(950*time.Millisecond))
	task.Spec.RetryPolicy.MaxAttempts = 5
	f.sendEvent(&lessorv1.WatchTaskResponse{TaskId: task.GetTaskId(), TaskState: task.GetState(), Event: &lessorv1.WatchTaskResponse_History{
		History: &lessorv1.HistoryEvent{
			Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, TaskState: task.GetState(),
			Attempt: task.GetAttempt(), At: timestamppb.New(at),
		},
	}})
}

// submitOther plays a command that submits a task of its own to the run.
func (f *fakeCoordinator) submitOther(runID string) (number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	number = len(f.tasks) + 1
	f.tasks = append(f.tasks, &lessorv1.Task{
		TaskId: fmt.Sprint("t", number),
		Spec:   &lessorv1.TaskSpec{RunId: runID, TaskKey: "1", RetryPolicy: &lessorv1.RetryPolicy{}},
	})
	return number
}

// Whoever looks on is told of attempts that are made again: of each while they are few, of some and
// how many others when they are many. Those of tasks that are no lines do not count.
func TestRetriesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeCoordinator()
		r := startRun(t, fake, t.TempDir(), 9, false)
		told := func() string {
			synctest.Wait()
			r.screen.mu.Lock() // nothing else orders this before a note that a ticker is the reason of
			defer r.screen.mu.Unlock()
			defer r.errs.Reset()
			return r.errs.String()
		}
		fake.fail(1)
		if got, want := told(), "line 1: \"a\": exit status 1 (attempt 1; 1 of 5 failures); again in 1s\n"; got != want {
			t.Errorf("after one failure it says %q, want %q", got, want)
		}
		time.Sleep(retryNoteInterval)
		want := []string{"", "line 2: ", "line 3: ", "line 4: ", "line 5: ", "line 6: ", "", "", ""}
		for i := 1; i < len(want); i++ {
			fake.fail(i + 1)
			if got := told(); !strings.HasPrefix(got, want[i]) || (got == "") != (want[i] == "") {
				t.Errorf("after many failures, that of line %d is told as %q, want %q", i+1, got, want[i])
			}
		}
		other := fake.submitOther(r.job.RunID())
		fake.fail(other)
		time.Sleep(retryNoteInterval)
		if got, want := told(), "other attempts that failed and are made again: 3\n"; got != want {
			t.Errorf("after that it says %q, want %q", got, want)
		}
		time.Sleep(retryNoteInterval)
		if got := told(); got != "" {
			t.Errorf("after no failure it says %q", got)
		}
		for range 2 * maxRetryNotes {
			fake.fail(other)
		}
		time.Sleep(retryNoteInterval)
		if got := told(); got != "" {
			t.Errorf("after failures of a task that is no line it says %q", got)
		}
		for line := range 9 {
			fake.end(line+1, completed)
		}
		r.finish("<a><b><c><d><e><f><g><h><i>")
	})
}
