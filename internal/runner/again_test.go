package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// retryRecorder is a coordinator that opens two lines with each call. The token of a page is the number of lines before it.
type retryRecorder struct {
	lessorv1.TaskServiceClient
	errors []error // with which the calls begin
	asked  []*lessorv1.BatchRetryTasksRequest
}

func (r *retryRecorder) BatchRetryTasks(_ context.Context, req *lessorv1.BatchRetryTasksRequest, _ ...grpc.CallOption) (*lessorv1.BatchRetryTasksResponse, error) {
	if len(r.errors) > 0 {
		err := r.errors[0]
		r.errors = r.errors[1:]
		return nil, err
	}
	r.asked = append(r.asked, &lessorv1.BatchRetryTasksRequest{Filter: req.GetFilter(), PageToken: req.GetPageToken()})
	next := map[string]string{"": "2", "2": "4"}[req.GetPageToken()]
	return &lessorv1.BatchRetryTasksResponse{Result: &lessorv1.BatchResult{Changed: 2, NextPageToken: next}}, nil
}

// All failed lines of the run are opened again, however many calls that takes, and even if the coordinator is away for a moment.
func TestRetryFailedOpensAllFailedLines(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "a\n", Options{Workspace: "w"}, false)
	synctest.Test(t, func(t *testing.T) {
		r := &retryRecorder{errors: []error{status.Error(codes.Unavailable, "away"), status.Error(codes.Unavailable, "away")}}
		if lines, err := j.RetryFailed(t.Context(), r); lines != 6 || err != nil || len(r.asked) != 3 {
			t.Errorf("%d lines in %d calls, %v; want 6 lines in 3 calls", lines, len(r.asked), err)
		}
		for _, req := range r.asked {
			f := req.GetFilter()
			if f.GetRunId() != j.RunID() || f.GetWorkspaceId() != "w" || len(f.GetStates()) != 1 || f.GetStates()[0] != lessorv1.TaskState_TASK_STATE_FAILED {
				t.Errorf("asked for %v, want the tasks of this run that are FAILED", f)
			}
		}
	})
}

func TestRetryFailedEndsIfItIsRefused(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "a\n", testOptions, false)
	denied := status.Error(codes.PermissionDenied, "not yours")
	if _, err := j.RetryFailed(t.Context(), &retryRecorder{errors: []error{denied}}); !errors.Is(err, denied) {
		t.Errorf("error %v, want %v", err, denied)
	}
}
