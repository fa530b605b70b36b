package session_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
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

// wantHealth checks the health that ListWorkers shows for the worker.
func wantHealth(worker *wiretest.Worker, want lessorv1.WorkerHealth) {
	worker.T.Helper()
	synctest.Wait()
	if got := worker.Rig.ListedWorker(worker.T, worker.Name).GetHealth(); got != want {
		worker.T.Fatalf("the health of %s is %v, want %v", worker.Name, got, want)
	}
}

// sendMetrics sends a heartbeat with these metrics.
func sendMetrics(worker *wiretest.Worker, metrics map[string]float64) {
	worker.T.Helper()
	worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: metrics})
}

// W9: a worker that was silent until a lease ended gets no work, and is shown as DEGRADED, though
// no heartbeat is due yet; a frame of any kind ends both.
func TestSilentWorkerIsDegraded(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second), durationpb.New(3*time.Second)
		})
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(worker.ReceiveAssignments(1)[0])))
		wantHealth(worker, healthy)
		time.Sleep(4 * time.Second)
		wantHealth(worker, degraded)
		if why := r.ListedWorker(t, "w").GetHealthDetail(); !strings.Contains(why, "silent until one of its leases ended") {
			t.Errorf("health_detail = %q", why)
		}
		worker.Send(&lessorv1.Error{})
		wantHealth(worker, healthy)
	})
}

// W9: a worker must send heartbeats from its registration on; other frames do not count as
// heartbeats. After one missed heartbeat its health is WARN, after two it gets no new tasks, after
// three its session is reset. Its leases stay live until they expire.
func TestMissedHeartbeats(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 3)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
		pass := func(d time.Duration) {
			t.Helper()
			time.Sleep(time.Millisecond) // so that no frame comes at the instant when a heartbeat is due
			for range int(d / time.Second) {
				time.Sleep(time.Second / 2)
				worker.Send(&lessorv1.Error{}) // nor at the instant when one counts as missed
				time.Sleep(time.Second / 2)
			}
		}
		pass(14 * time.Second)
		wantHealth(worker, healthy)
		pass(2 * time.Second)
		wantHealth(worker, warn)
		r.Submit(t, nil) // it still gets tasks
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(worker.ReceiveAssignments(1)[0])))
		pass(10 * time.Second)
		wantHealth(worker, degraded)
		r.Submit(t, nil)
		worker.WantNoFrame()
		worker.Heartbeat()
		wantHealth(worker, healthy)
		worker.ReceiveAssignments(1) // a healthy worker gets tasks again
		pass(34 * time.Second)
		worker.WantNoFrame()
		time.Sleep(time.Second + time.Millisecond)
		reset := wiretest.NextPayload[*lessorv1.Reset](worker)
		wiretest.WantEqual(t, "code", reset.GetCode(), refusal.CodeTimeout)
		wiretest.WantContains(t, "reason", reset.GetReason(), "3 heartbeats were missed")
		if reset.RetryAfter != nil { // a worker could take 0 for the advice to come back at once
			t.Errorf("retry_after is %v, want none: the worker's own backoff decides", reset.RetryAfter)
		}
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
		if w := r.ListedWorker(t, "w"); w != nil {
			t.Errorf("the worker is still listed: %v", w)
		}
		if s := r.Get(t, id).GetState(); s != lessorv1.TaskState_TASK_STATE_RUNNING {
			t.Errorf("its task is %v, want RUNNING: the lease has not expired", s)
		}
		time.Sleep(30 * time.Second)
		if got := r.Get(t, id); got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetLosses() != 1 {
			t.Errorf("after its lease has expired, the task is %v, want READY with one loss", got)
		}
	})
}

// W9: a heartbeat that arrives in time does not count as missed if the coordinator is too busy to
// read it.
func TestHeartbeatBehindABusyReaderIsNotMissed(t *testing.T) {
	t.Attr("rules", "W9")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		release := r.SubmitAndBlockCommit(t, st)
		worker.Send(&lessorv1.Capacity{MaxParallel: 2}) // this frame has to wait for the commit
		time.Sleep(50 * time.Second)
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		worker.WantNoFrame()
		release()
		wiretest.NextPayload[*lessorv1.HeartbeatAck](worker)
		wantHealth(worker, healthy)
	})
}

