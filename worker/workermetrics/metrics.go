package workermetrics

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker"
)

// Metrics counts what one worker does. It is a prometheus.Collector. A program with several workers
// gives each its own Metrics, registered with a label that tells them apart: see
// prometheus.WrapRegistererWith.
type Metrics struct {
	connected  prometheus.Gauge
	noNewWork  prometheus.GaugeFunc
	slots      prometheus.GaugeFunc
	inflight   prometheus.Gauge
	durations  *prometheus.HistogramVec
	verdicts   *prometheus.CounterVec
	heartbeats prometheus.Counter
	degraded   prometheus.Counter
	errors     *prometheus.CounterVec

	slotCount atomic.Int64
	// withheld: the coordinator gives the worker no new work.
	withheld atomic.Bool
}

// New returns Metrics of a worker that has not begun. Give the worker its Hooks.
func New() *Metrics {
	m := &Metrics{
		connected: gauge("lessor_worker_connected", "1 while the worker has a session with its coordinator."),
		inflight:  gauge("lessor_worker_tasks_inflight", "Handlers that run."),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lessor_worker_task_duration_seconds", Help: "How long handlers took, by how they ended.",
			// those of the coordinator's lessor_result_latency_seconds
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 13),
		}, []string{"outcome"}),
		verdicts: counters("lessor_worker_verdicts_total",
			"Verdicts on the outcomes of tasks, by kind of outcome, verdict and reason.", "kind", "verdict", "reason"),
		heartbeats: counter("lessor_worker_heartbeats_sent_total", "Heartbeats that were sent."),
		degraded: counter("lessor_worker_heartbeats_degraded_total",
			"Heartbeats that were sent while the worker drained or got no new work."),
		errors: counters("lessor_worker_errors_total",
			"Errors that concern the operator of the worker, by kind.", "error"),
	}
	m.slots = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lessor_worker_slots",
		Help: "Handlers that may run at once; 0 if the program does not say.",
	},
		func() float64 { return float64(m.slotCount.Load()) })
	m.noNewWork = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lessor_worker_no_new_work",
		Help: "1 while the coordinator gives the worker no new work, for example because its memory is nearly full.",
	}, func() float64 {
		if m.withheld.Load() {
			return 1
		}
		return 0
	})
	m.begin()
	return m
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// begin makes the series that every worker may need: rate() wants a first sample of 0.
func (m *Metrics) begin() {
	for _, o := range []string{completed, failed, stopped, lost} {
		m.durations.WithLabelValues(o)
	}
	for _, k := range []string{undelivered, stuck, refused, noConnection, other} {
		m.errors.WithLabelValues(k)
	}
	for _, k := range []lessorv1.ReportKind{
		lessorv1.ReportKind_REPORT_KIND_COMPLETE, lessorv1.ReportKind_REPORT_KIND_FAIL,
		lessorv1.ReportKind_REPORT_KIND_RELEASE,
	} {
		m.verdict(k, lessorv1.Verdict_VERDICT_COMMITTED, lessorv1.Reason_REASON_NONE)
	}
}

// verdict returns the counter of a verdict. Its labels are written as in lessor_verdicts_total of
// the coordinator, so that the two can be joined.
func (m *Metrics) verdict(k lessorv1.ReportKind, v lessorv1.Verdict, r lessorv1.Reason) prometheus.Counter {
	return m.verdicts.WithLabelValues(strings.ToLower(words.Name(k)), words.Name(v), words.Name(r))
}

func (m *Metrics) parts() []prometheus.Collector {
	return []prometheus.Collector{
		m.connected, m.noNewWork, m.slots, m.inflight, m.durations, m.verdicts,
		m.heartbeats, m.degraded, m.errors,
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, part := range m.parts() {
		part.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, part := range m.parts() {
		part.Collect(to)
	}
}

// SetSlots says how many handlers may run at once, for lessor_worker_slots: Config.Concurrency, and
// what the program has given to Worker.SetConcurrency since.
func (m *Metrics) SetSlots(n int) { m.slotCount.Store(int64(n)) }

// Hooks returns hooks that count, and then call those of also. They are for one worker.
func (m *Metrics) Hooks(also worker.Hooks) worker.Hooks {
	hooks := also
	hooks.OnState = func(s worker.State) {
		m.state(s)
		call(also.OnState, s)
	}
	hooks.OnStart = func(t *worker.Task) {
		m.inflight.Inc()
		call(also.OnStart, t)
	}
	hooks.OnEnd = func(t *worker.Task, took time.Duration, err error) {
		m.inflight.Dec()
		m.durations.WithLabelValues(outcomeOf(t, err)).Observe(took.Seconds())
		if also.OnEnd != nil {
			also.OnEnd(t, took, err)
		}
	}
	hooks.OnVerdict = func(t *worker.Task, v *lessorv1.ReportVerdict) {
		m.verdict(v.GetKind(), v.GetVerdict(), v.GetReason()).Inc()
		if also.OnVerdict != nil {
			also.OnVerdict(t, v)
		}
	}
	hooks.OnHeartbeat = func(h *lessorv1.WorkerHeartbeat) {
		m.heartbeats.Inc()
		if !h.GetHealthy() || m.withheld.Load() {
			m.degraded.Inc()
		}
		call(also.OnHeartbeat, h)
	}
	hooks.OnNoNewWork = func(why string) {
		m.withheld.Store(why != "")
		call(also.OnNoNewWork, why)
	}
	hooks.OnError = func(err error) {
		m.errors.WithLabelValues(kindOf(err)).Inc()
		call(also.OnError, err)
	}
	return hooks
}

// call calls a hook, if it is set.
func call[T any](hook func(T), arg T) {
	if hook != nil {
		hook(arg)
	}
}

// state notes a change of the worker's state. StateDraining says nothing about the connection, and
// may be told late: after the connection is lost.
func (m *Metrics) state(s worker.State) {
	switch s {
	case worker.StateRegistered, worker.StateHeartbeating:
		m.connected.Set(1)
	case worker.StateDraining:
	default:
		m.connected.Set(0)
	}
}

// How handlers end.
const (
	completed = "completed"
	failed    = "failed"
	stopped   = "stopped"
	lost      = "lost"
)

// outcomeOf returns how a handler has ended that returned err. A lease that is lost ends the
// context, too.
func outcomeOf(t *worker.Task, err error) string {
	early := t.StopCause() != nil
	switch {
	case early && isClosed(t.Lost()):
		return lost
	case err == nil:
		return completed
	case early:
		return stopped
	}
	return failed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Kinds of errors.
const (
	undelivered  = "undelivered"
	stuck        = "stuck"
	refused      = "refused"
	noConnection = "no_connection"
	other        = "other"
)

func kindOf(err error) string {
	switch {
	case errors.Is(err, worker.ErrUndelivered):
		return undelivered
	case errors.Is(err, worker.ErrStuck):
		return stuck
	case errors.Is(err, worker.ErrNoConnection):
		return noConnection
	case errors.As(err, new(*worker.RefusedError)):
		return refused
	}
	return other
}
