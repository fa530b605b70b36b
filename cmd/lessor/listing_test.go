package main

import (
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// listedTask is a task as a coordinator lists it.
func listedTask() *lessorv1.Task {
	return &lessorv1.Task{
		TaskId: "t0000200000000001", TenantId: "default", State: lessorv1.TaskState_TASK_STATE_READY, Round: 1,
		CreatedAt: timestamppb.New(time.Unix(1_800_000_000, 1)),
		Spec: &lessorv1.TaskSpec{
			WorkspaceId: "default", Queue: "mail", Type: "welcome", RunId: "nightly", TaskKey: "user-7", Labels: map[string]string{"team": "blue"},
			RetryPolicy: &lessorv1.RetryPolicy{
				MaxAttempts: 5, MaxLosses: 3, InitialBackoff: durationpb.New(time.Second), BackoffMultiplier: 2, MaxBackoff: durationpb.New(time.Minute),
			},
			HeartbeatInterval: durationpb.New(30 * time.Second), HeartbeatTimeout: durationpb.New(90 * time.Second),
			CancelGrace: durationpb.New(30 * time.Second), Retention: durationpb.New(72 * time.Hour),
		},
	}
}

// A long table is printed in parts, so that it takes little memory. Columns of a later part are as wide as those before it, or wider.
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
	want := map[string]int{"A      B\n": 1, "short  b\n": rowsAtOnce, "x      b\n": rowsAtOnce - 1, "x        b\n": 1, "longest  b\n": rowsAtOnce}
	if !maps.Equal(lines, want) { // the header is a row of the first part, so the parts end one row early
		t.Errorf("got the lines %v, want %v", lines, want)
	}
}

// A list that ends with an error has the items before the error. A program that reads JSON has the lines of a page before the next page is read.
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
