package session

import (
	"fmt"
	"slices"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// reports takes starts and outcomes; their verdicts come back in the same order.
func (ss *Session) reports(corr string, m *lessorv1.Reports) {
	if !ss.fits(corr, "reports.reports", len(m.GetReports())) {
		return
	}
	reports := convert.ParseReports(m.GetReports(), ss.srv.Limits)
	ids := make([]string, len(reports))
	for i, r := range m.GetReports() {
		reports[i].Session = ss.id
		ids[i] = reportID(r)
	}
	ss.acks.join(reports)
	ss.passAcks()
	ss.passAll()
	ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.fines.add(rejected(answers)) // heartbeats have a pace of their own
		ss.out.verdicts(corr, bytes, reports, ids, answers, err)
	})
}

func reportID(m *lessorv1.Report) string {
	switch m := m.GetReport().(type) {
	case *lessorv1.Report_Complete:
		return m.Complete.GetReportId()
	case *lessorv1.Report_Fail:
		return m.Fail.GetReportId()
	case *lessorv1.Report_Release:
		return m.Release.GetReportId()
	}
	return ""
}

func (ss *Session) fits(corr, field string, n int) bool {
	if n <= ss.srv.Limits.MaxFrameItems() {
		return true
	}
	ss.fail(corr, refusal.CodeInvalid, fmt.Sprintf("%s: has %d items; the limit is %d", field, n, ss.srv.Limits.MaxFrameItems()), "split the frame into smaller ones")
	return false
}

// post has reports judged. The answers come on the engine's committer, which must not wait: so room for them is waited for here, where
// only this stream stands still. after gives the bytes back. It is not called where ok is false: the stream is ending.
func (ss *Session) post(reports []*lease.Report, after func(bytes int, answers []lease.Answer, err error)) (ok bool) {
	bytes := ss.size + (1+len(reports))*answerSize
	if !ss.out.reserve(bytes) {
		return false
	}
	judged := func(answers []lease.Answer, err error) { after(bytes, answers, err) }
	if err := ss.srv.Engine.Post(ss.who.Tenant, reports, judged); err != nil {
		judged(nil, err)
	}
	return true
}

// rejected counts the verdicts on what no worker that obeys the protocol says.
func rejected(answers []lease.Answer) (n int) {
	for i := range answers {
		if answers[i].Verdict == lease.VerdictRejected {
			n++
		}
	}
	return n
}

// acks holds the leases that a frame acknowledges (W5): those of the dispatch that its ack names, and those of the dispatches before it.
type acks struct{ before, named []handedLease }

// join removes the leases for which the frame has a Start, because the Start acknowledges them as well. That is common: the frame that acknowledges
// the dispatch of a short task often starts, and even completes it.
func (a *acks) join(reports []*lease.Report) {
	if len(a.before)+len(a.named) == 0 {
		return
	}
	starts := make(map[lease.TaskID]*lease.Report, len(reports))
	for _, r := range reports {
		if id, ok := lease.ParseTaskID(r.TaskID); ok && r.Kind == lease.KindStart {
			starts[id] = r
		}
	}
	a.before, a.named = unstarted(a.before, starts), unstarted(a.named, starts)
}

// unstarted returns the leases for which there is no Start. It does not write to leases, which belongs to the dispatch that was sent.
func unstarted(leases []handedLease, starts map[lease.TaskID]*lease.Report) (rest []handedLease) {
	for _, l := range leases {
		if r := starts[l.task]; r == nil || !l.startedBy(r) {
			rest = append(rest, l)
		}
	}
	return rest
}

// startedBy reports whether a Start of the task is about this lease and will not be REJECTED. Such a Start acknowledges the lease, ends it (T7), or is
// told that it has ended.
func (h *handedLease) startedBy(r *lease.Report) bool {
	return r.LeaseID == h.lease && r.Invalid == nil && (r.Attempt == 0 || r.Attempt == h.attempt)
}

// passAcks has the engine judge the acknowledgements that came with the present frame.
func (ss *Session) passAcks() {
	before, leases := len(ss.acks.before), slices.Concat(ss.acks.before, ss.acks.named)
	ss.acks = acks{}
	if len(leases) == 0 {
		return
	}
	reports := make([]*lease.Report, len(leases))
	made := make([]lease.Report, len(leases))
	for i, l := range leases {
		reports[i] = &made[i]
		made[i] = lease.Report{Kind: lease.KindAck, TaskID: l.task.String(), LeaseID: l.lease, Session: ss.id}
	}
	ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.out.release(bytes)
		if err == nil { // else the worker's Start will be judged, or the lease ends
			ss.out.late(reports[before:], answers[before:]) // for earlier dispatches the worker has been told already
		}
	})
}

// notify gets leases to stop from the engine.
func (ss *Session) notify(notices []engine.Notice) {
	for _, n := range notices {
		if n.Reason == lease.DispatchUnacked || n.Reason == lease.LeaseExpired { // one that is short expires first
			ss.awaitsFrame.Store(true)
		}
		ss.out.cancel(&lessorv1.Cancel{
			TaskId: n.Task.String(), LeaseId: n.LeaseID, Reason: lessorv1.Reason(n.Reason), Detail: n.Detail, Grace: convert.Span(n.Grace),
		})
	}
}

// endPause ends the pause that follows an unacknowledged dispatch: the session has said something (W5). It goes on while the worker has
// not even read its work (W11).
func (ss *Session) endPause() {
	if ss.awaitsFrame.Load() && !ss.out.behind() {
		ss.awaitsFrame.Store(false)
		_ = ss.srv.Engine.Heard(ss.who.Tenant, ss.id) // a stopped engine pushes nothing
	}
}
