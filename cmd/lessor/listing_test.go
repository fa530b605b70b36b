package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// listedTask is a task as a coordinator lists it.
func listedTask() *lessorv1.Task {
	return &lessorv1.Task{
		TaskId: "t0000200000000001", TenantId: "default", State: lessorv1.TaskState_TASK_STATE_READY, Round: 1,
		CreatedAt: timestamppb.New(time.Unix(1_800_000_000, 1)),
		Spec: &lessorv1.TaskSpec{
			WorkspaceId: "default", Queue: "mail", Type: "welcome", RunId: "nightly", TaskKey: "user-7",
			Labels: map[string]string{"team": "blue"},
			RetryPolicy: &lessorv1.RetryPolicy{
				MaxAttempts: 5, MaxLosses: 3, InitialBackoff: durationpb.New(time.Second), BackoffMultiplier: 2,
				MaxBackoff: durationpb.New(time.Minute),
			},
			HeartbeatInterval: durationpb.New(30 * time.Second), HeartbeatTimeout: durationpb.New(90 * time.Second),
			CancelGrace: durationpb.New(30 * time.Second), Retention: durationpb.New(72 * time.Hour),
		},
	}
}

// A list says where a task is, and why it is still there.
func TestDetailOfAListedTask(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	in := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	failed := &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "exit status 1"}
	for want, task := range map[string]*lessorv1.Task{
		"":                                     {State: lessorv1.TaskState_TASK_STATE_READY, RetryAt: in(-time.Second)},
		"worker gpu-1":                         {State: lessorv1.TaskState_TASK_STATE_RUNNING, Lease: &lessorv1.LeaseInfo{WorkerId: "gpu-1"}},
		"due in 5m":                            {State: lessorv1.TaskState_TASK_STATE_SCHEDULED, RetryAt: in(5 * time.Minute)},
		"due in 2s; USER_CODE: exit status 1":  {State: lessorv1.TaskState_TASK_STATE_SCHEDULED, RetryAt: in(2 * time.Second), Error: failed},
		"worker w-1; USER_CODE: exit status 1": {State: lessorv1.TaskState_TASK_STATE_LEASED, Lease: &lessorv1.LeaseInfo{WorkerId: "w-1"}, Error: failed},
		"USER_CODE: exit status 1":             {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: failed},
	} {
		if got := taskDetail(task, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// longPages is a coordinator that lists tasks in pages of the size that is asked for.
type longPages struct {
	lessorv1.TaskServiceClient
	states []lessorv1.TaskState
	calls  int
}

func (p *longPages) ListTasks(
	_ context.Context, req *lessorv1.ListTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.ListTasksResponse, error) {
	p.calls++
	from, _ := strconv.Atoi(req.GetPageToken())
	to := min(from+int(req.GetPageSize()), len(p.states))
	page := &lessorv1.ListTasksResponse{}
	for _, state := range p.states[from:to] {
		page.Tasks = append(page.Tasks, &lessorv1.Task{State: state})
	}
	if to < len(p.states) {
		page.NextPageToken = strconv.Itoa(to)
	}
	return page, nil
}

// A count reads all pages, and as few as possible. It has every state, and the total.
func TestCountReadsAllPages(t *testing.T) {
	p := &longPages{}
	for i := range 2500 {
		p.states = append(p.states, []lessorv1.TaskState{
			lessorv1.TaskState_TASK_STATE_COMPLETED,
			lessorv1.TaskState_TASK_STATE_FAILED,
		}[min(i%5, 1)])
	}
	n, err := countTasks(&app{ctx: t.Context()}, &client{tasks: p}, &lessorv1.TaskFilter{})
	if got := n.String(); err != nil || got != "500 COMPLETED, 2000 FAILED" || n.total() != 2500 || len(n) != len(words.States()) || p.calls != 3 {
		t.Errorf("counted %s of %d tasks in %d states and %d calls (%v), want all in 3 calls",
			got, n.total(), len(n), p.calls, err)
	}
}

// A long table is printed in parts, so that it takes little memory. Columns of a later part are as
// wide as those before it, or wider.
func TestLongTablesArePrintedInParts(t *testing.T) {
	var out strings.Builder
	list := newListing(&app{streams: streams{out: &out}}, "A", "B")
	for i := range 3 * rowsAtOnce {
		before := out.Len()
		if err := list.add(nil, []string{"short", "x", "longest"}[i/rowsAtOnce], "b"); err != nil {
			t.Fatal(err)
		}
		if held := len(list.table.rows); held >= rowsAtOnce || out.Len() > before && held > 0 {
			t.Fatalf("after %d rows, %d are in memory, want less than %d", i+1, held, rowsAtOnce)
		}
	}
	if err := list.flush(); err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for line := range strings.Lines(out.String()) {
		lines[line]++
	}
	want := map[string]int{
		"A      B\n": 1, "short  b\n": rowsAtOnce, "x      b\n": rowsAtOnce - 1, "x        b\n": 1,
		"longest  b\n": rowsAtOnce,
	}
	if !maps.Equal(lines, want) { // the header is a row of the first part, so the parts end one row early
		t.Errorf("got the lines %v, want %v", lines, want)
	}
}

// A list that ends with an error has the items before the error. A program that reads JSON has the
// lines of a page before the next page is read.
func TestListsShowWhatCameBeforeAnError(t *testing.T) {
	for _, json := range []bool{false, true} {
		var out strings.Builder
		list := newListing(&app{streams: streams{out: &out}, json: json}, "TASK")
		cells := func(t *lessorv1.Task) []string { return []string{t.GetTaskId()} }
		err := printPages(list, cells, func(token string) ([]*lessorv1.Task, string, error) {
			if token == "" {
				return []*lessorv1.Task{{TaskId: "t1"}}, "2", nil
			}
			if json && !strings.HasSuffix(out.String(), "}\n") {
				t.Errorf("before the second page is read, there is %q, want the line of the first", &out)
			}
			return nil, "", io.ErrUnexpectedEOF
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(out.String(), "t1") {
			t.Errorf("JSON %v: got %q, %v, want t1 and the error of the second page", json, &out, err)
		}
	}
}

// A list whose first page cannot be read has no head, which would look like the answer that there
// is nothing. An empty list has one.
func TestNoHeadBeforeAnError(t *testing.T) {
	for _, failed := range []error{nil, io.ErrUnexpectedEOF} {
		var out strings.Builder
		list := newListing(&app{streams: streams{out: &out}}, "TASK")
		cells := func(t *lessorv1.Task) []string { return []string{t.GetTaskId()} }
		err := printPages(list, cells, func(string) ([]*lessorv1.Task, string, error) { return nil, "", failed })
		if want := map[bool]string{true: "TASK\n"}[failed == nil]; out.String() != want || !errors.Is(err, failed) {
			t.Errorf("after %v: got %q, %v, want %q", failed, &out, err, want)
		}
	}
}

// BenchmarkTaskList measures what lessor task list does with each task of a page of 1000.
func BenchmarkTaskList(b *testing.B) {
	for name, json := range map[string]bool{"table": false, "json": true} {
		b.Run(name, func(b *testing.B) {
			task := listedTask()
			b.ReportAllocs()
			list := newTaskListing(&app{streams: streams{out: io.Discard}, json: json})
			for b.Loop() {
				if err := list.add(task, taskCells(task)...); err != nil {
					b.Fatal(err)
				}
			}
			if err := list.flush(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
