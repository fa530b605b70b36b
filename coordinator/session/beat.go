package session

import (
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// heartbeat takes in what the worker says of its health, and renews the leases that the frame names, and no others (W4).
func (ss *Session) heartbeat(corr string, m *lessorv1.WorkerHeartbeat) {
	if !ss.fits(corr, "heartbeat.leases", len(m.GetLeases())) {
		return
	}
	f := convert.Fields{Limits: ss.c.Limits}
	if convert.ParseMetrics(&f, m.GetMetrics()); f.Err != nil {
		ss.fail(corr, refusal.CodeInvalid, "heartbeat."+f.Err.Error(), "")
		return
	}
	ss.awaitHeartbeat()
	ss.mu.Lock()
	well := ss.health.takesWork()
	ss.health.hear(m, ss.slots)
	kept := ss.health.kept()
	ss.state = moves[ss.state][frameHeartbeat]
	ss.mu.Unlock()
	switch {
	case well && kept != "":
		ss.logger().Warn("the worker gets no new work", "why", kept)
	case !well && kept == "":
		ss.logger().Info("the worker gets new work again")
	}
	reports := make([]*lease.Report, len(m.GetLeases()))
	in := convert.NewIntake(ss.c.Limits, len(reports), 0)
	for i, l := range m.GetLeases() {
		reports[i] = convert.ParseHeartbeat(l, in)
		reports[i].Session = ss.id
	}
	ss.renew(corr, m.GetLeases(), reports, kept)
	ss.resize()
}

// renew has the engine judge the leases that a heartbeat names. kept is why the worker gets no new work; the answer says so.
func (ss *Session) renew(corr string, leases []*lessorv1.HeartbeatRequest, reports []*lease.Report, kept string) {
	if !ss.out.beatTurn() {
		return
	}
	posted := ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.out.beatJudged(len(reports))
		ss.out.renewals(corr, bytes, reports, answers, kept, err)
		for i, a := range answers {
			if err == nil && a.Verdict == lease.VerdictCommitted {
				ss.feedProgress(leases[i])
			}
		}
	})
	if !posted {
		ss.out.beatOver()
	}
}

// feedProgress passes the progress that a heartbeat carries to whoever watches. Only the renewal beside it is durable.
func (ss *Session) feedProgress(m *lessorv1.HeartbeatRequest) {
	if feed, ok := convert.HeartbeatFeed(m); ok {
		ss.c.Engine.Feed(ss.who.Tenant, feed, func() {})
	}
}
