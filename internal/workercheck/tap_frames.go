package workercheck

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// hearMessage records what the worker says, and puts in the faults. An error ends the call with it.
func (c *call) hearMessage(m proto.Message) error {
	switch m := m.(type) {
	case *lessorv1.LeaseRequest:
		c.rec.takesFrom(m.GetQueues())
		c.rec.ask(calls, "Lease")
		return c.refuseIfBusy(nil)
	case *lessorv1.SessionRequest:
		return c.hearFrame(m)
	case report:
		return c.hearReport(m, calls)
	}
	return nil
}

// hearFrame is hearMessage for a frame of a session.
func (c *call) hearFrame(m *lessorv1.SessionRequest) error {
	if id := m.GetAck().GetFor(); id != "" {
		c.rec.ack(c.sent.upTo(id))
	}
	switch p := m.GetPayload().(type) {
	case *lessorv1.SessionRequest_Handshake:
		how := "handshake"
		if p.Handshake.GetResume() != nil {
			how += ", resume"
		}
		c.rec.handshake(m)
		c.rec.ask(stream, how)
		return c.refuseIfBusy(m)
	case *lessorv1.SessionRequest_Register:
		c.rec.takesFrom(p.Register.GetQueues())
		c.rec.note("worker: register, %d slots", p.Register.GetCapabilities().GetConcurrency().GetMaxParallel())
	case *lessorv1.SessionRequest_Drain:
		c.rec.note("worker: drain")
	case *lessorv1.SessionRequest_Goodbye:
		c.rec.note("worker: goodbye")
		c.leave()
	case *lessorv1.SessionRequest_Error:
		c.rec.note("worker: error %s: %s", p.Error.GetCode(), p.Error.GetMessage())
	case *lessorv1.SessionRequest_Heartbeat:
		for _, h := range p.Heartbeat.GetLeases() {
			if err := c.hearReport(h, stream); err != nil {
				return err
			}
		}
	case *lessorv1.SessionRequest_Reports:
		for _, item := range p.Reports.GetReports() {
			if said := reportOf(item); said != nil {
				if err := c.hearReport(said, stream); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func reportOf(item *lessorv1.Report) report {
	switch r := item.GetReport().(type) {
	case *lessorv1.Report_Start:
		return r.Start
	case *lessorv1.Report_Complete:
		return r.Complete
	case *lessorv1.Report_Fail:
		return r.Fail
	case *lessorv1.Report_Release:
		return r.Release
	}
	return nil
}

func (c *call) hearReport(m report, by way) error {
	k, content, category := describe(m)
	w := c.rec.say(k, m.GetTaskId(), m.GetLeaseId(), m.GetAttempt(), content, category)
	if w == nil {
		return nil
	}
	switch c.hear(w) {
	case refuse:
		c.rec.answer(w, lessorv1.Verdict_VERDICT_UNSPECIFIED, "", "the coordinator cannot be reached")
		if by == stream && c.parted() {
			return nil // up goes no further
		}
		return errCut
	case spoil:
		const wrong = 1000
		fields := m.ProtoReflect().Descriptor().Fields()
		m.ProtoReflect().Set(fields.ByName("attempt"), protoreflect.ValueOfUint32(w.attempt.number+wrong)) // V6
	}
	if by == calls {
		c.said.Store(w)
	}
	return nil
}

// describe returns what a report is, with what makes it the same as another (V13).
func describe(m report) (k kind, content, category string) {
	switch m := m.(type) {
	case *lessorv1.StartRequest:
		if m.GetBegun() {
			return start, begun, ""
		}
		return start, "", ""
	case *lessorv1.HeartbeatRequest:
		return heartbeat, "", ""
	case *lessorv1.CompleteRequest:
		return complete, digest(&lessorv1.CompleteRequest{Output: m.GetOutput(), Artifacts: m.GetArtifacts()}), ""
	case *lessorv1.FailRequest:
		e := proto.CloneOf(m.GetError())
		if e != nil {
			e.RetryAfter = nil
		}
		return fail, digest(&lessorv1.FailRequest{Error: e}),
			strings.TrimPrefix(m.GetError().GetCategory().String(), "ERROR_CATEGORY_")
	}
	return release, "", ""
}

func digest(m proto.Message) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return string(b)
}

// refuseIfBusy refuses a request for work, or the handshake that begins a session, if the worker
// shall wait.
func (c *call) refuseIfBusy(handshake *lessorv1.SessionRequest) error {
	wait := c.busy()
	if wait == 0 {
		return nil
	}
	c.rec.note("coordinator: come back in %v", wait)
	if handshake == nil {
		return busyStatus(wait)
	}
	if err := c.near.SendMsg(busyReset(handshake, wait)); err != nil {
		return err
	}
	return errEnd
}

// tellMessage records what the worker is told, and returns an error if it shall not arrive.
func (c *call) tellMessage(m proto.Message) error {
	switch m := m.(type) {
	case *lessorv1.LeaseResponse:
		if c.loseGrant(len(m.GetAssignments())) {
			return errCut
		}
		c.grant(m.GetAssignments())
	case *lessorv1.SessionResponse:
		return c.tellFrame(m)
	case verdict:
		return c.tellVerdict(c.said.Load(), m)
	}
	return nil
}

func (c *call) grant(assignments []*lessorv1.Assignment) (granted []*attempt) {
	for _, a := range assignments {
		granted = append(granted, c.rec.grant(a.GetTask().GetTaskId(), a.GetLeaseId(), a.GetAttempt()))
	}
	return granted
}

func (c *call) tellFrame(m *lessorv1.SessionResponse) error {
	var cut error
	var granted []*attempt
	switch p := m.GetPayload().(type) {
	case *lessorv1.SessionResponse_Accept:
		c.rec.note("coordinator: accept, resumed: %v", p.Accept.GetResumed())
	case *lessorv1.SessionResponse_Dispatch:
		granted = c.grant(p.Dispatch.GetAssignments())
	case *lessorv1.SessionResponse_Verdicts:
		for _, v := range p.Verdicts.GetVerdicts() {
			cut = errors.Join(cut, c.tellVerdict(c.rec.unanswered(v.GetLeaseId(), kindOf(v.GetKind())), v))
		}
	case *lessorv1.SessionResponse_HeartbeatAck:
		for _, v := range p.HeartbeatAck.GetLeases() {
			cut = errors.Join(cut, c.tellVerdict(c.rec.unanswered(v.GetLeaseId(), heartbeat), v))
		}
	case *lessorv1.SessionResponse_Cancel:
		if p.Cancel.GetGrace() == nil {
			c.rec.cancel(p.Cancel.GetLeaseId(), nameOf(p.Cancel.GetReason()))
		} else {
			c.rec.stop(c.rec.ofLease(p.Cancel.GetLeaseId()), p.Cancel.GetGrace().AsDuration())
		}
	case *lessorv1.SessionResponse_Drain:
		c.rec.note("coordinator: drain")
	case *lessorv1.SessionResponse_Error:
		c.rec.refuse("error "+p.Error.GetCode(), errors.New(p.Error.GetMessage()))
	case *lessorv1.SessionResponse_Reset_:
		c.rec.reset(p.Reset_.GetCode(), p.Reset_.GetReason())
		if p.Reset_.GetLeasesEnded() {
			c.rec.kick()
		}
	}
	c.sent.add(m.GetId(), granted)
	if cut != nil {
		return errCut
	}
	return nil
}

func kindOf(k lessorv1.ReportKind) kind {
	return kind(strings.ToLower(strings.TrimPrefix(k.String(), "REPORT_KIND_")))
}

func nameOf(r lessorv1.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// verdict is what all verdicts have in common.
type verdict interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
}

// cancelling is a verdict that may tell the worker to stop.
type cancelling interface {
	GetShouldCancel() bool
	GetCancelGraceLeft() *durationpb.Duration
}

// tellVerdict records the verdict on w, which may be nil.
func (c *call) tellVerdict(w *word, v verdict) error {
	switch c.tell(w) {
	case lose:
		c.rec.answer(w, v.GetVerdict(), nameOf(v.GetReason()), lostOnTheWay)
		return errCut
	case mask:
		if item, ok := v.(*lessorv1.ReportVerdict); ok {
			hidden := &lessorv1.ReportVerdict{
				TaskId: item.GetTaskId(), LeaseId: item.GetLeaseId(),
				Kind: item.GetKind(), ReportId: item.GetReportId(),
			}
			hidden.Error = &lessorv1.ItemError{
				Code:    codeOverloaded,
				Message: "too much is waiting for the disk", RetryAfter: durationpb.New(beat),
			}
			proto.Reset(item)
			proto.Merge(item, hidden)
			c.rec.answer(w, item.GetVerdict(), "", "error "+codeOverloaded)
			return nil
		}
	}
	c.rec.answer(w, v.GetVerdict(), nameOf(v.GetReason()), "")
	if cancel, ok := v.(cancelling); ok && w != nil && v.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED &&
		cancel.GetShouldCancel() {
		c.rec.stop(w.attempt, cancel.GetCancelGraceLeft().AsDuration())
	}
	return nil
}

// lostOnTheWay says what becomes of a lost answer.
const lostOnTheWay = "the connection is lost before it arrives"
