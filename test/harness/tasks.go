package harness

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Tasks are the tasks of one run (RunId).
type Tasks struct {
	t      testing.TB
	ctx    context.Context
	conn   func() grpc.ClientConnInterface
	run    string
	number int // of tasks that were submitted
}

// NewTasks makes a run without tasks. Each call uses the connection that conn returns at that
// moment.
func NewTasks(ctx context.Context, t testing.TB, run string, conn func() grpc.ClientConnInterface) *Tasks {
	return &Tasks{t: t, ctx: ctx, run: run, conn: conn}
}

// Resilient returns the spec of tasks whose leases expire soon after their worker has died, and
// which are retried at once, however often. On a busy machine a lease may also expire while its
// worker lives; that only costs another attempt.
func Resilient(queue string, ttl time.Duration) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: queue, HeartbeatTimeout: durationpb.New(ttl),
		RetryPolicy: &lessorv1.RetryPolicy{
			MaxLosses: 1000, InitialBackoff: durationpb.New(time.Millisecond),
			MaxBackoff: durationpb.New(time.Millisecond),
		},
	}
}

func (ts *Tasks) client() lessorv1.TaskServiceClient { return lessorv1.NewTaskServiceClient(ts.conn()) }

func (ts *Tasks) must(err error) {
	ts.t.Helper()
	if err != nil {
		ts.t.Fatal(err)
	}
}

// Submit submits n tasks with the same spec.
func (ts *Tasks) Submit(n int, spec *lessorv1.TaskSpec) {
	ts.t.Helper()
	const most = 500
	spec.RunId = ts.run
	ts.number += n
	for ; n > 0; n -= most {
		specs := make([]*lessorv1.TaskSpec, min(n, most))
		for i := range specs {
			specs[i] = spec
		}
		_, err := ts.client().BatchSubmitTasks(ts.ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs})
		ts.must(err)
	}
}

// AwaitDone watches the run until as many attempts have completed as there are tasks.
func (ts *Tasks) AwaitDone() {
	ts.t.Helper()
	ctx, cancel := context.WithCancel(ts.ctx)
	defer cancel()
	stream, err := ts.client().WatchTask(ctx, &lessorv1.WatchTaskRequest{RunId: ts.run})
	ts.must(err)
	for left := ts.number; left > 0; {
		m, err := stream.Recv()
		ts.must(err)
		if m.GetHistory().GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED {
			left--
		}
	}
}

// Read returns all tasks with their histories, and fails the test if one is missing (A6).
func (ts *Tasks) Read() []*lessorv1.Task {
	ts.t.Helper()
	const atOnce = 8
	ids := ts.list()
	if len(ids) != ts.number {
		ts.t.Fatalf("A6: %d tasks were submitted, and %d are there", ts.number, len(ids))
	}
	tasks := make([]*lessorv1.Task, len(ids))
	var busy sync.WaitGroup
	for first := range atOnce {
		busy.Go(func() {
			for i := first; i < len(ids); i += atOnce {
				m, err := ts.client().GetTask(ts.ctx, &lessorv1.GetTaskRequest{TaskId: ids[i]})
				if err != nil {
					ts.t.Errorf("task %s: %v", ids[i], err)
				}
				tasks[i] = m.GetTask()
			}
		})
	}
	busy.Wait()
	return tasks
}

func (ts *Tasks) list() (ids []string) {
	ts.t.Helper()
	req := &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{RunId: ts.run}, PageSize: 1000}
	for {
		m, err := ts.client().ListTasks(ts.ctx, req)
		ts.must(err)
		for _, t := range m.GetTasks() {
			ids = append(ids, t.GetTaskId())
		}
		if req.PageToken = m.GetNextPageToken(); req.PageToken == "" {
			return ids
		}
	}
}
