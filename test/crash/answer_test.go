//go:build faults

package crash

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Short names of the verdicts.
const (
	committed = lessorv1.Verdict_VERDICT_COMMITTED
	cancelled = lessorv1.Verdict_VERDICT_CANCELLED
	rejected  = lessorv1.Verdict_VERDICT_REJECTED
)

// answer is a verdict with what the response says beside it.
type answer struct {
	verdict  lessorv1.Verdict
	reason   lessorv1.Reason
	state    lessorv1.TaskState
	retryAt  time.Time
	replayed bool
	stop     bool // should_cancel
}

func (a answer) String() string {
	return fmt.Sprintf("%v/%v, state %v, retry at %v, replayed %v", a.verdict, a.reason, a.state, a.retryAt, a.replayed)
}

// again returns the answer that a repeat of the same report must get (V4).
func (a answer) again() answer {
	a.replayed = true
	return a
}

// final reports whether this answer ended the round.
func (a answer) final() bool { return final(a.state) }

func final(s lessorv1.TaskState) bool {
	switch s {
	case lessorv1.TaskState_TASK_STATE_COMPLETED, lessorv1.TaskState_TASK_STATE_FAILED, lessorv1.TaskState_TASK_STATE_CANCELLED:
		return true
	}
	return false
}

// judgement is what the responses to all reports have in common.
type judgement interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetTaskState() lessorv1.TaskState
}

func answerOf(m judgement) answer {
	a := answer{verdict: m.GetVerdict(), reason: m.GetReason(), state: m.GetTaskState()}
	if r, ok := m.(interface {
		GetReplayed() bool
		GetRetryAt() *timestamppb.Timestamp
	}); ok {
		a.replayed = r.GetReplayed()
		if at := r.GetRetryAt(); at != nil {
			a.retryAt = at.AsTime()
		}
	}
	if s, ok := m.(interface{ GetShouldCancel() bool }); ok {
		a.stop = s.GetShouldCancel()
	}
	return a
}

// report is what a worker says of the outcome of an attempt; one of the requests is set.
type report struct {
	complete *lessorv1.CompleteRequest
	fail     *lessorv1.FailRequest
	release  *lessorv1.ReleaseRequest
}

// send sends the report. An error means that there was no verdict.
func (r *report) send(ctx context.Context, workers lessorv1.WorkerServiceClient) (answer, error) {
	switch {
	case r.complete != nil:
		m, err := workers.Complete(ctx, r.complete)
		return answerOf(m), err
	case r.fail != nil:
		m, err := workers.Fail(ctx, r.fail)
		return answerOf(m), err
	}
	m, err := workers.Release(ctx, r.release)
	return answerOf(m), err
}

// event returns the type of the history entry that the report leads to.
func (r *report) event() lessorv1.HistoryEventType {
	switch {
	case r.complete != nil:
		return lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED
	case r.fail != nil:
		return lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED
	}
	return lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED
}

func completion(a *attempt, output string) *report {
	return &report{complete: &lessorv1.CompleteRequest{
		TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number, Output: []byte(output),
	}}
}

func failure(a *attempt, message string, retryable bool) *report {
	return &report{fail: &lessorv1.FailRequest{
		TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number,
		Error: &lessorv1.TaskError{
			Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: message,
			Retryable: &retryable,
		},
	}}
}

func release(a *attempt) *report {
	return &report{release: &lessorv1.ReleaseRequest{TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number}}
}
