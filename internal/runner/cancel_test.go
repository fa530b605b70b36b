package runner

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// cancelRecorder is a coordinator with one task in each state, in the workspace and run that a
// filter names. The id of a task is the name of its state.
type cancelRecorder struct {
	lessorv1.TaskServiceClient
	filter    *lessorv1.TaskFilter // of the last list
	cancelled []string
	errors    map[string]error // with which the cancel of a task fails
}

func (c *cancelRecorder) ListTasks(
	_ context.Context, req *lessorv1.ListTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.ListTasksResponse, error) {
	c.filter = req.GetFilter()
	page := &lessorv1.ListTasksResponse{}
	for state := lessorv1.TaskState_TASK_STATE_SCHEDULED; lessorv1.TaskState_name[int32(state)] != ""; state++ {
		if slices.Contains(c.filter.GetStates(), state) {
			page.Tasks = append(page.Tasks, &lessorv1.Task{TaskId: state.String(), State: state})
		}
	}
	return page, nil
}

func (c *cancelRecorder) CancelTask(
	_ context.Context, req *lessorv1.CancelTaskRequest, _ ...grpc.CallOption,
) (*lessorv1.CancelTaskResponse, error) {
	c.cancelled = append(c.cancelled, req.GetTaskId())
	return &lessorv1.CancelTaskResponse{}, c.errors[req.GetTaskId()]
}

// All tasks that have not ended are cancelled, even if one of them ends or is deleted meanwhile.
// Any other error ends the cancelling.
func TestCancelCancelsTheTasksThatHaveNotEnded(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "a\n", Options{Workspace: "w"}, false)
	denied := status.Error(codes.PermissionDenied, "not yours")
	for _, tt := range []struct {
		err  error // of the task that is LEASED
		want []string
	}{
		{nil, openNames},
		{status.Error(codes.FailedPrecondition, "it is COMPLETED"), openNames},
		{status.Error(codes.NotFound, "it is deleted"), openNames},
		{denied, openNames[:3]},
	} {
		c := &cancelRecorder{errors: map[string]error{"TASK_STATE_LEASED": tt.err}}
		err := j.Cancel(t.Context(), c)
		if !slices.Equal(c.cancelled, tt.want) || errors.Is(err, denied) != errors.Is(tt.err, denied) {
			t.Errorf("with %v: %v, and %v were cancelled, want %v", tt.err, err, c.cancelled, tt.want)
		}
		if c.filter.GetWorkspaceId() != "w" || c.filter.GetRunId() != j.RunID() {
			t.Errorf("the tasks of %v were cancelled, want those of run %s in workspace w", c.filter, j.RunID())
		}
	}
}

var openNames = []string{
	"TASK_STATE_SCHEDULED", "TASK_STATE_READY", "TASK_STATE_LEASED", "TASK_STATE_RUNNING",
	"TASK_STATE_CANCELLING",
}

// Only the tasks of the run that was replaced are cancelled, and only if they are on the
// coordinator that is asked.
func TestCancelReplaced(t *testing.T) {
	before := Options{Addr: "h:1", Workspace: "w"}
	for name, tt := range map[string]struct {
		now       Options
		cancelled bool
	}{
		"the same run":             {before, false},
		"the same coordinator":     {Options{Addr: "h:1", Workspace: "v"}, true},
		"another coordinator":      {Options{Addr: "h:2", Workspace: "w"}, false},
		"the coordinator embedded": {Options{Workspace: "w"}, false},
	} {
		dir := t.TempDir()
		first := mustOpen(t, dir, "a\n", before, false)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		c := &cancelRecorder{}
		if err := mustOpen(t, dir, "a\n", tt.now, true).CancelReplaced(t.Context(), c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (len(c.cancelled) > 0) != tt.cancelled || tt.cancelled && (c.filter.GetRunId() != first.RunID() || c.filter.GetWorkspaceId() != "w") {
			t.Errorf("%s: %v of %v were cancelled, want those of run %s: %v",
				name, c.cancelled, c.filter, first.RunID(), tt.cancelled)
		}
	}
}
