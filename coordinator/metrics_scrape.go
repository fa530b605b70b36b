package coordinator

import (
	"context"
	"crypto/tls"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/service"
	"github.com/lessor-dev/lessor/store/standby"
)

// watchParts adds the metrics whose values are read at each scrape, and those that the parts count
// themselves.
func (c *Coordinator) watchParts() {
	m, cfg := c.metrics, c.cfg
	m.registry.MustRegister(c.sessions.Collectors()...)
	m.registry.MustRegister(&taskCounts{c.engine}, standbyMetrics{c.feed}, c.connLimiter.Refused(),
		c.connLimiter.Evicted(), c.connLimiter.HandshakesFailed(),
		c.gate.Refused(), c.recvLimiter.Closed())
	build := prometheus.GaugeOpts{
		Name: "lessor_build_info", Help: "Always 1; the label has the version.",
		ConstLabels: prometheus.Labels{"version": cfg.Version},
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(build, func() float64 { return 1 }))
	logDropped := prometheus.CounterOpts{
		Name: "lessor_log_lines_dropped_total",
		Help: "Lines of the log that were dropped: nobody took them, or they could not be written.",
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(logDropped, func() float64 { return float64(cfg.LogDropped()) }))
	m.gauge("lessor_sessions_active", "Open sessions of workers.", func() float64 { return float64(c.sessions.Len()) })
	m.gauge("lessor_oldest_ready_seconds",
		"How long the task has been READY that has been so the longest; PARKED ones are left out."+mayBeTooLow,
		service.NewOldestReady(c.feed, c.engine.Now, cfg.Logger).Seconds)
	m.gauge("lessor_submits_waiting", "Submits that are not read because those under way take all the room.", func() float64 {
		_, waiting := c.submitLimiter.Usage()
		return float64(waiting)
	})
	m.gauge("lessor_certificate_expiry_timestamp_seconds",
		"When the certificate of the listeners expires, in seconds since 1970; NaN without TLS.",
		func() float64 { return certificateExpiry(cfg.TLS) })
	m.gauge("lessor_credential_expiry_timestamp_seconds",
		"When the first of the credentials of open streams ends, in seconds since 1970; NaN if there is none.",
		func() float64 {
			if end := c.gate.FirstEnd(); !end.IsZero() {
				return float64(end.Unix())
			}
			return math.NaN()
		})
}

// watchDisk adds the metrics of the store and its disk that are read at each scrape.
func (c *Coordinator) watchDisk() {
	m, cfg := c.metrics, c.cfg
	m.gauge("lessor_store_bytes", "Size of the store's file.",
		func() float64 { return float64(c.feed.Stats().FileBytes) })
	m.gauge("lessor_store_free_bytes", "Free space inside the store's file that commits use before it grows.",
		func() float64 { return float64(c.feed.Stats().ReusableBytes) })
	m.gauge("lessor_store_used_bytes", "What the records take inside the store's file.", func() float64 {
		stats := c.feed.Stats()
		return float64(stats.FileBytes - stats.FreeBytes)
	})
	m.gauge("lessor_store_gone", "1 while the store's file is not where it was opened.", while(cfg.StoreGone))
	m.gauge("lessor_commit_pending_seconds",
		"How long the commit under way has lasted, without its wait for a standby; 0 while there is none.",
		func() float64 { return c.commitPending().Seconds() })
	m.gauge("lessor_disk_full", "1 while the disk is so full that new tasks are refused.", while(cfg.DiskFull))
	m.gauge("lessor_grants_stopped", "1 while the disk is so full that no tasks are granted.", while(cfg.DiskSpent))
	room := func() (free, needed float64) {
		if cfg.DiskRoom == nil {
			return math.NaN(), math.NaN()
		}
		f, n, _ := cfg.DiskRoom()
		return float64(f), float64(n)
	}
	m.gauge("lessor_disk_free_bytes",
		"Free space of the disk of the store; NaN if it is unknown.", func() float64 { free, _ := room(); return free })
	m.gauge("lessor_disk_needed_bytes", "With less free space, new tasks are refused, unless there is room inside the store's file; NaN if it is unknown.",
		func() float64 { _, needed := room(); return needed })
}

// gauge adds a metric whose value is read at each scrape.
func (m *metrics) gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// while returns a value that is 1 while is returns true, and 0 otherwise.
func while(is func() bool) func() float64 {
	return func() float64 {
		if is() {
			return 1
		}
		return 0
	}
}

// currentTLS returns the configuration that a new connection would get; nil: none.
func currentTLS(cfg *tls.Config) *tls.Config {
	if cfg != nil && cfg.GetConfigForClient != nil {
		if chosen, err := cfg.GetConfigForClient(&tls.ClientHelloInfo{}); err == nil && chosen != nil {
			return chosen
		}
	}
	return cfg
}

// certificateExpiry returns when the certificate expires that a new connection would get, in
// seconds since 1970; NaN if there is none.
func certificateExpiry(cfg *tls.Config) float64 {
	cfg = currentTLS(cfg)
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
	leasesDesc = prometheus.NewDesc("lessor_leases_live",
		"Live leases; NaN while the engine does not answer.", nil, nil)
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
	standbysDesc = prometheus.NewDesc("lessor_standbys",
		"Standbys that follow, by state: complete, or copying while the store is being sent to them.",
		[]string{"state"}, nil)
	behindDesc = prometheus.NewDesc("lessor_standby_behind_seconds",
		"How old the oldest commit is that the best complete standby has not acknowledged; 0 if it has all, NaN if no complete one follows.", nil, nil)
	waitsDesc = prometheus.NewDesc("lessor_standby_awaited",
		"1 while each commit waits for a standby before it is acknowledged.", nil, nil)
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
