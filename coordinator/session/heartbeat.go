package session

import (
	"log/slog"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// heartbeat handles a heartbeat frame: it updates the health of the worker, and renews the leases
// that the frame names and no others (W4).
func (ss *Session) heartbeat(corr string, m *lessorv1.WorkerHeartbeat, next sessionState) {
	if ss.refuseTooMany(corr, "heartbeat.leases", len(m.GetLeases())) {
		return
	}
	f := convert.Fields{Limits: ss.srv.Limits}
	if convert.ParseMetrics(&f, m.GetMetrics()); f.Err != nil {
		ss.refuse(corr, refusal.CodeInvalid, "heartbeat."+f.Err.Error(), "")
		return
	}
	ss.awaitHeartbeat()
	noNewWork, changes := ss.takeHealth(m, next)
	ss.logHealth(noNewWork, changes)
	reports := make([]*lease.Report, len(m.GetLeases()))
	in := convert.NewIntake(ss.srv.Limits, len(reports), 0)
	for i, l := range m.GetLeases() {
		reports[i] = convert.ParseHeartbeat(l, in)
		reports[i].Session = ss.id
	}
	ss.logReports(reports)
	ss.renew(corr, m.GetLeases(), reports, noNewWork)
	ss.resize()
}

// takeHealth takes what a heartbeat says of the worker. It returns why the worker gets no new work,
// "" if it may get work, and how many changes of that are to be logged now.
func (ss *Session) takeHealth(m *lessorv1.WorkerHeartbeat, next sessionState) (noNewWork string, changes int) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	tookWork := ss.health.takesWork()
	ss.health.update(m, ss.slots)
	ss.in.said = ss.health.selfReport
	ss.state = next
	noNewWork = ss.health.whyNoWork()
	return noNewWork, ss.health.told.next(tookWork != (noNewWork == ""))
}

// logHealth logs whether the worker gets new work. changes is how often that has changed since the
// last log line; 0: nothing is logged. Only the reader calls it.
func (ss *Session) logHealth(noNewWork string, changes int) {
	log, level := ss.log, slog.LevelWarn
	if ss.health.drains { // the worker stops in order
		level = slog.LevelInfo
	}
	if changes > 1 {
		log = log.With("changes", changes)
	}
	switch {
	case changes == 0:
	case noNewWork != "":
		log.Log(ss.stream.Context(), level, "the worker gets no new work", "why", noNewWork)
	default:
		log.Info("the worker gets new work again")
	}
}

// renew gives the lease heartbeats of a frame to the engine to judge. noNewWork is why the worker
// gets no new work; it goes into the answer.
func (ss *Session) renew(corr string, leases []*lessorv1.HeartbeatRequest, reports []*lease.Report, noNewWork string) {
	cost := costOfBeat(len(leases))
	if !ss.out.beatTurn(cost) {
		return
	}
	news := progressOf(leases)
	if len(news) > 0 {
		ss.feeds.passAll() // what the worker has told before; what it tells later comes after this heartbeat
	}
	posted := ss.post(reports, func(bytes int, answers []lease.Answer, err error) {
		ss.out.beatJudged(cost)
		ss.out.renewals(corr, bytes, reports, answers, noNewWork, err)
	}, news...)
	if !posted {
		ss.out.beatOver(cost)
	}
}

// progressOf returns the progress in the heartbeats of leases, for the watchers of their tasks. It
// is volatile; only the renewals are durable.
func progressOf(leases []*lessorv1.HeartbeatRequest) (news []engine.ReportNews) {
	for i, l := range leases {
		if feed, ok := convert.HeartbeatFeed(l); ok {
			news = append(news, engine.ReportNews{Report: i, Feed: feed})
		}
	}
	return news
}
