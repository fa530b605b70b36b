package coordinator

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

const (
	healthy   = lessorv1.WorkerHealth_WORKER_HEALTH_HEALTHY
	saturated = lessorv1.WorkerHealth_WORKER_HEALTH_SATURATED
	warn      = lessorv1.WorkerHealth_WORKER_HEALTH_WARN
	suspended = lessorv1.WorkerHealth_WORKER_HEALTH_SUSPENDED
	degraded  = lessorv1.WorkerHealth_WORKER_HEALTH_DEGRADED
	unhealthy = lessorv1.WorkerHealth_WORKER_HEALTH_UNHEALTHY
)

func (worker *testWorker) wantHealth(want lessorv1.WorkerHealth) {
	worker.t.Helper()
	synctest.Wait()
	if got := worker.r.listedWorker(worker.t, worker.name).GetHealth(); got != want {
		worker.t.Fatalf("%s is %v, want %v", worker.name, got, want)
	}
}

// sendMetrics sends a heartbeat with gauges.
func (worker *testWorker) sendMetrics(metrics map[string]float64) {
	worker.t.Helper()
	worker.sendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: metrics})
}

// W9: heartbeats are expected from the registration on. After one missed heartbeat the worker is shown as WARN, after two it gets no new work, after
// three its session is reset. Other frames do not replace heartbeats. The leases live until they expire.
func TestMissedHeartbeats(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		id := r.submit(t, nil).GetTaskId()
		a := worker.receiveAssignments(1)[0]
		wantCommitted(t, worker.report(started(a)))
		pass := func(d time.Duration) {
			t.Helper()
			time.Sleep(time.Millisecond) // so that no frame comes at the very moment when a heartbeat is due
			for range int(d / time.Second) {
				time.Sleep(time.Second / 2)
				worker.send(&lessorv1.Error{}) // not at the moment of a miss either
				time.Sleep(time.Second / 2)
			}
		}
		pass(14 * time.Second)
		worker.wantHealth(healthy)
		pass(2 * time.Second)
		worker.wantHealth(warn)
		pass(10 * time.Second)
		worker.wantHealth(degraded)
		r.submit(t, nil)
		worker.wantNoFrame()
		worker.heartbeat()
		worker.wantHealth(healthy)
		worker.receiveAssignments(1) // the worker may get work again
		pass(34 * time.Second)
		worker.wantNoFrame()
		time.Sleep(time.Second + time.Millisecond)
		reset := nextPayload[*lessorv1.Reset](worker)
		wantEqual(t, "code", reset.GetCode(), refusal.CodeTimeout)
		wantContains(t, "reason", reset.GetReason(), "3 heartbeats were missed")
		if err := worker.waitForEnd(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if w := r.listedWorker(t, "w"); w != nil {
			t.Errorf("still listed: %v", w)
		}
		if s := r.get(t, id).GetState(); s != lessorv1.TaskState_TASK_STATE_RUNNING {
			t.Errorf("its task is %v, want RUNNING: the lease has not run out", s)
		}
		time.Sleep(30 * time.Second)
		if got := r.get(t, id); got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetLosses() != 1 {
			t.Errorf("after its lease: %v", got)
		}
	})
}

// W9: a heartbeat that the coordinator was too busy to read does not count as missed.
func TestHeartbeatBehindABusyReaderIsNotMissed(t *testing.T) {
	t.Attr("rules", "W9")
	st := memstore.New()
	serve(t, st, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		synctest.Wait()
		release := blockCommits(st)
		go func() {
			if _, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "other"}}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		worker.send(&lessorv1.Capacity{MaxParallel: 2}) // its answer has to wait for the commit
		time.Sleep(50 * time.Second)
		worker.send(&lessorv1.WorkerHeartbeat{Healthy: true})
		worker.wantNoFrame()
		release()
		nextPayload[*lessorv1.HeartbeatAck](worker)
		worker.wantHealth(healthy)
	})
}

// W9: a worker whose memory or disk is nearly full gets no new work until the value is 5 points lower. Its state does not change. A heartbeat without
// this gauge, or with NaN, changes nothing.
func TestNearlyFullWorkerIsSuspended(t *testing.T) {
	t.Attr("rules", "W9")
	for gauge, limit := range map[string]float64{"mem_pct": 90, "disk_pct": 95} {
		t.Run(gauge, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				worker := r.openSession(t, "w", 1)
				worker.sendMetrics(map[string]float64{gauge: limit - 0.1})
				worker.wantHealth(healthy)
				worker.sendMetrics(map[string]float64{gauge: limit})
				r.submitAll(t, 1)
				for _, metrics := range []map[string]float64{{gauge: limit + 1}, nil, {"cpu_pct": 1}, {gauge: limit - 4.9}, {"cpu_pct": 1}, {gauge: math.NaN()}} {
					worker.sendMetrics(metrics)
					worker.wantHealth(suspended)
				}
				worker.wantNoFrame()
				w := r.listedWorker(t, "w")
				if w.GetState() != lessorv1.WorkerState_WORKER_STATE_HEARTBEATING {
					t.Errorf("its state is %v", w.GetState())
				}
				wantContains(t, "detail", w.GetHealthDetail(), fmt.Sprintf("%s is %.4g:", gauge, limit-4.9))
				worker.sendMetrics(map[string]float64{gauge: limit - 5})
				worker.receiveAssignments(1)
				worker.wantHealth(healthy)
			})
		})
	}
}

