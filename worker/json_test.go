package worker_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// T4: a payload that cannot be read is bad data, which no other attempt cures, and the handler is
// not called; nor does another attempt cure an output that cannot be written. An error of the
// handler decides as that of any handler.
func TestJSON(t *testing.T) {
	t.Attr("rules", "T4")
	type order struct{ Month int }
	called := 0
	c := workertest.Start(t)
	w := c.Worker("reports", worker.Config{})
	w.Handle("render", worker.JSON(func(_ context.Context, _ *worker.Task, o order) (any, error) {
		called++
		switch o.Month {
		case 13:
			return nil, worker.WithCategory(worker.Infrastructure, worker.Permanent(errors.New("no such month")))
		case 14:
			return func() {}, nil
		}
		return o.Month + 1, nil
	}))
	w.Handle("echo", worker.JSON(func(_ context.Context, _ *worker.Task, in any) (any, error) { return in, nil }))
	c.Run(w)
	for _, test := range []struct {
		payload, output string
		taskType        string
		calls           int
		category        lessorv1.ErrorCategory
		message         string
	}{
		{payload: `{"Month": 3}`, output: "4", calls: 1},
		{payload: `{"Month": "May"}`, category: worker.DataQuality, message: "payload is no worker_test.order: json: cannot unmarshal string"},
		{payload: "", category: worker.DataQuality, message: "payload is no worker_test.order: unexpected end of JSON input"},
		{payload: `{"Month": 13}`, calls: 1, category: worker.Infrastructure, message: "no such month"},
		{payload: `{"Month": 14}`, calls: 1, category: worker.UserCode, message: "output: json: unsupported type: func()"},
		{taskType: "echo", payload: `[1, {}]`, output: "[1,{}]"},
		{taskType: "echo", payload: "[", category: worker.DataQuality, message: "payload is no interface {}: unexpected end of JSON input"},
	} {
		called = 0
		task := c.Do(&lessorv1.TaskSpec{Queue: "reports", Type: cmp.Or(test.taskType, "render"), Payload: []byte(test.payload)})
		if failed := task.GetState() == lessorv1.TaskState_TASK_STATE_FAILED; failed != (test.message != "") || string(task.GetOutput()) != test.output {
			t.Errorf("payload %q: %s with output %q, want output %q",
				test.payload, task.GetState(), task.GetOutput(), test.output)
		}
		if got := task.GetError(); got.GetCategory() != test.category || !strings.HasPrefix(got.GetMessage(), test.message) {
			t.Errorf("payload %q: error = %v, want %s: %s", test.payload, got, test.category, test.message)
		}
		if called != test.calls || task.GetAttempt() != 1 {
			t.Errorf("payload %q: the handler was called %d times in %d attempts, want %d in 1",
				test.payload, called, task.GetAttempt(), test.calls)
		}
	}
}
