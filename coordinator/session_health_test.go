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

func (tk *talker) wantHealth(want lessorv1.WorkerHealth) {
	tk.t.Helper()
	synctest.Wait()
	if got := tk.r.worker(tk.t, tk.name).GetHealth(); got != want {
		tk.t.Fatalf("%s is %v, want %v", tk.name, got, want)
	}
}

// beatWith sends a heartbeat with gauges.
func (tk *talker) beatWith(metrics map[string]float64) {
	tk.t.Helper()
	tk.beatOf(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: metrics})
}

// W9: heartbeats are counted from the registration on: one missing is a warning, two cost new work, three the session. Other frames do
// not help, and the leases live on until they run out.
func TestMissedHeartbeats(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		id := r.submit(t, nil).GetTaskId()
		a := tk.given(1)[0]
		did(t, tk.judge(started(a)))
		pass := func(d time.Duration) {
			t.Helper()
			time.Sleep(time.Millisecond) // no frame comes just when a heartbeat is due: it could be behind it
			for range int(d / time.Second) {
				time.Sleep(time.Second / 2)
				tk.say(&lessorv1.Error{}) // not at the moment of a miss, which would wait for it to be read
				time.Sleep(time.Second / 2)
			}
		}
		pass(14 * time.Second)
		tk.wantHealth(healthy)
		pass(2 * time.Second)
		tk.wantHealth(warn)
		pass(10 * time.Second)
		tk.wantHealth(degraded)
		r.submit(t, nil)
		tk.quiet()
		tk.beat()
		tk.wantHealth(healthy)
		tk.given(1) // it may have work again
		pass(34 * time.Second)
		tk.quiet()
		time.Sleep(time.Second + time.Millisecond)
		reset := hear[*lessorv1.Reset](tk)
		wantText(t, "code", reset.GetCode(), refusal.CodeTimeout)
		wantWord(t, "reason", reset.GetReason(), "3 heartbeats were missed")
		if err := tk.over(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if w := r.worker(t, "w"); w != nil {
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

// W9: where it is the coordinator that does not come to read, no heartbeat is missed.
func TestHeartbeatBehindABusyReaderIsNotMissed(t *testing.T) {
	t.Attr("rules", "W9")
	st := memstore.New()
	serve(t, st, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		synctest.Wait()
		release := hold(st)
		go func() {
			if _, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "other"}}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		tk.say(&lessorv1.Capacity{MaxParallel: 2}) // waits behind the commit
		time.Sleep(50 * time.Second)
		tk.say(&lessorv1.WorkerHeartbeat{Healthy: true})
		tk.quiet()
		release()
		hear[*lessorv1.HeartbeatAck](tk)
		tk.wantHealth(healthy)
	})
}

// W9: memory and disk that are nearly full keep new work away until they are 5 points lower; the state stays. A heartbeat without
// that gauge, or with one that is no number, changes nothing.
func TestNearlyFullWorkerIsSuspended(t *testing.T) {
	t.Attr("rules", "W9")
	for gauge, limit := range map[string]float64{"mem_pct": 90, "disk_pct": 95} {
		t.Run(gauge, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				tk := r.work(t, "w", 1)
				tk.beatWith(map[string]float64{gauge: limit - 0.1})
				tk.wantHealth(healthy)
				tk.beatWith(map[string]float64{gauge: limit})
				r.submitAll(t, 1)
				for _, metrics := range []map[string]float64{{gauge: limit + 1}, nil, {"cpu_pct": 1}, {gauge: limit - 4.9}, {"cpu_pct": 1}, {gauge: math.NaN()}} {
					tk.beatWith(metrics)
					tk.wantHealth(suspended)
				}
				tk.quiet()
				w := r.worker(t, "w")
				if w.GetState() != lessorv1.WorkerState_WORKER_STATE_HEARTBEATING {
					t.Errorf("its state is %v", w.GetState())
				}
				wantWord(t, "detail", w.GetHealthDetail(), fmt.Sprintf("%s is %.4g:", gauge, limit-4.9))
				tk.beatWith(map[string]float64{gauge: limit - 5})
				tk.given(1)
				tk.wantHealth(healthy)
			})
		})
	}
}

