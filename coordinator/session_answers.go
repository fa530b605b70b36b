package coordinator

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

func (o *outbox) accept(corr string, a *lessorv1.Accept) {
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Accept{Accept: a}}
	})
}

func (o *outbox) ack(frame string) {
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: frame, Ack: &lessorv1.Ack{For: frame}}
	})
}

// fail answers a bad frame. Nothing was changed by it.
func (o *outbox) fail(corr, code, message, remediation string) {
	o.ss.log.Warn("frame refused", "corr", corr, "code", code, "problem", message)
	o.reply(func(lease.Now) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Error{
			Error: &lessorv1.Error{Code: code, Message: message, Remediation: remediation},
		}}
	})
}

// reset says what the last frame will be, of a session that the coordinator ends. The first word counts.
func (o *outbox) reset(code, reason string, retryAfter time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = &lessorv1.Reset{Code: code, Reason: reason, RetryAfter: durationpb.New(retryAfter)}
	}
}

// verdicts answers a reports frame; err means that there is no verdict.
func (o *outbox) verdicts(corr string, bytes int, reports []*lease.Report, ids []string, answers []lease.Answer, err error) {
	o.put(outgoing{bytes: bytes, make: func(now lease.Now) *lessorv1.SessionResponse {
		items := make([]*lessorv1.ReportVerdict, len(reports))
		for i, r := range reports {
			items[i] = &lessorv1.ReportVerdict{Error: itemError(err)}
			if err == nil {
				items[i] = reportVerdict(now, &answers[i])
			}
			items[i].TaskId, items[i].LeaseId = r.TaskID, r.LeaseID
			items[i].Kind, items[i].ReportId = lessorv1.ReportKind(r.Kind), ids[i]
		}
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Verdicts{
			Verdicts: &lessorv1.Verdicts{Verdicts: items},
		}}
	}})
}

// renewals answers a heartbeat frame; err means that there is no verdict.
func (o *outbox) renewals(corr string, bytes int, reports []*lease.Report, answers []lease.Answer, err error) {
	o.put(outgoing{bytes: bytes, make: func(now lease.Now) *lessorv1.SessionResponse {
		items := make([]*lessorv1.LeaseAck, len(reports))
		for i, r := range reports {
			items[i] = &lessorv1.LeaseAck{TaskId: r.TaskID, LeaseId: r.LeaseID, Error: itemError(err)}
			if err == nil {
				items[i].Heartbeat = heartbeatResponse(now, &answers[i])
			}
		}
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_HeartbeatAck{
			HeartbeatAck: &lessorv1.HeartbeatAck{Leases: items, ServerTime: stamp(now.Wall)},
		}}
	}})
}

// late answers acknowledgements. Those that came in time need no answer; the others are told to stop (W5).
func (o *outbox) late(reports []*lease.Report, answers []lease.Answer) {
	for i, a := range answers {
		if a.Verdict == lease.VerdictCancelled && a.Reason != lease.AlreadyReported {
			o.cancel(&lessorv1.Cancel{
				TaskId: reports[i].TaskID, LeaseId: reports[i].LeaseID, Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
			})
		}
	}
}

// cancel tells of a lease to stop.
func (o *outbox) cancel(c *lessorv1.Cancel) {
	o.add(func(w *waiting) { w.pushed = append(w.pushed, push{cancel: c}) })
}

// drain tells that no more work will come (W10).
func (o *outbox) drain(d *lessorv1.Drain) {
	o.add(func(w *waiting) { w.pushed = append(w.pushed, push{drain: d}) })
}

// itemError says that an item got no verdict, and when to repeat it; nil for nil.
func itemError(err error) *lessorv1.ItemError {
	if err == nil {
		return nil
	}
	code, wait := codeInternal, retryStopped
	switch {
	case errors.Is(err, engine.ErrStopped):
		code = codeStopping
	case errors.Is(err, engine.ErrOverloaded):
		code, wait = codeOverloaded, retryOverloaded
	case errors.Is(err, engine.ErrStore): // the cause is for the operator's log
		code, err = codeStore, engine.ErrStore
	}
	return &lessorv1.ItemError{Code: code, RetryAfter: durationpb.New(wait), Message: err.Error()}
}

func reportVerdict(now lease.Now, a *lease.Answer) *lessorv1.ReportVerdict {
	return &lessorv1.ReportVerdict{
		Verdict: lessorv1.Verdict(a.Verdict), Reason: lessorv1.Reason(a.Reason), Detail: a.Detail,
		TaskState: lessorv1.TaskState(a.State), ShouldCancel: a.ShouldCancel, CancelReason: a.CancelReason,
		ExpiresAt: stampAt(now, a.ExpiresAt), ExpiresIn: left(now, a.ExpiresAt),
		CurrentAttempt: a.CurrentAttempt, RetryAt: stamp(a.RetryAt), Replayed: a.Replayed, ServerTime: stamp(now.Wall),
	}
}