// W9: a worker whose slots were all in use for a minute is shown as SATURATED; it still gets work.
func TestSaturatedWorkerIsShown(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		for range 6 {
			worker.sendMetrics(map[string]float64{"inflight": 2})
			worker.wantHealth(healthy)
			time.Sleep(10 * time.Second)
		}
		worker.wantHealth(saturated)
		r.submitAll(t, 1)
		a := worker.receiveAssignments(1)
		worker.sendMetrics(map[string]float64{"inflight": 1})
		worker.wantHealth(healthy)
		worker.send(&lessorv1.Capacity{MaxParallel: 1})
		for range 7 { // without the gauge inflight, the leases that heartbeats name are counted
			worker.sendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"x": 1}, Leases: []*lessorv1.HeartbeatRequest{renewal(a[0])}})
			time.Sleep(10 * time.Second)
		}
		worker.wantHealth(saturated)
	})
}

// W9: the heartbeat interval and the thresholds can be configured, also for single tenants. accept has the interval.
func TestThresholdsCanBeSet(t *testing.T) {
	t.Attr("rules", "W9")
	cfg := Config{Sessions: session.Config{
		HeartbeatInterval: time.Second, Health: session.Thresholds{MemPct: 50, Missed: 4},
		TenantHealth: map[string]session.Thresholds{gate.DefaultTenant: {DiskPct: 20, Missed: 2}},
	}}
	serveWith(t, nil, cfg, func(t *testing.T, r *rig) {
		worker := r.openStream(t, "w")
		if d := worker.handshake().GetHeartbeatInterval().AsDuration(); d != time.Second {
			t.Errorf("accept says %v", d)
		}
		worker.send(registration(1))
		worker.sendMetrics(map[string]float64{"mem_pct": 50})
		worker.wantHealth(suspended)
		worker.sendMetrics(map[string]float64{"disk_pct": 20})
		worker.wantHealth(suspended)
		time.Sleep(1500 * time.Millisecond)
		worker.wantHealth(degraded)
		time.Sleep(time.Second)
		wantEqual(t, "code", nextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeTimeout)
	})
}

// W9: a worker that gets no new work is told the reason in each heartbeat's answer. The log has it once for each change.
func TestWorkerIsToldWhyItGetsNoWork(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		const why = "disk_pct is 96: no new work at 95 or more, until it falls to 90"
		for i, want := range []string{"", why, why, ""} {
			pct := 20.0
			if want != "" {
				pct = 96
			}
			ack := worker.sendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"disk_pct": pct}})
			wantEqual(t, fmt.Sprintf("heartbeat %d: no_new_work", i), ack.GetNoNewWork(), want)
		}
		ack := worker.sendHeartbeat(&lessorv1.WorkerHeartbeat{})
		wantEqual(t, "no_new_work", ack.GetNoNewWork(), "the worker reports that it is not healthy: no new work")
		for words, want := range map[string]int{`"the worker gets no new work"`: 2, `"the worker gets new work again"`: 1, why: 1} {
			if got := strings.Count(r.log.String(), words); got != want {
				t.Errorf("the log says %s %d times, want %d", words, got, want)
			}
		}
	})
}

// W9: if several reasons apply, the gravest health is shown. The metrics have a gauge for each health.
func TestGravestHealthIsShown(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		worker.sendHeartbeat(&lessorv1.WorkerHeartbeat{Metrics: map[string]float64{"mem_pct": 99}})
		worker.wantHealth(unhealthy)
		worker.sendMetrics(nil)
		worker.wantHealth(suspended)
		time.Sleep(26 * time.Second)
		worker.wantHealth(degraded)
		text := getPath(t, r, "/metrics", http.StatusOK)
		wantContains(t, "metrics", text, `lessor_sessions{health="DEGRADED"} 1`)
		wantContains(t, "metrics", text, `lessor_sessions{health="HEALTHY"} 0`)
		wantContains(t, "metrics", text, "lessor_heartbeats_missed_total 2")
	})
}
