package coordinator

import (
	"crypto/rand"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

func newInstance() string { return rand.Text() }

// register says what the worker takes; the first one makes it a member of the engine, a later one replaces what was said.
func (ss *session) register(corr string, m *lessorv1.Register) {
	if ss.id == "" {
		ss.out.fail(corr, codeUnknown, "register needs a handshake before it", "send handshake, then register")
		return
	}
	f := fields{limits: ss.c.cfg.Limits}
	wants := engine.Wants{
		Worker: ss.info.GetName(),
		Space:  engine.Space{Tenant: ss.who.Tenant, Workspace: f.workspace("register.workspace_id", m.GetWorkspaceId())},
		Queues: f.queues("register.queues", m.GetQueues()),
		Types:  f.types("register.capabilities.types", m.GetCapabilities().GetTypes()),
	}
	slots := m.GetCapabilities().GetConcurrency().GetMaxParallel()
	if slots < 1 || slots > maxParallel {
		f.fail("register.capabilities.concurrency.max_parallel", "is %d; the range is 1 to %d", slots, maxParallel)
	}
	if f.err != nil {
		ss.out.fail(corr, codeInvalid, f.err.Error(), "mend the field and register again")
		return
	}
	ss.mu.Lock()
	first := ss.state == handshaking
	ss.caps, ss.wants, ss.slots = m.GetCapabilities(), wants, int(slots)
	if first {
		ss.state = registered
	}
	ss.mu.Unlock()
	if first {
		ss.enter()
		return
	}
	_ = ss.c.engine.Update(ss.id, wants, ss.room()) // a stopped engine pushes nothing
}

// enter makes the session a member of the engine, unless its end has come meanwhile.
func (ss *session) enter() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.left {
		return
	}
	_ = ss.c.engine.Join(&engine.Member{ // a stopped engine pushes nothing
		Session: ss.id, Wants: ss.wants, Slots: ss.slots,
		Deliver: ss.out.dispatch, Notify: ss.notify,
		Displaced: func() {
			ss.out.reset(codeStaleBinding, "a newer stream of this instance has taken over", 0)
			ss.end(nil)
		},
	})
}

// room is the number of slots as the engine is to see it: none while the worker drains or is not well.
func (ss *session) room() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.state == draining || !ss.healthy {
		return 0
	}
	return ss.slots
}

func (ss *session) resize() { _ = ss.c.engine.Resize(ss.who.Tenant, ss.id, ss.room()) } // a stopped engine pushes nothing

func (ss *session) capacity(corr string, m *lessorv1.Capacity) {
	if m.GetMaxParallel() > maxParallel {
		ss.out.fail(corr, codeInvalid, fmt.Sprintf("capacity.max_parallel: is %d; the range is 0 to %d", m.GetMaxParallel(), maxParallel), "")
		return
	}
	caps := proto.CloneOf(ss.caps) // whoever lists workers may be reading it
	caps.Concurrency.MaxParallel = m.GetMaxParallel()
	ss.mu.Lock()
	ss.caps, ss.slots = caps, int(m.GetMaxParallel())
	ss.mu.Unlock()
	ss.resize()
}

// heartbeat takes the worker's word on itself and renews the leases that it names, no others (W4).
func (ss *session) heartbeat(corr string, m *lessorv1.WorkerHeartbeat) {
	if !ss.fits(corr, "heartbeat.leases", len(m.GetLeases())) {
		return
	}
	f := fields{limits: ss.c.cfg.Limits}
	if parseMetrics(&f, m.GetMetrics()); f.err != nil {
		ss.out.fail(corr, codeInvalid, "heartbeat."+f.err.Error(), "")
		return
	}
	ss.mu.Lock()
	changed := ss.healthy != m.GetHealthy()
	ss.healthy, ss.metrics = m.GetHealthy(), m.GetMetrics()
	if ss.state == registered {
		ss.state = heartbeating
	}
	ss.mu.Unlock()
	reports := make([]*lease.Report, len(m.GetLeases()))
	for i, l := range m.GetLeases() {
		reports[i] = parseHeartbeat(l, ss.c.cfg.Limits)
		reports[i].Session = ss.id
	}
	ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.out.renewals(corr, bytes, reports, answers, err)
		for i, a := range answers {
			if err == nil && a.Verdict == lease.VerdictCommitted {
				ss.c.feedProgress(ss.who.Tenant, m.GetLeases()[i])
			}
		}
	})
	if changed {
		ss.resize()
	}
}

