package coordinator

import (
	"cmp"
	"context"
	"crypto/tls"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/service"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/coordinator/submitlimit"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// metrics turns the callbacks of the engine into Prometheus metrics. The values of labels come from enums, so the number of series is bounded.
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

	backupDone, backupFailed prometheus.Gauge
}

func newMetrics() *metrics {
	frames := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lessor_frame_bytes_total", Help: "Bytes of session frames, by direction.",
	}, []string{"dir"})
	m := &metrics{
		frames:    frameBytes{in: frames.WithLabelValues("in"), out: frames.WithLabelValues("out")},
		registry:  prometheus.NewRegistry(),
		submitted: prometheus.NewCounter(prometheus.CounterOpts{Name: "lessor_tasks_submitted_total", Help: "Tasks accepted."}),
		tasksEnded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_tasks_ended_total", Help: "Tasks that ended, by final state.",
		}, []string{"state"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_verdicts_total", Help: "Verdicts on reports, starts and heartbeats, by kind, verdict and reason.",
		}, []string{"kind", "verdict", "reason"}),
		dispatched: prometheus.NewCounter(prometheus.CounterOpts{Name: "lessor_dispatch_total", Help: "Leases granted."}),
		leasesEnded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_leases_ended_total", Help: "Leases that ended, by cause; REPORTED is a committed report.",
		}, []string{"cause"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_retries_total", Help: "Retries: attempts that ended and were followed by a wait for another one, by how they ended.",
		}, []string{"reason"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lessor_commit_seconds", Help: "Duration of a commit, including the wait for the disk.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 16),
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lessor_commit_batch_size", Help: "Tasks that share a commit.", Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
		stalled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lessor_stalled_seconds_total", Help: "Time for which the coordinator was stalled; live leases were extended by it.",
		}),
		clockSet: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lessor_wall_clock_jumps_total", Help: "How often the wall clock was set while the coordinator ran, by a second or more.",
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lessor_wait_seconds", Help: "Time that tasks were READY before they were granted, some of it perhaps PARKED.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 13),
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lessor_result_latency_seconds", Help: "Time from a grant to the committed report that ended its lease.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 13),
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lessor_http_requests_total", Help: "HTTP requests, by route (\"none\" if no route matched) and status.",
		}, []string{"route", "status"}),
		calls: newCallMetrics(),
		backupDone: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lessor_backup_last_success_timestamp_seconds",
			Help: "When the client of a backup last confirmed it, in seconds since 1970; 0 if none has.",
		}),
		backupFailed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lessor_backup_last_failure_timestamp_seconds",
			Help: "When a backup last failed, in seconds since 1970; 0 if none has.",
		}),
	}
	m.registry.MustRegister(m.submitted, m.tasksEnded, m.requests, m.verdicts, m.dispatched, m.leasesEnded, m.retries, m.commits, m.batches, m.stalled, m.clockSet, m.waited, m.latency, frames,
		m.calls.ended, m.calls.took, m.backupDone, m.backupFailed, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, final := range []lease.State{lease.Completed, lease.Failed, lease.Cancelled} { // rate() needs a first sample of 0
		m.tasksEnded.WithLabelValues(final.String())
	}
	for _, cause := range []lease.Reason{
		lease.CoordinatorRecovered, lease.LeaseExpired, lease.DispatchUnacked, lease.TaskCancelled, lease.CancelTimeout, lease.DeadlineExceeded,
		lease.Revoked, lease.Reported,
	} {
		m.leasesEnded.WithLabelValues(cause.String())
		if cause != lease.TaskCancelled && cause != lease.CancelTimeout { // no other attempt follows these
			m.retries.WithLabelValues(cause.String())
		}
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

// counters caches the counters of a family by key, because a lookup in the family for each report and each lease would be too slow. It is not safe for
// concurrent use.
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

// events returns engine callbacks that count. The loop of the engine calls all of them except Committed, which another goroutine of the engine calls.
func (m *metrics) events() engine.Events {
	byReason := func(r lease.Reason) []string { return []string{r.String()} }
	verdicts, leasesEnded, retries := countersOf(m.verdicts, verdictLabels.labels), countersOf(m.leasesEnded, byReason), countersOf(m.retries, byReason)
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
				m.latency.Observe(time.Since(t.Lease.GrantedAt.Time()).Seconds())
			}
		},
		Retried:      func(_ *lease.Task, cause lease.Reason) { retries.inc(cause) },
		Stalled:      func(by time.Duration, _ int) { m.stalled.Add(by.Seconds()) },
		WallClockSet: func(time.Duration) { m.clockSet.Inc() },
	}
}

