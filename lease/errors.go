package lease

import (
	"fmt"
	"strings"
)

// FieldError says what is wrong with one field. The user reads its words.
type FieldError struct {
	Field   string // path, for example "task.retry_policy.max_backoff"
	Problem string // names the value and the limit
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Under returns a copy of e with prefix and a dot before the path.
func (e *FieldError) Under(prefix string) *FieldError {
	return &FieldError{Field: prefix + "." + e.Field, Problem: e.Problem}
}

func bad(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// StateError refuses a command in the task's state (T9).
type StateError struct {
	Task  TaskID
	State State
	Why   string // why the command is refused, in words
}

func (e *StateError) Error() string {
	return fmt.Sprintf("task %s is %s; %s", e.Task, e.State, e.Why)
}

// ExistsError refuses a spec whose idempotency key was used with another spec (T1).
type ExistsError struct {
	Field string
	Key   string
	Task  TaskID // the task of the other spec; zero if the other spec is in the same batch, which then makes no task
	// Differs names the fields in which the specs differ. It is empty if they differ only in a
	// default that is written out.
	Differs []string
}

func (e *ExistsError) Error() string {
	fields := strings.Join(e.Differs, ", ")
	switch inBatch := e.Task == (TaskID{}); {
	case inBatch && fields == "":
		return fmt.Sprintf("%s: %q is used by two different specs of this batch", e.Field, e.Key)
	case inBatch:
		return fmt.Sprintf("%s: %q is used by two specs of this batch that differ in %s", e.Field, e.Key, fields)
	case fields == "":
		return fmt.Sprintf("%s: %q was already used by task %s with a different spec", e.Field, e.Key, e.Task)
	}
	return fmt.Sprintf("%s: %q was already used by task %s with a spec that differs in %s", e.Field, e.Key, e.Task, fields)
}

type notFoundError struct{}

func (notFoundError) Error() string { return "no such task" }

// ErrNotFound refuses a command on a task that the tenant does not have. It is the same if another
// tenant has the task.
var ErrNotFound error = notFoundError{}
