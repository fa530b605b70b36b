package session

import (
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// workerHealth is the health of a worker according to its heartbeats (W9). Session.mu guards it.
type workerHealth struct {
	limits   Thresholds
	interval time.Duration

	timer  *time.Timer // fires when the next heartbeat is missed; nil before the registration
	due    time.Time   // when timer fires
	missed int         // missed heartbeats in a row

	selfReport
	metrics   map[string]float64
	busySince time.Time // since when all slots are in use; zero: not all are

	told changeLog
}

// selfReport is what the worker has said of itself that still holds when it resumes its session: it
// gets no work that it did not want, although its register comes before its next heartbeat.
type selfReport struct {
	drains    bool // it has sent a drain (W10)
	unhealthy bool // its last heartbeat said that it is not healthy
	mem       gauge
	disk      gauge
}

// changeLog limits the log lines about a worker that gets new work and no new work in turns: it may
// send heartbeats at any rate.
type changeLog struct {
	since   time.Time // when the current minute began
	lines   int       // lines in this minute
	changes int       // changes since the last line
}

// linesPerMinute is how many of these lines a session has in a minute: one change and its end.
const linesPerMinute = 2

// next returns the number of changes that a line should report now; 0 means no line. It is called
// with every heartbeat, so that the last state is logged, if late.
func (l *changeLog) next(changed bool) (report int) {
	if changed {
		l.changes++
	}
	if time.Since(l.since) >= time.Minute {
		l.since, l.lines = time.Now(), 0
	}
	if l.changes == 0 || l.lines == linesPerMinute {
		return 0
	}
	report, l.changes = l.changes, 0
	l.lines++
	return report
}

// gauge is how full memory or disk is, according to the last heartbeat that said it.
type gauge struct {
	pct  float64
	full bool // pct has reached the limit, and has not been lowerBy points below it since
}

// tolerance returns how long after its time a heartbeat counts as missed.
func (h *workerHealth) tolerance() time.Duration { return h.interval / 2 }

// restartTimer starts the timer for the next heartbeat: it calls missed after d.
func (h *workerHealth) restartTimer(d time.Duration, missed func()) {
	h.due = time.Now().Add(d)
	if h.timer == nil {
		h.timer = time.AfterFunc(d, missed)
		return
	}
	h.timer.Reset(d)
}

func (h *workerHealth) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}

// awaitHeartbeat sets the number of missed heartbeats to 0 and starts the timer for the next one.
func (ss *Session) awaitHeartbeat() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.left {
		return
	}
	h := &ss.health
	h.missed = 0
	h.restartTimer(h.interval+h.tolerance(), ss.missHeartbeat)
}

// missHeartbeat is called when a heartbeat has not come in time. The first miss leads to a warning,
// then the worker gets no new work, and then the session ends (W9). If the coordinator itself stood
// still, the timer fires once, so only one miss counts, however long that was.
func (ss *Session) missHeartbeat() {
	missed, counts := ss.countMiss()
	if !counts {
		return
	}
	ss.srv.Registry.missed.Inc()
	if lost := ss.health.limits.Missed; missed < lost {
		ss.logger().Warn("heartbeat missed", "missed", missed, "lost_at", lost)
		ss.resize()
		return
	}
	why := fmt.Sprintf("%d heartbeats were missed, one is due every %v", missed, ss.health.interval)
	ss.reset(refusal.CodeTimeout, why, 0)
}

// countMiss counts a missed heartbeat. counts is false, and nothing is counted, if the heartbeat
// has come in the meantime, or may wait behind the frame that the reader handles.
func (ss *Session) countMiss() (missed int, counts bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	h := &ss.health
	if ss.left || time.Now().Before(h.due) {
		return 0, false
	}
	h.restartTimer(h.interval, ss.missHeartbeat)
	if ss.busy.Load() {
		return 0, false
	}
	h.missed++
	return h.missed, true
}