// answered counts an HTTP request. All requests without a route share one label value, because callers could send any number of different paths.
func (m *metrics) answered(route string, status int) {
	m.requests.WithLabelValues(cmp.Or(route, "none"), strconv.Itoa(status)).Inc()
}

// showBackups shows when the last backups ended.
func (m *metrics) showBackups(b records.Backups) {
	m.backupDone.Set(float64(b.Done) / float64(time.Second))
	m.backupFailed.Set(float64(b.Failed) / float64(time.Second))
}

// watch adds the metrics whose values are read at each scrape.
func (m *metrics) watch(sessions *session.Registry, eng *engine.Engine, st store.Store, submits *submitlimit.Room, cfg Config) {
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	build := prometheus.GaugeOpts{Name: "lessor_build_info", Help: "Always 1; the label has the version.", ConstLabels: prometheus.Labels{"version": cfg.Version}}
	m.registry.MustRegister(prometheus.NewGaugeFunc(build, func() float64 { return 1 }))
	logDropped := prometheus.CounterOpts{Name: "lessor_log_lines_dropped_total", Help: "Lines of the log that were dropped: nobody took them, or they could not be written."}
	m.registry.MustRegister(prometheus.NewCounterFunc(logDropped, func() float64 { return float64(cfg.LogDropped()) }))
	m.registry.MustRegister(sessions.Collectors()...)
	gauge("lessor_sessions_active", "Open sessions of workers.", func() float64 { return float64(sessions.Len()) })
	m.registry.MustRegister(&taskCounts{eng})
	oldest := service.NewOldestReady(st, eng.Now, cfg.Logger)
	gauge("lessor_oldest_ready_seconds", "How long the task has been READY that has been so the longest; PARKED ones are left out.", oldest.Seconds)
	gauge("lessor_submits_waiting", "Submits that are not read because those under way take all the room.", func() float64 {
		_, waiting := submits.Usage()
		return float64(waiting)
	})
	gauge("lessor_store_bytes", "Size of the store's file.", func() float64 { return float64(st.Stats().FileBytes) })
	gauge("lessor_store_free_bytes", "Free space inside the store's file.", func() float64 { return float64(st.Stats().FreeBytes) })
	while := func(is func() bool) func() float64 {
		return func() float64 {
			if is() {
				return 1
			}
			return 0
		}
	}
	gauge("lessor_disk_full", "1 while the disk is so full that new tasks are refused.", while(cfg.DiskFull))
	gauge("lessor_grants_stopped", "1 while the disk is so full that no tasks are granted.", while(cfg.DiskSpent))
	room := func() (free, needed float64) {
		if cfg.DiskRoom == nil {
			return math.NaN(), math.NaN()
		}
		f, n := cfg.DiskRoom()
		return float64(f), float64(n)
	}
	gauge("lessor_disk_free_bytes", "Free space of the disk of the store; NaN if it is unknown.", func() float64 { free, _ := room(); return free })
	gauge("lessor_disk_needed_bytes", "With less free space, new tasks are refused, unless there is room inside the store's file; NaN if it is unknown.",
		func() float64 { _, needed := room(); return needed })
	gauge("lessor_store_gone", "1 while the store's file is not where it was opened.", while(cfg.StoreGone))
	gauge("lessor_certificate_expiry_timestamp_seconds", "When the certificate of the listeners expires, in seconds since 1970; NaN without TLS.", func() float64 {
		return expiry(cfg.TLS)
	})
}

// watchCommits shows how long the disk has been busy with the commit under way.
func (m *metrics) watchCommits(pending func() time.Duration) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lessor_commit_pending_seconds", Help: "How long the commit under way has lasted, without its wait for a standby; 0 while there is none.",
	}, func() float64 { return pending().Seconds() }))
}

