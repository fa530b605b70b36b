package producer_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/producer"
)

// Only a COMPLETED task has a result. The error of any other says why: what the worker said if the
// task failed by that, the reason if it ended for one, and why somebody cancelled it. The error of
// an earlier attempt is not why, but that of a last attempt that took too long is, and tells that
// from a deadline that passed.
func TestResult(t *testing.T) {
	earlier := &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "boom"}
	tooLong := &lessorv1.TaskError{
		Category: lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT, Message: "attempt_timeout of 10s passed",
	}
	for want, task := range map[string]*lessorv1.Task{
		"": {State: lessorv1.TaskState_TASK_STATE_COMPLETED, Output: []byte("out"), Error: earlier},
		"task t is FAILED: USER_CODE: boom": {
			TaskId: "t", State: lessorv1.TaskState_TASK_STATE_FAILED, Error: earlier,
		},
		"task t is FAILED: DEADLINE_EXCEEDED": {
			TaskId: "t", State: lessorv1.TaskState_TASK_STATE_FAILED, Reason: lessorv1.Reason_REASON_DEADLINE_EXCEEDED,
			Error: earlier, Spec: &lessorv1.TaskSpec{Deadline: timestamppb.New(time.Unix(7, 0))},
			FinishedAt: timestamppb.New(time.Unix(7, 0)),
		},
		"task t is FAILED: DEADLINE_EXCEEDED: attempt_timeout of 10s passed": {
			TaskId: "t", State: lessorv1.TaskState_TASK_STATE_FAILED, Reason: lessorv1.Reason_REASON_DEADLINE_EXCEEDED,
			Error: tooLong,
		},
		"task t is CANCELLED: not needed": {
			TaskId: "t", State: lessorv1.TaskState_TASK_STATE_CANCELLED, CancelReason: "not needed", Error: earlier,
		},
		"task t is RUNNING": {TaskId: "t", State: lessorv1.TaskState_TASK_STATE_RUNNING, Output: []byte("out"), Error: earlier},
	} {
		output, err := producer.Result(task)
		if want == "" {
			if err != nil || string(output) != "out" {
				t.Errorf("Result of a COMPLETED task = %q, %v; want its output", output, err)
			}
			continue
		}
		failed, ok := errors.AsType[*producer.TaskError](err)
		if !ok || failed.Error() != want || failed.State != task.GetState() || failed.Reason != task.GetReason() || output != nil {
			t.Errorf("Result = %q, %v; want %q", output, err, want)
		}
		if timedOut := failed.Category == tooLong.GetCategory(); timedOut != (task.GetError() == tooLong) {
			t.Errorf("%s has category %v", want, failed.Category)
		}
	}
}
