package coordinator

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// heartbeat takes the worker's word on itself and renews the leases that it names, no others (W4).
func (ss *session) heartbeat(corr string, m *lessorv1.WorkerHeartbeat) {
	if !ss.fits(corr, "heartbeat.leases", len(m.GetLeases())) {
		return
	}
	f := fields{limits: ss.c.cfg.Limits}
	if parseMetrics(&f, m.GetMetrics()); f.err != nil {
		ss.fail(corr, codeInvalid, "heartbeat."+f.err.Error(), "")
		return
	}
	ss.awaitHeartbeat()
	ss.mu.Lock()
	ss.health.hear(m, ss.slots)
	ss.state = moves[ss.state][frameHeartbeat]
	ss.mu.Unlock()
	reports := make([]*lease.Report, len(m.GetLeases()))
	in := intakeOf(ss.c.cfg.Limits, len(reports), 0)
	for i, l := range m.GetLeases() {
		reports[i] = parseHeartbeat(l, in)
		reports[i].Session = ss.id
	}
	ss.renew(corr, m.GetLeases(), reports)
	ss.resize()
}

// renew has the leases judged that a heartbeat names.
func (ss *session) renew(corr string, leases []*lessorv1.HeartbeatRequest, reports []*lease.Report) {
	if !ss.out.beatTurn() {
		return
	}
	posted := ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.out.beatJudged(len(reports))
		ss.out.renewals(corr, bytes, reports, answers, err)
		for i, a := range answers {
			if err == nil && a.Verdict == lease.VerdictCommitted {
				ss.c.feedProgress(ss.who.Tenant, leases[i], func() {})
			}
		}
	})
	if !posted {
		ss.out.beatOver()
	}
}
