package workermetrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// page returns the lines of /metrics, without help.
func (m *Metrics) page(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return strings.Split(strings.TrimSpace(w.Body.String()), "\n")
}

// want checks lines of /metrics, each without the prefix of all names.
func (m *Metrics) want(t *testing.T, when string, lines ...string) {
	t.Helper()
	page := m.page(t)
	for _, line := range lines {
		if !slices.Contains(page, "lessor_worker_"+line) {
			t.Errorf("%s: /metrics lacks %q:\n%s", when, line, strings.Join(page, "\n"))
		}
	}
}

// value returns the value of a metric without labels.
func (m *Metrics) value(t *testing.T, name string) (v float64) {
	t.Helper()
	for _, line := range m.page(t) {
		if text, found := strings.CutPrefix(line, "lessor_worker_"+name+" "); found {
			_, err := fmt.Sscan(text, &v)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("/metrics lacks %s", name)
	return 0
}

// A session is counted from its first to its last frame: how handlers ended and how long they took,
// what the coordinator said to their outcomes, and the heartbeats, by whether the worker got new
// work.
func TestMetricsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := workertest.Start(t), New()
		m.SetSlots(7)
		w := c.Worker("q", worker.Config{Concurrency: 7, Hooks: m.Hooks(worker.Hooks{}), DrainTimeout: time.Hour})
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			time.Sleep(2 * time.Second)
			switch {
			case task.Type == "fails":
				return nil, errors.New("broken")
			case task.Type == "gives back" && task.Attempt == 1:
				return nil, worker.Release(0, "not here")
			case task.Type == "stops" && task.Attempt == 1:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		})
		m.want(t, "before", "connected 0", "slots 7", "heartbeats_sent_total 0",
			`verdicts_total{kind="complete",reason="NONE",verdict="COMMITTED"} 0`,
			`task_duration_seconds_count{outcome="completed"} 0`, `errors_total{error="undelivered"} 0`)
		c.Run(w)
		submit := func(typ string) string {
			return c.Submit(&lessorv1.TaskSpec{
				Queue: "q", Type: typ, CancelGrace: durationpb.New(time.Minute),
				RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1},
			})
		}
		wait := func(id string) {
			t.Helper()
			c.Wait(id)
			synctest.Wait() // until the worker has its verdict, too
		}
		id := submit("")
		time.Sleep(time.Second)
		m.want(t, "while a handler runs",
			"connected 1", "no_new_work 0", "tasks_inflight 1", `task_duration_seconds_count{outcome="completed"} 0`)
		wait(id)
		m.want(t, "a task has completed", "tasks_inflight 0", `task_duration_seconds_sum{outcome="completed"} 2`,
			`verdicts_total{kind="complete",reason="NONE",verdict="COMMITTED"} 1`)

		wait(submit("fails"))
		m.want(t, "a task has failed", `task_duration_seconds_count{outcome="failed"} 1`,
			`verdicts_total{kind="fail",reason="NONE",verdict="COMMITTED"} 1`)
		wait(submit("gives back"))
		m.want(t, "a task was given back", `task_duration_seconds_count{outcome="failed"} 2`,
			`verdicts_total{kind="release",reason="NONE",verdict="COMMITTED"} 1`)

		id = submit("stops")
		time.Sleep(10 * time.Second)
		c.Cancel(id, "test")
		wait(id)
		m.want(t, "a task was cancelled", `task_duration_seconds_sum{outcome="stopped"} 10`)
		id = submit("stops")
		time.Sleep(10 * time.Second)
		c.LoseLease(id)
		synctest.Wait()
		m.want(t, "a lease was lost", `task_duration_seconds_sum{outcome="lost"} 10`,
			`task_duration_seconds_count{outcome="stopped"} 1`)
		wait(id)

		time.Sleep(5 * time.Minute)
		if sent := m.value(t, "heartbeats_sent_total"); sent < 3 {
			t.Errorf("%v heartbeats were sent, want several", sent)
		}
		m.want(t, "with work", "heartbeats_degraded_total 0")
		id = submit("stops")
		time.Sleep(time.Second)
		w.Drain(time.Hour)
		time.Sleep(time.Minute)
		if degraded := m.value(t, "heartbeats_degraded_total"); degraded < 3 {
			t.Errorf("%v heartbeats were sent degraded while the worker drained for a minute, want several", degraded)
		}
		m.want(t, "while it drains", "connected 1", "tasks_inflight 1")
		c.Cancel(id, "end")
		wait(id)
		time.Sleep(time.Minute)
		m.want(t, "after the drain", "connected 0", "tasks_inflight 0")
	})
}

// A worker that has lost its connection is not connected, even if it hears of a drain after that.
// Errors are counted by their kind.
func TestConnectionAndErrors(t *testing.T) {
	m := New()
	hooks := m.Hooks(worker.Hooks{})
	for _, s := range []worker.State{worker.StateHandshaking, worker.StateRegistered} {
		hooks.OnState(s)
	}
	m.want(t, "registered", "connected 1")
	hooks.OnState(worker.StateBackoff)
	hooks.OnState(worker.StateDraining) // told late
	m.want(t, "the connection was lost as a drain began", "connected 0")
	for err, kind := range map[error]string{
		worker.ErrNoConnection:                       noConnection,
		worker.ErrStuck:                              stuck,
		worker.ErrUndelivered:                        undelivered,
		&worker.RefusedError{Code: "E.AUTH.EXPIRED"}: refused,
		errors.New("the line was cut"):               other,
	} {
		hooks.OnError(fmt.Errorf("session ended: %w", err))
		m.want(t, "an error", `errors_total{error="`+kind+`"} 1`)
	}
}

// A heartbeat is degraded while the coordinator gives no new work, and not after it does again.
func TestDegradedHeartbeats(t *testing.T) {
	m := New()
	hooks := m.Hooks(worker.Hooks{})
	beat := &lessorv1.WorkerHeartbeat{Healthy: true}
	for i, step := range []struct {
		why      string
		degraded int
	}{{"memory", 1}, {"", 1}, {"disk", 2}} {
		hooks.OnNoNewWork(step.why)
		hooks.OnHeartbeat(beat)
		withheld := 0
		if step.why != "" {
			withheld = 1
		}
		m.want(t, step.why, fmt.Sprint("no_new_work ", withheld), fmt.Sprint("heartbeats_sent_total ", i+1),
			fmt.Sprint("heartbeats_degraded_total ", step.degraded))
	}
}

// The hooks of the program are called as well, those that count nothing included.
func TestHooksOfTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		var calls [7]atomic.Int64
		w := c.Worker("q", worker.Config{Hooks: New().Hooks(worker.Hooks{
			OnState:     func(worker.State) { calls[0].Add(1) },
			OnStart:     func(*worker.Task) { calls[1].Add(1) },
			OnEnd:       func(*worker.Task, time.Duration, error) { calls[2].Add(1) },
			OnVerdict:   func(*worker.Task, *lessorv1.ReportVerdict) { calls[3].Add(1) },
			OnStop:      func(*worker.Task, error) { calls[4].Add(1) },
			OnHeartbeat: func(*lessorv1.WorkerHeartbeat) { calls[5].Add(1) },
			OnError:     func(error) { calls[6].Add(1) },
		})})
		w.HandleDefault(func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		time.Sleep(time.Second)
		c.Restart() // an error
		time.Sleep(time.Minute)
		c.Cancel(id, "end")
		c.Wait(id)
		synctest.Wait() // until the worker has the verdict, too
		for i := range calls {
			if calls[i].Load() == 0 {
				t.Errorf("hook %d was not called", i)
			}
		}
	})
}