// W9: a worker whose memory or disk is nearly full is SUSPENDED: it gets no new tasks until the
// value is 5 points below the limit. The state of its session does not change. A heartbeat without
// this metric, or with a value that cannot be, changes nothing.
func TestNearlyFullWorkerIsSuspended(t *testing.T) {
	t.Attr("rules", "W9")
	for gauge, limit := range map[string]float64{"mem_pct": 90, "disk_pct": 95} {
		t.Run(gauge, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				sendMetrics(worker, map[string]float64{gauge: limit - 0.1})
				wantHealth(worker, healthy)
				sendMetrics(worker, map[string]float64{gauge: limit})
				r.SubmitAll(t, 1)
				for _, metrics := range []map[string]float64{{gauge: limit + 1}, nil, {"cpu_pct": 1}, {gauge: limit - 4.9}, {"cpu_pct": 1}, {gauge: math.NaN()}, {gauge: -1}} {
					sendMetrics(worker, metrics)
					wantHealth(worker, suspended)
				}
				worker.WantNoFrame()
				w := r.ListedWorker(t, "w")
				if w.GetState() != lessorv1.WorkerState_WORKER_STATE_HEARTBEATING {
					t.Errorf("the state of the session is %v, want HEARTBEATING", w.GetState())
				}
				wiretest.WantContains(t, "detail", w.GetHealthDetail(), fmt.Sprintf("%s is %.4g:", gauge, limit-4.9))
				sendMetrics(worker, map[string]float64{gauge: limit - 5})
				worker.ReceiveAssignments(1)
				wantHealth(worker, healthy)
			})
		})
	}
}

// W9: a worker whose slots were all in use for a minute is SATURATED. It still gets tasks.
func TestSaturatedWorkerIsShown(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		for range 6 {
			sendMetrics(worker, map[string]float64{"inflight": 2})
			wantHealth(worker, healthy)
			time.Sleep(10 * time.Second)
		}
		sendMetrics(worker, map[string]float64{"inflight": 2})
		wantHealth(worker, saturated)
		r.SubmitAll(t, 1)
		submitted := time.Now()
		a := worker.ReceiveAssignments(1)
		if waited := time.Since(submitted); waited > 0 {
			t.Errorf("the worker got the task only after %v", waited)
		}
		sendMetrics(worker, map[string]float64{"inflight": 1})
		wantHealth(worker, healthy)
		worker.Send(&lessorv1.Capacity{MaxParallel: 1})
		for range 7 { // without the metric inflight, the leases in the heartbeat count
			worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{
				Healthy: true, Metrics: map[string]float64{"x": 1},
				Leases: []*lessorv1.HeartbeatRequest{wiretest.Renewal(a[0])},
			})
			time.Sleep(10 * time.Second)
		}
		wantHealth(worker, saturated)
	})
}

// W9: the heartbeat interval and the thresholds can be configured, the thresholds also for single
// tenants. The accept has the interval.
func TestThresholdsCanBeSet(t *testing.T) {
	t.Attr("rules", "W9")
	cfg := coordinator.Config{Sessions: session.Config{
		HeartbeatInterval: time.Second, Health: session.Thresholds{MemPct: 50, Missed: 4},
		TenantHealth: map[string]session.Thresholds{gate.DefaultTenant: {DiskPct: 20, Missed: 2}},
	}}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		if d := worker.Handshake().GetHeartbeatInterval().AsDuration(); d != time.Second {
			t.Errorf("the heartbeat interval of the accept is %v, want 1s", d)
		}
		worker.Send(wiretest.Registration(1))
		sendMetrics(worker, map[string]float64{"mem_pct": 50})
		wantHealth(worker, suspended)
		sendMetrics(worker, map[string]float64{"disk_pct": 20})
		wantHealth(worker, suspended)
		time.Sleep(1500 * time.Millisecond)
		wantHealth(worker, degraded)
		time.Sleep(time.Second)
		wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeTimeout)
	})
}

// W9: if a worker gets no new tasks, the answer to each heartbeat has the reason. The log has a
// line for a change and one for its end; see TestFlappingHealthDoesNotFillTheLog.
func TestWorkerIsToldWhyItGetsNoWork(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		const reason = "disk_pct is 96: no new work at 95 or more, until it falls to 90"
		for i, want := range []string{"", reason, reason, ""} {
			pct := 20.0
			if want != "" {
				pct = 96
			}
			ack := worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"disk_pct": pct}})
			wiretest.WantEqual(t, fmt.Sprintf("heartbeat %d: no_new_work", i), ack.GetNoNewWork(), want)
		}
		ack := worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{})
		wiretest.WantEqual(t, "no_new_work", ack.GetNoNewWork(), "the worker reports that it is not healthy: no new work")
		for words, want := range map[string]int{`"the worker gets no new work"`: 1, `"the worker gets new work again"`: 1, reason: 1} {
			if got := strings.Count(r.Log.String(), words); got != want {
				t.Errorf("the log has %s %d times, want %d", words, got, want)
			}
		}
	})
}

