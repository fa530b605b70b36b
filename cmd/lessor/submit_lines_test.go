package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// batches is a TaskService that is away at some calls, and takes batches up to a limit.
type batches struct {
	lessorv1.TaskServiceClient
	away  map[int]bool // by number of the call, from 1
	most  int
	calls int
	keys  []string
}

func (b *batches) BatchSubmitTasks(_ context.Context, req *lessorv1.BatchSubmitTasksRequest, _ ...grpc.CallOption) (*lessorv1.BatchSubmitTasksResponse, error) {
	if b.calls++; b.away[b.calls] {
		return nil, status.Error(codes.Unavailable, "away")
	}
	if len(req.GetTasks()) > b.most {
		return nil, status.Errorf(codes.InvalidArgument, "tasks: has %d entries; the limit is %d", len(req.GetTasks()), b.most)
	}
	answer := &lessorv1.BatchSubmitTasksResponse{}
	for _, spec := range req.GetTasks() {
		b.keys = append(b.keys, spec.GetIdempotencyKey())
		answer.Results = append(answer.Results, &lessorv1.SubmitResult{TaskId: "id-of-" + string(spec.GetPayload()), Created: true})
	}
	return answer, nil
}

func submitLinesTo(t *testing.T, tasks lessorv1.TaskServiceClient, key string, lines int) (out string, err error) {
	t.Helper()
	var text, printed bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&text, i+1)
	}
	l := &lineSubmits{
		a:     &app{streams: streams{out: &printed}, ctx: t.Context()},
		tasks: tasks, base: &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: key},
	}
	err = l.explained(l.run(&text))
	return printed.String(), err
}

// A coordinator that is restarted in the middle has its batch again if the tasks have keys; otherwise nobody knows whether that would make second tasks.
func TestSubmitLinesOutlivesARestartOfTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &batches{most: 10, away: map[int]bool{}}
		for call := 50; call < 60; call++ { // 5 s
			tasks.away[call] = true
		}
		out, err := submitLinesTo(t, tasks, "k", 2000)
		if err != nil || strings.Count(out, "\n") != 2000 || !strings.HasSuffix(out, "\nid-of-1999\nid-of-2000\n") {
			t.Errorf("error %v after %d ids, want 2000 in their order", err, strings.Count(out, "\n"))
		}
		if len(tasks.keys) != 2000 || tasks.keys[0] != "k/1" || tasks.keys[1999] != "k/2000" {
			t.Errorf("%d keys, want k/1 to k/2000", len(tasks.keys))
		}
	})
}

func TestSubmitLinesWithoutKeysIsNotRepeated(t *testing.T) {
	for name, key := range map[string]string{"no key": "", "away from the beginning": "k"} {
		synctest.Test(t, func(t *testing.T) {
			tasks := &batches{most: maxSubmitBatch, away: map[int]bool{1: key != "", 2: true}}
			out, err := submitLinesTo(t, tasks, key, 3*maxSubmitBatch)
			var f *failure
			if !errors.As(err, &f) && status.Code(err) != codes.Unavailable || tasks.calls > 2 {
				t.Errorf("%s: error %v after %d calls and\n%s", name, err, tasks.calls, out)
			}
			if told := strings.Count(out, "\n"); told > 0 && !strings.Contains(f.text, fmt.Sprintf("; lines up to %d are submitted, and perhaps some more", told)) {
				t.Errorf("%s: error %q, want the number of the last line, %d", name, f.text, told)
			}
		})
	}
}
