package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
	"github.com/lessor-dev/lessor/lease"
)

// Outcomes of an attempt.
const (
	outcomeSucceeded = "SUCCEEDED"
	outcomeFailed    = "FAILED"
	outcomeCancelled = "CANCELLED"
)

// completedRequest says how an attempt ended.
type completedRequest struct {
	claim
	Outcome              string           `json:"outcome"`
	StartedAt            instant          `json:"startedAt"`
	CompletedAt          instant          `json:"completedAt"`
	ReportID             string           `json:"reportId"`
	Output               json.RawMessage  `json:"output"`
	OutputBase64         []byte           `json:"outputBase64"`
	Artifacts            []artifact       `json:"artifacts"`
	Metrics              entries[float64] `json:"metrics"`
	Error                *taskError       `json:"error"`
	CancelledDuringPhase string           `json:"cancelledDuringPhase"`
	PartialProgress      json.RawMessage  `json:"partialProgress"`
}

// completedResponse answers with the verdict COMMITTED. FinalState is the final state of the
// attempt, not of the task: after a FAILED attempt the task may be SCHEDULED again.
type completedResponse struct {
	committed
	FinalState string  `json:"finalState"`
	RetryAt    instant `json:"retryAt,omitzero"`
	Replayed   bool    `json:"replayed,omitempty"`
}

// outcome has the methods that the responses to Complete and Fail share.
type outcome interface {
	verdict
	GetRetryAt() *timestamppb.Timestamp
	GetReplayed() bool
}

// completed answers POST /v1/tasks/{task_id}/completed.
func (a *api) completed(w http.ResponseWriter, r *http.Request, h Holder) *problem {
	var m completedRequest
	if p := a.read(w, r, h, &m, &m.claim, lease.KindComplete); p != nil {
		return p
	}
	said, judge, sent := lease.KindFail, a.failedOrCancelled, m.Outcome
	switch m.Outcome = strings.ToUpper(sent); m.Outcome {
	case outcomeSucceeded:
		said, judge = lease.KindComplete, a.succeeded
	case outcomeFailed, outcomeCancelled:
	case "":
		return rejected(invalid("outcome", "is missing; it is SUCCEEDED, FAILED or CANCELLED"), lease.KindComplete)
	default:
		problem := invalid("outcome", "is %q; it is SUCCEEDED, FAILED or CANCELLED", strictjson.Clip(sent))
		return rejected(problem, lease.KindComplete)
	}
	if field := m.misplaced(); field != "" {
		return rejected(invalid(field, "cannot be sent with the outcome %s", m.Outcome), said)
	}
	return judge(w, r, h, &m)
}

// misplaced returns a field that says something else than the outcome; empty: there is none. The
// call for the outcome has no place for it.
func (m *completedRequest) misplaced() string {
	done := m.Outcome == outcomeSucceeded
	switch {
	case done && m.Error != nil:
		return "error"
	case done && m.CancelledDuringPhase != "":
		return "cancelledDuringPhase"
	case done && isSent(m.PartialProgress):
		return "partialProgress"
	case !done && isSent(m.Output):
		return "output"
	case !done && m.OutputBase64 != nil:
		return "outputBase64"
	case !done && len(m.Artifacts) > 0:
		return "artifacts"
	}
	return ""
}

func (a *api) succeeded(w http.ResponseWriter, r *http.Request, h Holder, m *completedRequest) *problem {
	output, p := bytesOf("output", m.Output, m.OutputBase64)
	if p != nil {
		return rejected(p, lease.KindComplete)
	}
	return report(w, r, h, a.workers.Complete, &lessorv1.CompleteRequest{
		TaskId:      h.Ticket.Task.String(),
		LeaseId:     h.LeaseID,
		Attempt:     h.Ticket.Attempt,
		WorkerId:    m.WorkerID,
		Traceparent: m.Traceparent,
		ReportId:    m.ReportID,
		Output:      output,
		Artifacts:   artifactProtos(m.Artifacts),
		Metrics:     m.Metrics,
		StartedAt:   stamp(m.StartedAt),
		CompletedAt: stamp(m.CompletedAt),
	}, func(v *lessorv1.CompleteResponse) any { return m.accepted(v) })
}

// failedOrCancelled reports a failure. If the outcome is CANCELLED (a cancel stopped the work), the
// failure has the category CANCELLED (V16).
func (a *api) failedOrCancelled(w http.ResponseWriter, r *http.Request, h Holder, m *completedRequest) *problem {
	partial, p := bytesOf("partialProgress", m.PartialProgress, nil)
	if p != nil {
		return rejected(p, lease.KindFail)
	}
	if m.Outcome == outcomeCancelled {
		if m.Error == nil {
			// not that a cancel stopped it: perhaps nobody has asked for one
			m.Error = &taskError{Message: "reported without an error"}
		}
		m.Error.Category = outcomeCancelled
	}
	problem, p := m.Error.proto()
	if p != nil {
		return rejected(p, lease.KindFail)
	}
	return report(w, r, h, a.workers.Fail, &lessorv1.FailRequest{
		TaskId:               h.Ticket.Task.String(),
		LeaseId:              h.LeaseID,
		Attempt:              h.Ticket.Attempt,
		WorkerId:             m.WorkerID,
		Traceparent:          m.Traceparent,
		ReportId:             m.ReportID,
		Error:                problem,
		Metrics:              m.Metrics,
		StartedAt:            stamp(m.StartedAt),
		CompletedAt:          stamp(m.CompletedAt),
		CancelledDuringPhase: m.CancelledDuringPhase,
		PartialProgress:      partial,
	}, func(v *lessorv1.FailResponse) any { return m.accepted(v) })
}

func (m *completedRequest) accepted(v outcome) completedResponse {
	return completedResponse{
		committed: committedOf(v), FinalState: m.finalState(v.GetTaskState()),
		RetryAt: instantOf(v.GetRetryAt()), Replayed: v.GetReplayed(),
	}
}

// finalState returns how the attempt ended: the state of its task if the task has ended, else the
// reported outcome.
func (m *completedRequest) finalState(s lessorv1.TaskState) string {
	if s >= lessorv1.TaskState_TASK_STATE_COMPLETED {
		return contractState(s)
	}
	return m.Outcome
}
