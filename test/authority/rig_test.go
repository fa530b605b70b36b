//go:build faults

package authority

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(workerAddr); addr != "" {
		os.Exit(beWorker(addr))
	}
	harness.Main(m)
}

// rig is a coordinator, with helpers for calls.
type rig struct {
	t   *testing.T
	ctx context.Context
	c   *harness.Coordinator
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*harness.Patience)
	t.Cleanup(stop)
	return &rig{t: t, ctx: ctx, c: harness.NewCoordinator(t, t.TempDir())}
}

func (r *rig) tasks() lessorv1.TaskServiceClient { return lessorv1.NewTaskServiceClient(r.c.Conn()) }

func (r *rig) workers() lessorv1.WorkerServiceClient {
	return lessorv1.NewWorkerServiceClient(r.c.Conn())
}

// must fails the test if a call got no answer. Only the test's own goroutine may call it.
func must[M any](r *rig, m M, err error) M {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// spec is of a task that is retried at once after a lost lease, however often: on a busy machine
// short leases also expire because no process gets to run.
func spec(queue string, ttl time.Duration) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: queue, HeartbeatInterval: durationpb.New(ttl / 2), HeartbeatTimeout: durationpb.New(ttl),
		RetryPolicy: &lessorv1.RetryPolicy{
			MaxLosses: 1000, InitialBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(time.Millisecond),
		},
	}
}

// submit submits n tasks with the same spec, in bounded batches.
func (r *rig) submit(n int, s *lessorv1.TaskSpec) {
	r.t.Helper()
	const most = 1000
	for ; n > 0; n -= most {
		specs := make([]*lessorv1.TaskSpec, min(n, most))
		for i := range specs {
			specs[i] = s
		}
		m, err := r.tasks().BatchSubmitTasks(r.ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs})
		must(r, m, err)
	}
}

// lease leases one task, and waits until there is one.
func (r *rig) lease(queue string) (*lessorv1.Assignment, error) {
	for {
		m, err := r.workers().Lease(r.ctx, &lessorv1.LeaseRequest{
			WorkerId: "authority", Queues: []string{queue}, MaxTasks: 1, Wait: durationpb.New(time.Second),
		})
		if err != nil || len(m.GetAssignments()) > 0 {
			return append(m.GetAssignments(), nil)[0], err
		}
	}
}

func (r *rig) start(a *lessorv1.Assignment) (*lessorv1.StartResponse, error) {
	return r.workers().Start(r.ctx, &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
}

func (r *rig) complete(a *lessorv1.Assignment) (*lessorv1.CompleteResponse, error) {
	return r.workers().Complete(r.ctx, &lessorv1.CompleteRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
}

func (r *rig) get(id string) (*lessorv1.Task, error) {
	m, err := r.tasks().GetTask(r.ctx, &lessorv1.GetTaskRequest{TaskId: id})
	return m.GetTask(), err
}

// count counts the history entries of a type.
func count(t *lessorv1.Task, what lessorv1.HistoryEventType) (n int) {
	for _, e := range t.GetHistory() {
		if e.GetType() == what {
			n++
		}
	}
	return n
}