// W9: a worker whose slots have all been in use for a minute is shown as saturated, and works on.
func TestSaturatedWorkerIsShown(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		for range 6 {
			tk.beatWith(map[string]float64{"inflight": 2})
			tk.wantHealth(healthy)
			time.Sleep(10 * time.Second)
		}
		tk.wantHealth(saturated)
		r.submitAll(t, 1)
		a := tk.given(1)
		tk.beatWith(map[string]float64{"inflight": 1})
		tk.wantHealth(healthy)
		tk.say(&lessorv1.Capacity{MaxParallel: 1})
		for range 7 { // the leases that a heartbeat names count, where it has no gauge
			tk.beatOf(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"x": 1}, Leases: []*lessorv1.HeartbeatRequest{renewal(a[0])}})
			time.Sleep(10 * time.Second)
		}
		tk.wantHealth(saturated)
	})
}

// W9: interval and thresholds can be set, for all and for single tenants; accept tells the interval.
func TestThresholdsCanBeSet(t *testing.T) {
	t.Attr("rules", "W9")
	cfg := Config{Sessions: session.Config{
		HeartbeatInterval: time.Second, Health: session.Thresholds{MemPct: 50, Missed: 4},
		TenantHealth: map[string]session.Thresholds{gate.DefaultTenant: {DiskPct: 20, Missed: 2}},
	}}
	serveWith(t, nil, cfg, func(t *testing.T, r *rig) {
		tk := r.talk(t, "w")
		if d := tk.shake().GetHeartbeatInterval().AsDuration(); d != time.Second {
			t.Errorf("accept says %v", d)
		}
		tk.say(registration(1))
		tk.beatWith(map[string]float64{"mem_pct": 50})
		tk.wantHealth(suspended)
		tk.beatWith(map[string]float64{"disk_pct": 20})
		tk.wantHealth(suspended)
		time.Sleep(1500 * time.Millisecond)
		tk.wantHealth(degraded)
		time.Sleep(time.Second)
		wantText(t, "code", hear[*lessorv1.Reset](tk).GetCode(), refusal.CodeTimeout)
	})
}

// W9: a worker that gets no new work is told why, in the answer to each heartbeat, and the log tells it once.
func TestWorkerIsToldWhyItGetsNoWork(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		const why = "disk_pct is 96: no new work at 95 or more, until it falls to 90"
		for i, want := range []string{"", why, why, ""} {
			pct := 20.0
			if want != "" {
				pct = 96
			}
			ack := tk.beatOf(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"disk_pct": pct}})
			wantText(t, fmt.Sprintf("heartbeat %d: no_new_work", i), ack.GetNoNewWork(), want)
		}
		ack := tk.beatOf(&lessorv1.WorkerHeartbeat{})
		wantText(t, "no_new_work", ack.GetNoNewWork(), "the worker reports that it is not healthy: no new work")
		for words, want := range map[string]int{`"the worker gets no new work"`: 2, `"the worker gets new work again"`: 1, why: 1} {
			if got := strings.Count(r.log.String(), words); got != want {
				t.Errorf("the log says %s %d times, want %d", words, got, want)
			}
		}
	})
}

// The gravest is shown, and every health has its gauge.
func TestGravestHealthIsShown(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		tk.beatOf(&lessorv1.WorkerHeartbeat{Metrics: map[string]float64{"mem_pct": 99}})
		tk.wantHealth(unhealthy)
		tk.beatWith(nil)
		tk.wantHealth(suspended)
		time.Sleep(26 * time.Second)
		tk.wantHealth(degraded)
		text := httpGet(t, r, "/metrics", http.StatusOK)
		wantWord(t, "metrics", text, `lessor_sessions{health="DEGRADED"} 1`)
		wantWord(t, "metrics", text, `lessor_sessions{health="HEALTHY"} 0`)
		wantWord(t, "metrics", text, "lessor_heartbeats_missed_total 2")
	})
}
