package coordinator

import (
	"cmp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
)

// metrics turns the callbacks of the engine into Prometheus metrics. The values of labels come from
// enums, so the number of series is bounded.
type metrics struct {
	registry    *prometheus.Registry
	submitted   prometheus.Counter
	tasksEnded  *prometheus.CounterVec
	verdicts    *prometheus.CounterVec
	dispatched  prometheus.Counter
	leasesEnded *prometheus.CounterVec
	retries     *prometheus.CounterVec
	commits     prometheus.Histogram
	batches     prometheus.Histogram
	stalled     prometheus.Counter
	clockSet    prometheus.Counter
	waited      prometheus.Histogram
	latency     prometheus.Histogram
	frames      frameBytes
	requests    *prometheus.CounterVec
	calls       *callMetrics

	quotaRefusals            *prometheus.CounterVec
	backupDone, backupFailed prometheus.Gauge
}

func newMetrics() *metrics {
	frames := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_frame_bytes_total", Help: "Bytes of session frames, by direction.",
	}, []string{"dir"})
	m := &metrics{
		frames:   frameBytes{in: frames.WithLabelValues("in"), out: frames.WithLabelValues("out")},
		registry: prometheus.NewRegistry(),
		submitted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lessor_tasks_submitted_total",
			Help: "Tasks accepted.",
		}),
		tasksEnded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_tasks_ended_total", Help: "Tasks that ended, by final state.",
		}, []string{"state"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_verdicts_total",
			Help: "Verdicts on reports, starts and heartbeats, by kind, verdict and reason.",
		}, []string{"kind", "verdict", "reason"}),
		dispatched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lessor_dispatch_total",
			Help: "Leases granted.",
		}),
		leasesEnded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_leases_ended_total", Help: "Leases that ended, by cause; REPORTED is a committed report.",
		}, []string{"cause"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_retries_total",
			Help: "Retries: attempts that ended and were followed by a wait for another one, by how they ended.",
		}, []string{"reason"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lessor_commit_seconds", Help: "Duration of a commit, including the wait for the disk.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 16),
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lessor_commit_batch_size", Help: "Tasks that share a commit.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
		stalled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lessor_stalled_seconds_total",
			Help: "Time for which the coordinator was stalled; live leases were extended by it.",
		}),
		clockSet: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lessor_wall_clock_jumps_total",
			Help: "How often the wall clock was set while the coordinator ran, by a second or more.",
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lessor_wait_seconds",
			Help:    "Time that tasks were READY before they were granted, some of it perhaps PARKED.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 13),
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lessor_result_latency_seconds",
			Help:    "Time from a grant to the committed report that ended its lease.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 13),
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_http_requests_total",
			Help: "HTTP requests, by route (\"none\" if no route matched) and status.",
		}, []string{"route", "status"}),
		calls: newCallMetrics(),
		quotaRefusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_quota_refusals_total",
			Help: "Refusals because a quota was used up, by limit and by whose quota it is.",
		}, []string{"limit", "of"}),
		backupDone: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lessor_backup_last_success_timestamp_seconds",
			Help: "When the client of a backup last confirmed it, in seconds since 1970; 0 if none has.",
		}),
		backupFailed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lessor_backup_last_failure_timestamp_seconds",
			Help: "When a backup last failed, in seconds since 1970; 0 if none has.",
		}),
	}
	m.registry.MustRegister(m.submitted, m.tasksEnded, m.requests, m.verdicts, m.dispatched, m.leasesEnded,
		m.retries, m.commits, m.batches, m.stalled, m.clockSet, m.waited, m.latency, frames,
		m.calls.ended, m.calls.took, m.quotaRefusals, m.backupDone, m.backupFailed,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// rate() needs a first sample of 0
	for _, final := range []lease.State{lease.Completed, lease.Failed, lease.Cancelled} {
		m.tasksEnded.WithLabelValues(final.String())
	}
	for _, cause := range []lease.Reason{
		lease.CoordinatorRecovered, lease.LeaseExpired, lease.DispatchUnacked, lease.TaskCancelled,
		lease.CancelTimeout, lease.DeadlineExceeded,
		lease.Revoked, lease.Reported,
	} {
		m.leasesEnded.WithLabelValues(cause.String())
		if cause != lease.TaskCancelled && cause != lease.CancelTimeout { // no other attempt follows these
			m.retries.WithLabelValues(cause.String())
		}
	}
	for _, limit := range quota.All() {
		m.quotaRefusals.WithLabelValues(limit.String(), "tenant")
		m.quotaRefusals.WithLabelValues(limit.String(), "credential")
	}
	return m
}