// update updates the health from a heartbeat. slots is the max_parallel that the worker declared.
func (h *workerHealth) update(m *lessorv1.WorkerHeartbeat, slots int) {
	h.unhealthy = !m.GetHealthy()
	if len(m.GetMetrics()) > 0 {
		h.metrics = m.GetMetrics()
	}
	h.mem.update(m.GetMetrics(), memPct, h.limits.MemPct)
	h.disk.update(m.GetMetrics(), diskPct, h.limits.DiskPct)
	inflight, told := h.metrics["inflight"]
	if !told {
		inflight = float64(len(m.GetLeases()))
	}
	switch {
	case slots == 0 || inflight < float64(slots):
		h.busySince = time.Time{}
	case h.busySince.IsZero():
		h.busySince = time.Now()
	}
}

const (
	memPct  = "mem_pct"
	diskPct = "disk_pct"
)

// update updates the gauge from a heartbeat. If the heartbeat leaves the gauge out, or has a value
// below 0, as some do that could not measure it, nothing changes: one missing measurement does not
// make a full worker healthy.
func (g *gauge) update(metrics map[string]float64, name string, limit float64) {
	pct, told := metrics[name]
	if !told || pct < 0 {
		return
	}
	g.full = pct >= limit || g.full && pct > limit-lowerBy
	g.pct = pct
}

// status returns the health of the worker. If several things are wrong, it returns the worst.
func (h *workerHealth) status() lessorv1.WorkerHealth {
	switch {
	case h.unhealthy:
		return lessorv1.WorkerHealth_WORKER_HEALTH_UNHEALTHY
	case h.missed >= h.limits.Missed-1:
		return lessorv1.WorkerHealth_WORKER_HEALTH_DEGRADED
	case h.mem.full, h.disk.full:
		return lessorv1.WorkerHealth_WORKER_HEALTH_SUSPENDED
	case h.missed > 0:
		return lessorv1.WorkerHealth_WORKER_HEALTH_WARN
	case !h.busySince.IsZero() && time.Since(h.busySince) >= h.limits.SaturatedAfter:
		return lessorv1.WorkerHealth_WORKER_HEALTH_SATURATED
	}
	return lessorv1.WorkerHealth_WORKER_HEALTH_HEALTHY
}

// takesWork reports whether the worker is well enough for new work.
func (h *workerHealth) takesWork() bool {
	switch h.status() {
	case lessorv1.WorkerHealth_WORKER_HEALTH_HEALTHY, lessorv1.WorkerHealth_WORKER_HEALTH_SATURATED,
		lessorv1.WorkerHealth_WORKER_HEALTH_WARN:
		return true
	}
	return false
}

// whyNoWork returns why the worker gets no new work; "" if it may get work.
func (h *workerHealth) whyNoWork() string {
	if h.takesWork() {
		return ""
	}
	return h.reason(h.status())
}

// reason says why the worker has a status; "" if nothing is wrong.
func (h *workerHealth) reason(of lessorv1.WorkerHealth) string {
	switch of {
	case lessorv1.WorkerHealth_WORKER_HEALTH_UNHEALTHY:
		if h.drains { // it says so to get no new work; nothing is wrong with it
			return "the worker drains: no new work"
		}
		return "the worker reports that it is not healthy: no new work"
	case lessorv1.WorkerHealth_WORKER_HEALTH_DEGRADED:
		return fmt.Sprintf("heartbeats missed: %d; no new work, and the session ends at %d", h.missed, h.limits.Missed)
	case lessorv1.WorkerHealth_WORKER_HEALTH_SUSPENDED:
		if h.mem.full {
			return fullText(memPct, h.mem, h.limits.MemPct)
		}
		return fullText(diskPct, h.disk, h.limits.DiskPct)
	case lessorv1.WorkerHealth_WORKER_HEALTH_WARN:
		return fmt.Sprintf("heartbeats missed: %d", h.missed)
	case lessorv1.WorkerHealth_WORKER_HEALTH_SATURATED:
		return "all its slots have been in use for " + time.Since(h.busySince).Truncate(time.Second).String()
	}
	return ""
}

func fullText(name string, g gauge, limit float64) string {
	return fmt.Sprintf("%s is %s: no new work at %s or more, until it falls to %s", name, words.Number(g.pct),
		words.Number(limit), words.Number(limit-lowerBy))
}
