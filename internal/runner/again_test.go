package runner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// retried are the states of the lines that are opened again.
var retried = []lessorv1.TaskState{failed, cancelled}

// retryRecorder is a coordinator that opens two lines with each call. The token of a page is the
// number of lines before it.
type retryRecorder struct {
	lessorv1.TaskServiceClient
	errors []error // with which the calls begin
	asked  []*lessorv1.BatchRetryTasksRequest
}

func (r *retryRecorder) BatchRetryTasks(
	_ context.Context, req *lessorv1.BatchRetryTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchRetryTasksResponse, error) {
	if len(r.errors) > 0 {
		err := r.errors[0]
		r.errors = r.errors[1:]
		return nil, err
	}
	r.asked = append(r.asked, &lessorv1.BatchRetryTasksRequest{Filter: req.GetFilter(), PageToken: req.GetPageToken()})
	next := map[string]string{"": "2", "2": "4"}[req.GetPageToken()]
	return &lessorv1.BatchRetryTasksResponse{Result: &lessorv1.BatchResult{Changed: 2, NextPageToken: next}}, nil
}

// All failed lines of the run are opened again, however many calls that takes, and even if the
// coordinator is away for a moment.
func TestRetryFailedOpensAllFailedLines(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "a\n", Options{Workspace: "w"}, false)
	synctest.Test(t, func(t *testing.T) {
		r := &retryRecorder{errors: []error{status.Error(codes.Unavailable, "away"), status.Error(codes.Unavailable, "away")}}
		if lines, left, err := j.RetryFailed(t.Context(), r); lines != 6 || left != 0 || err != nil || len(r.asked) != 3 {
			t.Errorf("%d lines in %d calls, %v; want 6 lines in 3 calls", lines, len(r.asked), err)
		}
		for _, req := range r.asked {
			f := req.GetFilter()
			if f.GetRunId() != j.RunID() || f.GetQueue() != j.RunID() || f.GetWorkspaceId() != "w" || !slices.Equal(f.GetStates(), retried) {
				t.Errorf("asked for %v, want the lines of this run that are FAILED or CANCELLED", f)
			}
		}
	})
}

func TestRetryFailedEndsIfItIsRefused(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "a\n", testOptions, false)
	denied := status.Error(codes.PermissionDenied, "not yours")
	if _, _, err := j.RetryFailed(t.Context(), &retryRecorder{errors: []error{denied}}); !errors.Is(err, denied) {
		t.Errorf("error %v, want %v", err, denied)
	}
}

// BatchRetryTasks opens the tasks that have failed or were cancelled, if the filter asks for them,
// as far as the quota of tasks has room for them.
func (f *fakeCoordinator) BatchRetryTasks(
	_ context.Context, req *lessorv1.BatchRetryTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchRetryTasksResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	result := &lessorv1.BatchResult{}
	for _, task := range f.tasks {
		if !slices.Contains(req.GetFilter().GetStates(), task.GetState()) {
			continue
		}
		if f.quota > 0 && f.open() >= f.quota {
			return nil, errNoRoom()
		}
		task.State = lessorv1.TaskState_TASK_STATE_READY
		result.Changed++
	}
	return &lessorv1.BatchRetryTasksResponse{Result: result}, f.count("retry all")
}

// RetryTask opens a task that has failed, if the quota of tasks has room for it.
func (f *fakeCoordinator) RetryTask(
	ctx context.Context, req *lessorv1.RetryTaskRequest, _ ...grpc.CallOption,
) (*lessorv1.RetryTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, err := f.find(req.GetTaskId())
	switch {
	case f.quota < 0: // the coordinator does not answer
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, err
	case !slices.Contains(retried, f.tasks[i].GetState()):
		return nil, status.Error(codes.FailedPrecondition, "it has not failed")
	case f.open() >= f.quota:
		return nil, errNoRoom()
	}
	f.tasks[i].State = lessorv1.TaskState_TASK_STATE_READY
	return &lessorv1.RetryTaskResponse{}, f.count("retry") // an error: the answer is lost
}

// X5: if the tenant's quota of tasks has no room for all failed lines, the others are opened as
// tasks end, however long that takes: each once, even if an answer is lost, and unless it is
// deleted. A line that fails again stays failed.
func TestRetryFailedAsTheQuotaHasRoom(t *testing.T) {
	t.Attr("rules", "X5")
	for _, keepOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake, dir := newFakeCoordinator(), t.TempDir()
			r := startRun(t, fake, dir, 6, keepOrder)
			for line := range 6 {
				fake.end(line+1, retried[line%2])
			}
			r.finish("")
			fake.quota = 2
			r = startRunAfter(t, fake, dir, 6, keepOrder, func(job *Job) {
				if _, left, err := job.RetryFailed(t.Context(), fake); left != 4 || err != nil {
					t.Errorf("%d lines are left, %v; want 4", left, err)
				}
				fake.end(1, failed)
			})
			fake.remove(4)
			for _, line := range []int{2, 3, 5, 6} {
				time.Sleep(10 * maxAway)
				synctest.Wait()
				fake.mu.Lock()
				if open := fake.open(); fake.tasks[0].GetState() != failed || open != min(2, 7-line) {
					t.Errorf("before line %d ends, the first one is %v and %d are open, want it FAILED and at most 2 open", line, fake.tasks[0].GetState(), open)
				}
				fake.failingCalls = 1 // the answer of the next retry is lost
				fake.mu.Unlock()
				fake.end(line, completed)
			}
			r.finish("<b><c><e><f>")
			if s := r.summary; r.err != nil || s.Done != 4 || s.Failed != 1 || s.Missing != 1 {
				t.Errorf("summary %v, error %v; want 4 lines done, 1 failed and 1 deleted", s, r.err)
			}
		})
	}
}

// A run that has to end while lines are left says why, and prints nothing: the next one prints all
// lines.
func TestRetryOfTheRestEndsWithTheRun(t *testing.T) {
	for _, quota := range []int{1, -1} { // the end comes during a pause, and during a call
		synctest.Test(t, func(t *testing.T) {
			fake, dir := newFakeCoordinator(), t.TempDir()
			r := startRun(t, fake, dir, 2, false)
			fake.end(1, failed)
			fake.end(2, failed)
			r.finish("")
			fake.quota = 1
			r = startRunAfter(t, fake, dir, 2, false, func(job *Job) {
				if _, left, err := job.RetryFailed(t.Context(), fake); left != 1 || err != nil {
					t.Errorf("%d lines are left, %v; want 1", left, err)
				}
				fake.quota = quota
			})
			r.cancel(errKilled)
			r.finish("")
			if !errors.Is(r.err, errKilled) || r.summary != (Summary{Lines: 2, Left: 2, Stopped: true}) {
				t.Errorf("summary %+v, error %v; want that of the end", r.summary, r.err)
			}
		})
	}
}