// verdictLabels holds the labels of the verdict counter.
type verdictLabels struct {
	kind    lease.Kind
	verdict lease.Verdict
	reason  lease.Reason
}

func (j verdictLabels) labels() []string {
	return []string{j.kind.String(), j.verdict.String(), j.reason.String()}
}

// counters caches the counters of a family by key, because a lookup in the family for each report
// and each lease would be too slow. It is not safe for concurrent use.
type counters[K comparable] struct {
	family *prometheus.CounterVec
	labels func(K) []string
	known  map[K]prometheus.Counter
}

func countersOf[K comparable](family *prometheus.CounterVec, labels func(K) []string) *counters[K] {
	return &counters[K]{family: family, labels: labels, known: map[K]prometheus.Counter{}}
}

func (c *counters[K]) inc(k K) {
	counter := c.known[k]
	if counter == nil {
		counter = c.family.WithLabelValues(c.labels(k)...)
		c.known[k] = counter
	}
	counter.Inc()
}

// events returns engine callbacks that count. The loop of the engine calls all of them except
// Committed, which another goroutine of the engine calls.
func (m *metrics) events() engine.Events {
	byReason := func(r lease.Reason) []string { return []string{r.String()} }
	verdicts, leasesEnded, retries := countersOf(m.verdicts, verdictLabels.labels),
		countersOf(m.leasesEnded, byReason), countersOf(m.retries, byReason)
	tasksEnded := countersOf(m.tasksEnded, func(s lease.State) []string { return []string{s.String()} })
	return engine.Events{
		Submitted: func(*lease.Task) { m.submitted.Inc() },
		Ended:     func(t *lease.Task) { tasksEnded.inc(t.Rest) },
		Committed: func(tasks int, took time.Duration) {
			m.commits.Observe(took.Seconds())
			m.batches.Observe(float64(tasks))
		},
		Judged: func(kind lease.Kind, a *lease.Answer) {
			verdicts.inc(verdictLabels{kind, a.Verdict, a.Reason})
		},
		Granted: func(_ *lease.Task, waited time.Duration) {
			m.dispatched.Inc()
			m.waited.Observe(waited.Seconds())
		},
		LeaseEnded: func(t *lease.Task, cause lease.Reason) {
			leasesEnded.inc(cause)
			if cause == lease.Reported {
				// by the wall clock, which may have been set back meanwhile
				took := time.Since(t.Lease.GrantedAt.Time())
				m.latency.Observe(max(took, 0).Seconds()) // a sum that falls would look to Prometheus like a restart
			}
		},
		Retried:      func(_ *lease.Task, cause lease.Reason) { retries.inc(cause) },
		Stalled:      func(by time.Duration, _ int) { m.stalled.Add(by.Seconds()) },
		WallClockSet: func(time.Duration) { m.clockSet.Inc() },
	}
}

// answered counts an HTTP request. All requests without a route share one label value, because
// callers could send any number of different paths.
func (m *metrics) answered(route string, status int) {
	m.requests.WithLabelValues(cmp.Or(route, "none"), strconv.Itoa(status)).Inc()
}

// showBackups shows when the last backups ended.
func (m *metrics) showBackups(b records.Backups) {
	m.backupDone.Set(float64(b.Done) / float64(time.Second))
	m.backupFailed.Set(float64(b.Failed) / float64(time.Second))
}
