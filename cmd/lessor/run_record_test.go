package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/execworker"
)

// The object of a line is its task, with the line, its exit code and the time of its last attempt
// behind it, as far as there are any.
func TestObjectOfALine(t *testing.T) {
	at := func(ms int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(ms)) }
	granted := func(attempt uint32, ms int64) *lessorv1.HistoryEvent {
		return &lessorv1.HistoryEvent{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED, Attempt: attempt, At: at(ms)}
	}
	spec := func(line string) *lessorv1.TaskSpec {
		return &lessorv1.TaskSpec{RunId: "run-a", IdempotencyKey: "run-a/7", Payload: []byte(line)}
	}
	exit9 := &lessorv1.TaskError{Message: "exit status 9: bad"}
	none := filepath.Join(t.TempDir(), "none")
	for want, task := range map[string]*lessorv1.Task{
		`{"number":7,"text":"a <b>","exit_code":0,"seconds":1.5}`: {
			Spec: spec("a <b>"), State: lessorv1.TaskState_TASK_STATE_COMPLETED, Attempt: 2, Error: exit9, FinishedAt: at(5500),
			History: []*lessorv1.HistoryEvent{granted(1, 1000), granted(2, 4000)},
		},
		`{"number":7,"text":"","exit_code":9,"seconds":0}`: {
			Spec: spec(""), State: lessorv1.TaskState_TASK_STATE_FAILED, Attempt: 1, Error: exit9, FinishedAt: at(1000),
			History: []*lessorv1.HistoryEvent{granted(1, 1000)},
		},
		`{"number":7}`: { // the error is that of an earlier attempt
			Spec: spec("\xff"), State: lessorv1.TaskState_TASK_STATE_FAILED, Attempt: 2, Error: exit9,
			Reason:  lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT,
			History: []*lessorv1.HistoryEvent{granted(1, 1000)},
		},
		`{"number":7,"text":"a"}`: {
			Spec: spec("a"), State: lessorv1.TaskState_TASK_STATE_FAILED, Attempt: 1,
			Error: &lessorv1.TaskError{Message: "signal: killed"},
		},
	} {
		var got, plain strings.Builder
		if err := printRecord(&got, task, none); err != nil {
			t.Fatal(err)
		}
		if err := printJSON(&plain, task); err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(plain.String(), "}\n") + `,"line":` + want + "}\n"; got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &got, want)
		}
	}
}

// The object of a line that has failed has what its last attempt has printed, or the file with it,
// if that is long.
func TestObjectOfAFailedLineHasItsOutput(t *testing.T) {
	failed := &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_FAILED}
	for _, c := range []struct {
		task *lessorv1.Task
		size int
		want string
	}{
		{failed, 3, `"output":"eHh4"`},
		{failed, execworker.DefaultInlineLimit + 1, `"file":"/`},
		{&lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_COMPLETED}, 3, `"line":{"number":0,"text":"","exit_code":0}}`},
	} {
		name := filepath.Join(t.TempDir(), "printed")
		if err := os.WriteFile(name, bytes.Repeat([]byte("x"), c.size), 0o600); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		if err := printRecord(&got, c.task, name); err != nil || !strings.Contains(got.String(), c.want) || got.Len() > 4096 {
			t.Errorf("%d bytes of a task that is %v: %v, want %s in:\n%.4096s", c.size, c.task.GetState(), err, c.want, &got)
		}
	}
}
