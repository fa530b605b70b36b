package main

import (
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func TestErrorOfATaskInAListIsThatOfItsState(t *testing.T) {
	earlier := &lessorv1.TaskError{Message: "encoder crashed\nat frame 7"}
	for want, task := range map[string]*lessorv1.Task{
		"":                      {State: lessorv1.TaskState_TASK_STATE_COMPLETED, Error: earlier},
		"encoder crashed":       {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: earlier},
		"HEARTBEAT_TIMEOUT":     {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: earlier, Reason: lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT},
		"TASK_CANCELLED: wrong": {State: lessorv1.TaskState_TASK_STATE_CANCELLED, Reason: lessorv1.Reason_REASON_TASK_CANCELLED, CancelReason: "wrong\ninput"},
	} {
		if got := errorCell(task); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