// reports takes starts and outcomes; their verdicts come back in the same order.
func (ss *session) reports(corr string, m *lessorv1.Reports) {
	if !ss.fits(corr, "reports.reports", len(m.GetReports())) {
		return
	}
	reports := make([]*lease.Report, len(m.GetReports()))
	ids := make([]string, len(reports))
	for i, r := range m.GetReports() {
		reports[i] = parseReport(r, ss.c.cfg.Limits)
		reports[i].Session = ss.id
		ids[i] = reportID(r)
	}
	ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
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

func (ss *session) fits(corr, field string, n int) bool {
	if n <= ss.c.cfg.Limits.Batch {
		return true
	}
	ss.out.fail(corr, codeInvalid, fmt.Sprintf("%s: has %d items; the limit is %d", field, n, ss.c.cfg.Limits.Batch), "split the frame")
	return false
}

// post has reports judged. The answers come on the engine's committer, which must not wait: so room for them is waited for here, where
// only this stream stands still. after gives the bytes back.
func (ss *session) post(reports []*lease.Report, after func(bytes int, answers []lease.Answer, err error)) {
	bytes := ss.size + (1+len(reports))*answerSize
	if !ss.out.reserve(bytes) {
		return // the stream is ending
	}
	judged := func(answers []lease.Answer, err error) { after(bytes, answers, err) }
	if err := ss.c.engine.Post(ss.who.Tenant, reports, judged); err != nil {
		judged(nil, err)
	}
}

// acknowledged takes the ack of a dispatch (W5).
func (ss *session) acknowledged(dispatch string) {
	leases := ss.out.dispatched(dispatch)
	reports := make([]*lease.Report, len(leases))
	for i, l := range leases {
		reports[i] = &lease.Report{Kind: lease.KindAck, TaskID: l.task, LeaseID: l.lease, Session: ss.id}
	}
	if len(reports) == 0 {
		return
	}
	ss.post(reports, func(bytes int, answers []lease.Answer, _ error) { // no verdict: the worker's Start will be judged, or the lease ends
		ss.out.release(bytes)
		ss.out.late(reports, answers)
	})
}

// feedback passes volatile news of running attempts on.
func (ss *session) feedback(corr string, m *lessorv1.Feedback) {
	if !ss.fits(corr, "feedback.items", len(m.GetItems())) {
		return
	}
	var feeds []engine.Feed
	for i, item := range m.GetItems() {
		feed, err := parseFeedback(item, ss.c.cfg.Limits)
		if err != nil {
			ss.out.fail(corr, codeInvalid, err.Under(fmt.Sprintf("feedback.items[%d]", i)).Error(), "")
			continue
		}
		feeds = append(feeds, feed)
	}
	if bytes := ss.size + answerSize; ss.out.reserve(bytes) {
		ss.c.engine.FeedAll(ss.who.Tenant, feeds, func() { ss.out.release(bytes) })
	}
}

// notify gets leases to stop from the engine.
func (ss *session) notify(notices []engine.Notice) {
	for _, n := range notices {
		if n.Reason == lease.DispatchUnacked || n.Reason == lease.LeaseExpired { // one that is short expires first
			ss.hushed.Store(true)
		}
		ss.out.cancel(&lessorv1.Cancel{
			TaskId: n.Task.String(), LeaseId: n.LeaseID, Reason: lessorv1.Reason(n.Reason), Detail: n.Detail, Grace: span(n.Grace),
		})
	}
}

// unhush ends the pause that follows an unacknowledged dispatch: the session has said something (W5). It goes on while the worker has
// not even read its work (W11).
func (ss *session) unhush() {
	if ss.hushed.Load() && !ss.out.behind() {
		ss.hushed.Store(false)
		_ = ss.c.engine.Heard(ss.who.Tenant, ss.id) // a stopped engine pushes nothing
	}
}
