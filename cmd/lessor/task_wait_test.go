package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The timeout of a wait also ends one whose coordinator does not answer at all, and has its own
// exit code then, too.
func TestWaitForASilentCoordinator(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, args := range [][]string{{"t1"}, {"--run-id", "r"}} {
		var stderr strings.Builder
		args = append([]string{"task", "wait", "--addr", silent.Addr().String(), "--timeout", "20ms"}, args...)
		code := run(args, streams{out: io.Discard, err: &stderr})
		if want := "error: after 20ms, the coordinator has not answered\n"; code != exitTimeout || stderr.String() != want {
			t.Errorf("%v: exit code %d, %q; want %d, %q", args, code, stderr.String(), exitTimeout, want)
		}
	}
}

// restarting is a TaskService that is away for the first calls.
type restarting struct {
	lessorv1.TaskServiceClient
	away int
}

func (r *restarting) ListTasks(
	context.Context, *lessorv1.ListTasksRequest, ...grpc.CallOption,
) (*lessorv1.ListTasksResponse, error) {
	if r.away--; r.away >= 0 {
		return nil, status.Error(codes.Unavailable, "restarting")
	}
	return &lessorv1.ListTasksResponse{NextPageToken: "next"}, nil
}

// Once a wait has begun, a coordinator that restarts does not end it where the tasks of a run are
// listed again; before, an address without one does.
func TestListOfAWaitOutlivesTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, begun := range []bool{false, true} {
			w := &taskWait{cl: &client{tasks: &restarting{away: 3}}, begun: begun}
			page, err := w.page(t.Context(), &lessorv1.ListTasksRequest{})
			if got := page.GetNextPageToken() == "next" && err == nil; got != begun {
				t.Errorf("begun %t: page = %v, %v", begun, page, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w.cl.tasks = &restarting{away: 1000}
			if _, err := w.page(ctx, &lessorv1.ListTasksRequest{}); status.Code(err) != codes.Unavailable {
				t.Errorf("begun %t: after the timeout, page = %v, want UNAVAILABLE", begun, err)
			}
			cancel()
		}
	})
}
