//go:build faults

package standby

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

const queue = "standby"

// book holds what clients were told.
type book struct {
	mu        sync.Mutex
	next      int
	payloads  map[string][]byte // of submits that were acknowledged, by task
	outputs   map[string][]byte // of reports that were COMMITTED, by task
	cancelled map[string]bool   // tasks whose cancel was acknowledged before they were granted
}

func newBook() *book {
	return &book{payloads: map[string][]byte{}, outputs: map[string][]byte{}, cancelled: map[string]bool{}}
}

func (b *book) update(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn()
}

// sizes returns how many submits and reports were acknowledged.
func (b *book) sizes() (submits, reports int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.payloads), len(b.outputs)
}

// copied returns what was told until now.
func (b *book) copied() *book {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &book{payloads: maps.Clone(b.payloads), outputs: maps.Clone(b.outputs), cancelled: maps.Clone(b.cancelled)}
}

// produce submits tasks until a call gets no answer. It cancels each tenth.
func (b *book) produce(ctx context.Context, tasks lessorv1.TaskServiceClient) {
	for {
		var payload []byte
		var cancel bool
		b.update(func() {
			b.next++
			payload, cancel = fmt.Appendf(nil, "payload %d", b.next), b.next%10 == 0
		})
		spec := &lessorv1.TaskSpec{Queue: queue, Payload: payload}
		if cancel {
			spec.RunAt = timestamppb.New(time.Now().Add(time.Hour))
		}
		m, err := tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
		if err != nil {
			return
		}
		id := m.GetTask().GetTaskId()
		b.update(func() { b.payloads[id] = payload })
		if !cancel {
			continue
		}
		if _, err := tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
			return
		}
		b.update(func() { b.cancelled[id] = true })
	}
}

// work completes tasks until a call gets no answer.
func (b *book) work(ctx context.Context, t *testing.T, worker string, workers lessorv1.WorkerServiceClient) {
	for {
		got, err := workers.Lease(ctx, &lessorv1.LeaseRequest{
			WorkerId: worker, Queues: []string{queue}, MaxTasks: 4,
			Wait: durationpb.New(time.Second),
		})
		if err != nil {
			return
		}
		for _, a := range got.GetAssignments() {
			id := a.GetTask().GetTaskId()
			output := fmt.Appendf(nil, "output of attempt %d by %s", a.GetAttempt(), worker)
			m, err := workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: a.GetLeaseId(), Output: output})
			if err != nil {
				return
			}
			if m.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Errorf("the report of task %s got %v", id, m)
			}
			b.update(func() { b.outputs[id] = output })
		}
	}
}

// compare reads every task that was acknowledged.
func (b *book) compare(ctx context.Context, t *testing.T, tasks lessorv1.TaskServiceClient) {
	t.Helper()
	b = b.copied()
	lost := 0
	for id, payload := range b.payloads {
		m, err := tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})
		task := m.GetTask()
		switch {
		case status.Code(err) == codes.NotFound:
			t.Errorf("task %s was acknowledged, and is lost", id)
			lost++
		case err != nil:
			t.Fatalf("GetTask: %v", err)
		case !bytes.Equal(task.GetSpec().GetPayload(), payload):
			t.Errorf("task %s has the payload %q, want %q", id, task.GetSpec().GetPayload(), payload)
		case b.outputs[id] != nil && !bytes.Equal(task.GetOutput(), b.outputs[id]):
			t.Errorf("task %s was COMMITTED with output %q, and is %v with %q",
				id, b.outputs[id], task.GetState(), task.GetOutput())
			lost++
		case b.cancelled[id] && task.GetState() != lessorv1.TaskState_TASK_STATE_CANCELLED:
			t.Errorf("the cancel of task %s was acknowledged, and it is %v", id, task.GetState())
			lost++
		}
		if lost > 10 {
			t.Fatal("much is lost")
		}
	}
}
