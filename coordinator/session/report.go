package session

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// reports handles a reports frame: starts and outcomes. The verdicts go back in the same order.
func (ss *Session) reports(corr string, m *lessorv1.Reports) {
	if ss.refuseTooMany(corr, "reports.reports", len(m.GetReports())) {
		return
	}
	reports := convert.ParseReports(m.GetReports(), ss.srv.Limits)
	for _, r := range reports {
		r.Session = ss.id
	}
	ss.logReports(reports)
	ss.acks.dropReported(reports, ss.srv.Limits)
	ss.passAcks()
	ss.feeds.passAll()
	ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.fines.add(rejected(answers)) // heartbeats have no fines, but a pace; see pace
		ss.out.verdicts(corr, bytes, reports, answers, err)
	})
}

// logReports writes a line about each start, outcome and renewal in a frame that says something for
// the log.
func (ss *Session) logReports(reports []*lease.Report) {
	if !ss.log.Enabled(ss.stream.Context(), slog.LevelDebug) {
		return
	}
	for _, r := range reports {
		if r.ID != "" || r.At != 0 {
			ss.log.Debug("report", append(convert.LogFields(r), "type", r.Kind.String())...)
		}
	}
}

// refuseTooMany refuses a frame that has more items than a frame may have. It reports whether it
// did.
func (ss *Session) refuseTooMany(corr, field string, n int) (refused bool) {
	if n <= ss.srv.Limits.MaxFrameItems() {
		return false
	}
	ss.refuse(corr, refusal.CodeInvalid,
		fmt.Sprintf("%s: has %d items; the limit is %d", field, n, ss.srv.Limits.MaxFrameItems()),
		"split the frame into smaller ones")
	return true
}

// post gives reports to the engine to judge. The engine's committer calls after with the answers
// and must not wait for room, so post waits for it: that stops only this stream. after must give
// the bytes back. If ok is false, the stream is ending, and after is not called. Watchers get the
// news of those reports that are COMMITTED.
func (ss *Session) post(
	reports []*lease.Report, after func(bytes int, answers []lease.Answer, err error), news ...engine.ReportNews,
) (ok bool) {
	bytes := ss.size + (1+len(reports))*answerSize
	if !ss.out.reserve(bytes) {
		return false
	}
	judged := func(answers []lease.Answer, err error) { after(bytes, answers, err) }
	if err := ss.srv.Engine.Post(ss.who.Tenant, reports, judged, news...); err != nil {
		judged(nil, err)
	}
	return true
}

// rejected counts the REJECTED verdicts. A worker that obeys the protocol gets none.
func rejected(answers []lease.Answer) (n int) {
	for i := range answers {
		if answers[i].Verdict == lease.VerdictRejected {
			n++
		}
	}
	return n
}

// acks holds the leases that a frame acknowledges (W5): those of the dispatch that its ack names,
// and those of the dispatches before it.
type acks struct{ before, named []handedLease }

// dropReported removes the leases about which the frame has a Start or an outcome, because that
// also shows that the dispatch has arrived. This is common: the frame that acknowledges the
// dispatch of a short task often starts the task, or has its outcome already.
func (a *acks) dropReported(reports []*lease.Report, limits lease.Limits) {
	if len(a.before)+len(a.named) == 0 {
		return
	}
	reported := make(map[lease.TaskID]*lease.Report, len(reports))
	for _, r := range reports {
		if id, ok := lease.ParseTaskID(r.TaskID); ok && r.Acceptable(limits) {
			reported[id] = r
		}
	}
	a.before, a.named = unreported(a.before, reported), unreported(a.named, reported)
}

// unreported returns the leases about which there is no report. It does not write to leases, which
// belongs to the dispatch that was sent.
func unreported(leases []handedLease, reported map[lease.TaskID]*lease.Report) (rest []handedLease) {
	for _, l := range leases {
		if r := reported[l.task]; r == nil || !l.acknowledgedBy(r) {
			rest = append(rest, l)
		}
	}
	return rest
}

// acknowledgedBy reports whether a report, which must be acceptable, names this lease, so that it
// will not be REJECTED. It acknowledges the lease, ends it, or gets the answer that the lease has
// ended. In all these cases the lease needs no acknowledgement of its own. A report that is
// REJECTED acknowledges a live lease as well, but if the lease has ended, its answer does not say
// so.
func (h *handedLease) acknowledgedBy(r *lease.Report) bool {
	return r.LeaseID == h.lease && (r.Attempt == 0 || r.Attempt == h.attempt)
}

// passAcks gives the acknowledgements of the present frame to the engine to judge. If the stream is
// ending, they wait for the next one.
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
	ok := ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.out.release(bytes)
		// after an error nothing was judged: the worker's Start acknowledges the lease later, or
		// the lease ends unacknowledged
		if err == nil {
			// for earlier dispatches the worker has been told already
			ss.out.cancelLate(reports[before:], answers[before:])
		}
	})
	if !ok {
		ss.out.putBack(leases)
	}
}

// notify sends the worker a cancel for each lease that the engine names.
func (ss *Session) notify(notices []engine.Notice) {
	for _, n := range notices {
		if n.Silent {
			ss.awaitsFrame.Store(true)
		}
		ss.out.cancel(&lessorv1.Cancel{
			TaskId: n.Task.String(), LeaseId: n.LeaseID, Reason: lessorv1.Reason(n.Reason), Detail: n.Detail,
		}, n.GraceEnds)
	}
}

// endPause ends the pause after the worker was silent until a lease ended, because it has sent a
// frame (W5, W9). The pause goes on while leases still wait to be sent to the worker (W11).
func (ss *Session) endPause() {
	if ss.awaitsFrame.Load() && !ss.out.workWaits() {
		ss.awaitsFrame.Store(false)
		ss.srv.Engine.Heard(ss.who.Tenant, ss.id)
	}
}
