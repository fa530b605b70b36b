package producer

import (
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// Result returns the output of a task that is COMPLETED, and of any other task a *TaskError that
// says why it has none. It takes a task as Wait returns it; lists leave the output out.
func Result(task *lessorv1.Task) (output []byte, err error) {
	if task.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED {
		return task.GetOutput(), nil
	}
	failed := &TaskError{TaskID: task.GetTaskId(), State: task.GetState(), Reason: task.GetReason()}
	switch {
	case task.GetState() == lessorv1.TaskState_TASK_STATE_CANCELLED:
		failed.Category, failed.Message = lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED, task.GetCancelReason()
	case words.FailedByError(task):
		failed.Category, failed.Message = task.GetError().GetCategory(), task.GetError().GetMessage()
	}
	return nil, failed
}

// TaskError says why a task has no result.
type TaskError struct {
	// TaskID is the task.
	TaskID string
	// State is FAILED or CANCELLED; any other means that the task has not ended.
	State lessorv1.TaskState
	// Reason is why it ended without an outcome of a worker, for example at its deadline;
	// unspecified otherwise. DEADLINE_EXCEEDED is also that of a task whose last attempt took too
	// long (attempt_timeout); then Category is TIMEOUT.
	Reason lessorv1.Reason
	// Category is the kind of the failure; unspecified if there is a Reason, except that it is
	// CANCELLED for each task that is, and TIMEOUT if the last attempt took too long.
	Category lessorv1.ErrorCategory
	// Message is what the worker said about the failure, how long the last attempt could take, or
	// why somebody cancelled the task; may be empty.
	Message string
}

// Error names the task, its state, the reason or else the category, and the message.
func (e *TaskError) Error() string {
	state := words.Name(e.State)
	parts := []string{"task " + e.TaskID + " is " + state}
	switch {
	case e.Reason != lessorv1.Reason_REASON_UNSPECIFIED:
		parts = append(parts, words.Name(e.Reason))
	case e.Category != lessorv1.ErrorCategory_ERROR_CATEGORY_UNSPECIFIED && words.Name(e.Category) != state:
		parts = append(parts, words.Name(e.Category))
	}
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	return strings.Join(parts, ": ")
}
