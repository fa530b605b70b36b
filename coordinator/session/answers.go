package session

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// ack acknowledges a frame.
func (o *outbox) ack(frame string) {
	o.reply(func(lease.Now, convert.Tokens) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Corr: frame, Ack: &lessorv1.Ack{For: frame}}
	})
}

// ackOf returns the acknowledgement of a frame, or nil if the frame does not ask for one.
func ackOf(m *lessorv1.SessionRequest) *lessorv1.Ack {
	if !m.GetAck().GetRequest() {
		return nil
	}
	return &lessorv1.Ack{For: m.GetId()}
}

// missing answers a frame that came after a gap: the frame with seq expected is missing (W7).
func (o *outbox) missing(corr string, expected uint64) {
	o.log.Info("frame is missing", "corr", corr, "code", refusal.CodeSeqGap, "seq", expected)
	o.replyError(corr, &lessorv1.Error{
		Code: refusal.CodeSeqGap, Message: fmt.Sprintf("the frame with seq %d is missing", expected),
		Remediation: "resend the frames from expected_seq on", ExpectedSeq: expected,
	})
}

func (o *outbox) replyError(corr string, e *lessorv1.Error) {
	o.reply(func(lease.Now, convert.Tokens) *lessorv1.SessionResponse { return errorFrame(corr, e) })
}

func errorFrame(corr string, e *lessorv1.Error) *lessorv1.SessionResponse {
	return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Error{Error: e}}
}

// verdicts answers a reports frame. If err is not nil, there are no verdicts, and every item
// carries err.
func (o *outbox) verdicts(corr string, bytes int, reports []*lease.Report, answers []lease.Answer, err error) {
	strip(reports)
	frame := func(now lease.Now, tokens convert.Tokens) *lessorv1.SessionResponse {
		items, made := make([]*lessorv1.ReportVerdict, len(reports)), make([]lessorv1.ReportVerdict, len(reports))
		at, failed := &convert.Times{Now: now}, refusal.ItemError(err) // which all items share
		serverTime := at.Stamp(now.Wall)
		for i, r := range reports {
			m := &made[i]
			if m.Error = failed; failed == nil {
				tokens.ReportVerdict(m, at, &answers[i])
				m.ServerTime = serverTime
			}
			m.TaskId, m.LeaseId, m.Kind, m.ReportId = r.TaskID, r.LeaseID, lessorv1.ReportKind(r.Kind), r.ID
			items[i] = m
		}
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_Verdicts{
			Verdicts: &lessorv1.Verdicts{Verdicts: items},
		}}
	}
	o.put(waitingFrame{reserved: bytes, bytes: len(reports) * answerSize, make: frame})
}

// renewals answers a heartbeat frame. If err is not nil, there are no verdicts, and every item
// carries err. noNewWork says why the worker gets no new work; it is empty if the worker may get
// work.
func (o *outbox) renewals(
	corr string, bytes int, reports []*lease.Report, answers []lease.Answer, noNewWork string, err error,
) {
	strip(reports)
	frame := func(now lease.Now, tokens convert.Tokens) *lessorv1.SessionResponse {
		items, made := make([]*lessorv1.LeaseAck, len(reports)), make([]lessorv1.LeaseAck, len(reports))
		at, failed := &convert.Times{Now: now}, refusal.ItemError(err) // which all items share
		serverTime := at.Stamp(now.Wall)
		for i, r := range reports {
			m := &made[i]
			if m.Error = failed; failed == nil {
				tokens.LeaseAck(m, at, &answers[i])
				m.ServerTime = serverTime
			}
			m.TaskId, m.LeaseId = r.TaskID, r.LeaseID
			items[i] = m
		}
		return &lessorv1.SessionResponse{Corr: corr, Payload: &lessorv1.SessionResponse_HeartbeatAck{
			HeartbeatAck: &lessorv1.HeartbeatAck{Leases: items, ServerTime: serverTime, NoNewWork: noNewWork},
		}}
	}
	o.put(waitingFrame{reserved: bytes, bytes: len(reports) * answerSize, make: frame})
}

// strip drops the parts of judged reports that the answers do not need, because the reports stay in
// memory until the answers are sent.
func strip(reports []*lease.Report) {
	for _, r := range reports {
		r.Result, r.Failure, r.Checkpoint = nil, nil, nil
	}
}

// cancelLate answers acknowledgements of dispatches. An acknowledgement in time needs no answer.
// For one that came too late, the worker gets a cancel of the lease (W5).
func (o *outbox) cancelLate(reports []*lease.Report, answers []lease.Answer) {
	for i, a := range answers {
		if a.Verdict == lease.VerdictCancelled && a.Reason != lease.AlreadyReported {
			o.cancel(&lessorv1.Cancel{
				TaskId:  reports[i].TaskID,
				LeaseId: reports[i].LeaseID,
				Reason:  lessorv1.Reason(a.Reason),
				Detail:  a.Detail,
			}, 0)
		}
	}
}

// cancel queues a frame that tells the worker to stop the task of a lease by graceEnds; 0: the
// lease is lost. The frame may wait for a stream, and be sent again: its grace is what is left when
// it is sent (T7).
func (o *outbox) cancel(c *lessorv1.Cancel, graceEnds lease.Instant) {
	o.push(func(now lease.Now, _ convert.Tokens) *lessorv1.SessionResponse {
		m := proto.CloneOf(c) // a stream that is stuck may still be sending an earlier one
		if graceEnds != 0 {
			m.Grace = convert.Span(max(graceEnds.Sub(now.Serving), leastGrace))
		}
		return &lessorv1.SessionResponse{Corr: m.GetTaskId(), Payload: &lessorv1.SessionResponse_Cancel{Cancel: m}}
	})
}

// leastGrace is what a cancel that is sent after the end of the grace has: without a grace it would
// say that the lease is lost, which may not be decided yet.
const leastGrace = time.Millisecond

// drain queues a frame that tells the worker that it will get no more work (W10).
func (o *outbox) drain(d *lessorv1.Drain) {
	o.push(func(lease.Now, convert.Tokens) *lessorv1.SessionResponse {
		return &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: d}}
	})
}
