package detail_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
)

func TestRefusedBatch(t *testing.T) {
	bad := func(field string) error { return refusal.Status(&lease.FieldError{Field: field, Problem: "is bad"}) }
	for name, test := range map[string]struct {
		err     error
		tooMany bool
		index   int
		problem string // "" if it is not about a task
	}{
		"none":            {},
		"another error":   {err: errors.New("tasks: tasks[1].queue: is bad")},
		"no details":      {err: status.Error(codes.InvalidArgument, "tasks[1].queue: is bad")},
		"another refusal": {err: refusal.Status(lease.ErrNotFound)},
		"too many":        {err: bad("tasks"), tooMany: true},
		"field of a task": {err: bad("tasks[2].retry_policy.max_backoff"), index: 2, problem: "retry_policy.max_backoff: is bad"},
		"label of a task": {err: bad(`tasks[1].labels["a b].c"]`), index: 1, problem: `labels["a b].c"]: is bad`},
		"key of a task": {
			err: refusal.Status(&lease.ExistsError{Field: "tasks[1].idempotency_key", Key: "k"}), index: 1,
			problem: `idempotency_key: "k" is used by two different specs of this batch`,
		},
		"field of the request":  {err: bad("request_id")},
		"field of all tasks":    {err: bad("tasks.queue")},
		"task itself":           {err: bad("tasks[1]")},
		"task after the last":   {err: bad("tasks[3].queue")},
		"task before the first": {err: bad("tasks[-1].queue")},
	} {
		if got := detail.TooManyTasks(test.err); got != test.tooMany {
			t.Errorf("%s: TooManyTasks = %t, want %t", name, got, test.tooMany)
		}
		index, problem, ok := detail.BadTask(test.err, 3)
		if ok != (test.problem != "") || ok && (index != test.index || problem != test.problem) {
			t.Errorf("%s: BadTask = %d, %q, %t, want %d, %q", name, index, problem, ok, test.index, test.problem)
		}
	}
}

// X5: only a coordinator says that its quota of tasks is used up, and only of that a caller may
// expect that a part of its tasks has room.
func TestNoRoom(t *testing.T) {
	t.Attr("rules", "X5")
	refused := func(code, domain string) error {
		info := detail.ErrorInfo(code)
		info.Domain = domain
		st, err := status.New(codes.ResourceExhausted, "no").WithDetails(info)
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":          {err: nil},
		"no details":    {err: status.Error(codes.ResourceExhausted, "QUOTA_TASKS")},
		"of tasks":      {err: refused("E.QUOTA.TASKS", detail.Domain), want: true},
		"of calls":      {err: refused("E.QUOTA.CALLS", detail.Domain)},
		"of a stranger": {err: refused("E.QUOTA.TASKS", "proxy")},
	} {
		if got := detail.NoRoom(test.err); got != test.want {
			t.Errorf("%s: NoRoom = %t, want %t", name, got, test.want)
		}
	}
}
