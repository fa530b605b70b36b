//go:build faults

package hostile

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// honestClient is the honest client: it submits, works and reads, and has a worker that holds one
// lease from the first attack to the last.
type honestClient struct {
	conn    *grpc.ClientConn
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.WorkerServiceClient
	did     int

	held   string // the task that its worker holds
	finish context.CancelFunc
}

func newHonestClient(t *testing.T, h *host) *honestClient {
	t.Helper()
	b := h.connectHonest(t)
	b.hold(t)
	return b
}

// connectHonest returns an honest client without a worker. It connects with its first call.
func (h *host) connectHonest(t *testing.T) *honestClient {
	t.Helper()
	token := worker.StaticToken(h.tokens[honest])
	token.PlainText = true
	conn, err := grpc.NewClient(h.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &honestClient{conn: conn, tasks: lessorv1.NewTaskServiceClient(conn), workers: lessorv1.NewWorkerServiceClient(conn)}
}

// hold submits a task, and starts the worker whose handler keeps it until end.
func (b *honestClient) hold(t *testing.T) {
	t.Helper()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	finished, finish := context.WithCancel(t.Context())
	b.finish = finish
	w, err := worker.New(b.conn, []string{"held"}, worker.Config{Tenant: honest, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.HandleDefault(func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		begin()
		select {
		case <-finished.Done():
			return []byte("held"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	res, err := b.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "held"}},
		grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	b.held = res.GetTask().GetTaskId()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("the worker ended: %v", err)
		}
	})
	select {
	case <-begun:
	case <-time.After(harness.Patience):
		t.Fatal("the worker has got no task")
	}
}

// end checks that the held task is completed by the attempt that began it.
func (b *honestClient) end(t *testing.T) {
	t.Helper()
	b.finish()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for {
		res, err := b.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: b.held})
		if err != nil {
			t.Fatal(err)
		}
		switch task := res.GetTask(); task.GetState() {
		case lessorv1.TaskState_TASK_STATE_LEASED, lessorv1.TaskState_TASK_STATE_RUNNING:
			continue
		case lessorv1.TaskState_TASK_STATE_COMPLETED:
			if task.GetAttempt() != 1 || string(task.GetOutput()) != "held" {
				t.Errorf("the held task was completed by attempt %d with %q, want by attempt 1 with %q",
					task.GetAttempt(), task.GetOutput(), "held")
			}
			return
		default:
			t.Fatalf("the held task is %v, want COMPLETED", task)
		}
	}
}

// work does rounds of submit, lease, complete and get, checks each answer, and returns how long
// each call took, shortest first.
func (b *honestClient) work(t *testing.T, rounds int) (took []time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	call := func(what string, do func() error) {
		t.Helper()
		began := time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s of the honest client: %v", what, err)
		}
		took = append(took, time.Since(began))
	}
	for range rounds {
		b.did++
		payload := strconv.Itoa(b.did)
		var (
			id string
			a  *lessorv1.Assignment
		)
		call("a submit", func() error {
			m, err := b.tasks.SubmitTask(ctx,
				&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", Payload: []byte(payload)}})
			id = m.GetTask().GetTaskId()
			return err
		})
		call("a request for work", func() error {
			m, err := b.workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
			if err == nil && len(m.GetAssignments()) == 1 {
				a = m.GetAssignments()[0]
			}
			return err
		})
		if a.GetTask().GetTaskId() != id || string(a.GetTask().GetSpec().GetPayload()) != payload {
			t.Fatalf("leased %v, want task %s with payload %s", a, id, payload)
		}
		call("a report", func() error {
			m, err := b.workers.Complete(ctx,
				&lessorv1.CompleteRequest{TaskId: id, LeaseId: a.GetLeaseId(), Output: []byte(payload)})
			if err == nil && m.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Errorf("the verdict is %v, want COMMITTED", m)
			}
			return err
		})
		call("a get", func() error {
			m, err := b.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})
			if got := m.GetTask(); err == nil && (got.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || string(got.GetOutput()) != payload) {
				t.Errorf("the task is %v, want COMPLETED with output %s", got, payload)
			}
			return err
		})
	}
	slices.Sort(took)
	return took
}
