//go:build faults

package linear

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

const (
	queue = "linear"
	runID = "linear"
	// shortest is the shortest heartbeat_timeout that is allowed.
	shortest = 100 * time.Millisecond
	// final is the content of a Fail that is not retried.
	final = "final"
)

// contents are the contents that reports choose from.
var contents = []string{"one", "two", final}

// spec has the budgets of the model, a practically unlimited number of losses, and short waits.
func spec(name string, ttl time.Duration) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: queue, RunId: runID, IdempotencyKey: name,
		HeartbeatInterval: durationpb.New(ttl / 2), HeartbeatTimeout: durationpb.New(ttl),
		CancelGrace: durationpb.New(3 * ttl / 2),
		RetryPolicy: &lessorv1.RetryPolicy{
			MaxAttempts: maxAttempts, MaxLosses: 1000,
			InitialBackoff: durationpb.New(20 * time.Millisecond), MaxBackoff: durationpb.New(20 * time.Millisecond),
		},
	}
}

// call makes a call and enters its answer in o. An error means that there is no answer.
func (w *caller) call(conn *grpc.ClientConn, o *op, id, held string) (grants []op, err error) {
	ctx, stop := context.WithTimeout(context.Background(), harness.Patience)
	defer stop()
	tasks := lessorv1.NewTaskServiceClient(conn)
	switch o.Kind {
	case submit:
		var m *lessorv1.SubmitTaskResponse
		if m, err = tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec(o.Task, w.ttl)}); err == nil {
			o.Answer.Created = m.GetCreated()
			w.known.addTask(knownTask{o.Task, m.GetTask().GetTaskId()})
		}
	case lease:
		grants, err = w.lease(ctx, conn)
	case get:
		var m *lessorv1.GetTaskResponse
		if m, err = tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id}); err == nil {
			o.Answer = read(m.GetTask())
		}
	case cancel:
		var m *lessorv1.CancelTaskResponse
		m, err = tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})
		o.Answer, err = changed(m.GetTask(), err)
	case retry:
		var m *lessorv1.RetryTaskResponse
		m, err = tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})
		o.Answer, err = changed(m.GetTask(), err)
	default:
		o.Answer, err = w.say(ctx, lessorv1.NewWorkerServiceClient(conn), o, id, held)
	}
	return grants, cutOff(err)
}

// cutOff returns an error that a kill may have caused. Any other error is a fault of the test, and
// ends the process.
func cutOff(err error) error {
	switch status.Code(err) {
	case codes.OK, codes.Unavailable:
		return err
	}
	die(err)
	return nil
}

func (w *caller) lease(ctx context.Context, conn *grpc.ClientConn) (grants []op, err error) {
	m, err := lessorv1.NewWorkerServiceClient(conn).Lease(ctx,
		&lessorv1.LeaseRequest{WorkerId: w.name, Queues: []string{queue}, MaxTasks: 1})
	for _, a := range m.GetAssignments() {
		t := knownTask{a.GetTask().GetSpec().GetIdempotencyKey(), a.GetTask().GetTaskId()}
		w.known.addLease(heldLease{t, a.GetLeaseId(), a.GetAttempt()})
		grants = append(grants, op{Kind: granted, Task: t.name, Attempt: a.GetAttempt(), Token: a.GetFencingToken()})
	}
	return grants, err
}

// read returns the parts of a task that the check compares.
func read(t *lessorv1.Task) answer {
	return answer{State: stateName(t.GetState()), Attempt: t.GetAttempt(), Output: string(t.GetOutput())}
}

func stateName(s lessorv1.TaskState) string {
	if s == lessorv1.TaskState_TASK_STATE_READY || s == lessorv1.TaskState_TASK_STATE_SCHEDULED {
		return waiting
	}
	return strings.TrimPrefix(s.String(), "TASK_STATE_")
}

// changed returns the answer to a command on a task. A refusal for its state is an answer, too.
func changed(t *lessorv1.Task, err error) (answer, error) {
	if status.Code(err) == codes.FailedPrecondition {
		return answer{Refused: codes.FailedPrecondition.String()}, nil
	}
	if err != nil {
		return answer{}, err
	}
	return answer{State: stateName(t.GetState())}, nil
}

// verdict is what the answers to all calls about a lease have in common.
type verdict interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetTaskState() lessorv1.TaskState
	GetCurrentAttempt() uint32
}

func verdictAnswer(m verdict) answer {
	a := answer{
		Verdict: strings.TrimPrefix(m.GetVerdict().String(), "VERDICT_"),
		Reason:  strings.TrimPrefix(m.GetReason().String(), "REASON_"),
		State:   stateName(m.GetTaskState()),
	}
	if m.GetReason() == lessorv1.Reason_REASON_SUPERSEDED {
		a.Superseding = m.GetCurrentAttempt()
	}
	if r, ok := m.(interface{ GetReplayed() bool }); ok {
		a.Replayed = r.GetReplayed()
	}
	if s, ok := m.(interface{ GetShouldCancel() bool }); ok {
		a.ShouldCancel = s.GetShouldCancel()
	}
	return a
}

// say makes a call about a lease.
func (w *caller) say(ctx context.Context, c lessorv1.WorkerServiceClient, o *op, id, held string) (answer, error) {
	switch o.Kind {
	case start:
		return answerOf(c.Start(ctx, &lessorv1.StartRequest{TaskId: id, LeaseId: held, Attempt: o.Attempt}))
	case heartbeat:
		return answerOf(c.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: held, Attempt: o.Attempt}))
	case complete:
		return answerOf(c.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: held, Attempt: o.Attempt, Output: []byte(o.Content)}))
	case fail:
		e := &lessorv1.TaskError{Message: o.Content, Category: lessorv1.ErrorCategory_ERROR_CATEGORY_INFRASTRUCTURE}
		if o.Content == final {
			e.Category = lessorv1.ErrorCategory_ERROR_CATEGORY_CONFIGURATION
		}
		return answerOf(c.Fail(ctx, &lessorv1.FailRequest{TaskId: id, LeaseId: held, Attempt: o.Attempt, Error: e}))
	case release:
		o.Content = "" // two releases are always the same report, since V13 does not compare the reason
		return answerOf(c.Release(ctx, &lessorv1.ReleaseRequest{TaskId: id, LeaseId: held, Attempt: o.Attempt}))
	}
	return answer{}, fmt.Errorf("no call %q", o.Kind)
}

func answerOf[M verdict](m M, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	return verdictAnswer(m), nil
}