// S6, W9, W10: the explanation of a task says why a worker that could take it gets no work.
func TestExplanationSaysWhyAWorkerGetsNoWork(t *testing.T) {
	t.Attr("rules", "S6 W9 W10")
	full := &lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"disk_pct": 96}}
	for want, keep := range map[string]func(*testing.T, *wiretest.Rig, *wiretest.Worker){
		"disk_pct is 96: no new work at 95 or more, until it falls to 90": func(_ *testing.T, _ *wiretest.Rig, w *wiretest.Worker) { w.SendHeartbeat(full) },
		"the worker reports that it is not healthy: no new work":          func(_ *testing.T, _ *wiretest.Rig, w *wiretest.Worker) { w.SendHeartbeat(&lessorv1.WorkerHeartbeat{}) },
		"it drains": func(_ *testing.T, _ *wiretest.Rig, w *wiretest.Worker) { w.Send(&lessorv1.Drain{}) },
		"an operator drains it": func(t *testing.T, r *wiretest.Rig, _ *wiretest.Worker) {
			r.Drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w"})
		},
		"it offers no slots": func(_ *testing.T, _ *wiretest.Rig, w *wiretest.Worker) {
			w.SendHeartbeat(full)
			w.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"disk_pct": 1}})
			w.Send(&lessorv1.Capacity{})
		},
	} {
		t.Run(want, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				keep(t, r, r.OpenSession(t, "w", 1))
				synctest.Wait()
				id := r.Submit(t, nil).GetTaskId()
				x, err := r.Tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: id})
				if err != nil {
					t.Fatal(err)
				}
				wiretest.WantEqual(t, "the summary", x.GetSummary(),
					"READY: no suitable worker takes new work; of the only one: "+want)
			})
		})
	}
}

// A worker whose health changes with every heartbeat does not fill the log: two lines a minute,
// which say how many changes there were. The last state is always logged.
func TestFlappingHealthDoesNotFillTheLog(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		beat := func(healthy bool) { worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: healthy}) }
		wantLog := func(want string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for line := range strings.Lines(r.Log.String()) {
				var told struct {
					Msg     string
					Changes int
				}
				if err := json.Unmarshal([]byte(line), &told); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(told.Msg, "the worker gets") {
					got = append(got, fmt.Sprintf("%s, %d", told.Msg, told.Changes))
				}
			}
			wiretest.WantEqual(t, "the log", strings.Join(got, "; "), want)
			r.Log.Reset()
		}
		for i := range 41 {
			beat(i%2 == 1)
			time.Sleep(time.Second)
		}
		wantLog("the worker gets no new work, 0; the worker gets new work again, 0")
		time.Sleep(9 * time.Second)
		beat(false)
		wantLog("")
		time.Sleep(10 * time.Second)
		beat(false)
		wantLog("the worker gets no new work, 39")
		beat(true)
		wantLog("the worker gets new work again, 0")
	})
}

// A worker that reports that it is not well is a warning in the log, unless it drains: then it
// stops in order, and the log says that.
func TestDrainIsNoWarning(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for name, drains := range map[string]bool{"ill": false, "stopping": true} {
			worker := r.OpenSession(t, name, 1)
			line := `"level":"WARN","msg":"the worker gets no new work"`
			if drains {
				worker.Send(&lessorv1.Drain{})
				line = `"why":"the worker drains: no new work"`
			}
			worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: false})
			synctest.Wait()
			if warned := strings.Contains(r.Log.String(), `"level":"WARN"`); warned == drains || !strings.Contains(r.Log.String(), line) {
				t.Errorf("%s: warned is %v, and the log is %s", name, warned, r.Log.String())
			}
			r.Log.Reset()
		}
	})
}

// W9: if several causes apply, the worker has the worst health of them. The metrics have a gauge
// for each health.
func TestGravestHealthIsShown(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Metrics: map[string]float64{"mem_pct": 99}})
		wantHealth(worker, unhealthy)
		sendMetrics(worker, nil)
		wantHealth(worker, suspended)
		time.Sleep(26 * time.Second)
		wantHealth(worker, degraded)
		text := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
		wiretest.WantContains(t, "metrics", text, `lessor_sessions{health="DEGRADED"} 1`)
		wiretest.WantContains(t, "metrics", text, `lessor_sessions{health="HEALTHY"} 0`)
		wiretest.WantContains(t, "metrics", text, "lessor_heartbeats_missed_total 2")
	})
}