// watchCredentials adds the metric of the credential in use that ends first.
func (m *metrics) watchCredentials(firstEnd func() time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lessor_credential_expiry_timestamp_seconds",
		Help: "When the first of the credentials of open streams ends, in seconds since 1970; NaN if there is none.",
	}, func() float64 {
		if end := firstEnd(); !end.IsZero() {
			return float64(end.Unix())
		}
		return math.NaN()
	}))
}

// expiry returns when the certificate expires that a new connection would get, in seconds since 1970; NaN if there is none.
func expiry(cfg *tls.Config) float64 {
	if cfg != nil && cfg.GetConfigForClient != nil {
		if chosen, err := cfg.GetConfigForClient(&tls.ClientHelloInfo{}); err == nil && chosen != nil {
			cfg = chosen
		}
	}
	if cfg == nil || len(cfg.Certificates) == 0 || cfg.Certificates[0].Leaf == nil {
		return math.NaN()
	}
	return float64(cfg.Certificates[0].Leaf.NotAfter.Unix())
}

// taskCounts collects, at each scrape, the numbers of tasks that have not ended.
type taskCounts struct{ eng *engine.Engine }

var (
	tasksDesc = prometheus.NewDesc("lessor_tasks",
		"Tasks that have not ended, by state; PARKED are READY but held back by their concurrency key. NaN while the engine does not answer.", []string{"state"}, nil)
	leasesDesc = prometheus.NewDesc("lessor_leases_live", "Live leases; NaN while the engine does not answer.", nil, nil)
)

// patience is how long a scrape waits for the engine.
const patience = time.Second

// Describe implements prometheus.Collector.
func (*taskCounts) Describe(to chan<- *prometheus.Desc) {
	to <- tasksDesc
	to <- leasesDesc
}

// Collect implements prometheus.Collector.
func (c *taskCounts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := c.eng.Counts(ctx)
	tell := func(desc *prometheus.Desc, n uint64, labels ...string) {
		value := float64(n)
		if err != nil {
			value = math.NaN()
		}
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	tell(tasksDesc, n.Ready, "READY")
	tell(tasksDesc, n.Parked, "PARKED")
	tell(tasksDesc, n.Scheduled, "SCHEDULED")
	tell(tasksDesc, n.Leased, "LEASED")
	tell(leasesDesc, n.Leased)
}

// standbyMetrics collects, at each scrape, what is known of the standbys that follow.
type standbyMetrics struct{ feed *standby.Feed }

var (
	standbysDesc = prometheus.NewDesc("lessor_standbys", "Standbys that follow, by state: complete, or copying while the store is being sent to them.", []string{"state"}, nil)
	behindDesc   = prometheus.NewDesc("lessor_standby_behind_seconds",
		"How old the oldest commit is that the best complete standby has not acknowledged; 0 if it has all, NaN if no complete one follows.", nil, nil)
	waitsDesc = prometheus.NewDesc("lessor_standby_awaited", "1 while each commit waits for a standby before it is acknowledged.", nil, nil)
)

// Describe implements prometheus.Collector.
func (standbyMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- standbysDesc
	to <- behindDesc
	to <- waitsDesc
}

// Collect implements prometheus.Collector.
func (c standbyMetrics) Collect(to chan<- prometheus.Metric) {
	complete, copying, behind := 0, 0, math.NaN()
	for _, one := range c.feed.Standbys() {
		if !one.Complete {
			copying++
			continue
		}
		if complete++; complete == 1 || one.Behind.Seconds() < behind {
			behind = one.Behind.Seconds()
		}
	}
	to <- prometheus.MustNewConstMetric(standbysDesc, prometheus.GaugeValue, float64(complete), "complete")
	to <- prometheus.MustNewConstMetric(standbysDesc, prometheus.GaugeValue, float64(copying), "copying")
	to <- prometheus.MustNewConstMetric(behindDesc, prometheus.GaugeValue, behind)
	awaited := 0.0
	if c.feed.Waits() {
		awaited = 1
	}
	to <- prometheus.MustNewConstMetric(waitsDesc, prometheus.GaugeValue, awaited)
}
