package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

func isCapacity(f *lessorv1.SessionRequest) bool { return f.GetCapacity() != nil }

// W2: register declares the capabilities of the Config and the types that have handlers.
func TestCapabilities(t *testing.T) {
	t.Attr("rules", "W2 W12")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{
			Concurrency:   7,
			PerTypeLimits: map[string]int{"work": 2},
			SingleFlight:  true,
			MaxBytes:      1 << 20,
			Runtimes:      []string{"python3.12"},
			Features:      []string{"gpu"},
			Labels:        map[string]string{"zone": "b"},
			Resources:     map[string]float64{"vram_gb": 80},
		}, echo)
		want := &lessorv1.Capabilities{
			Concurrency: &lessorv1.Concurrency{
				MaxParallel: 7, PerTypeLimits: map[string]uint32{"work": 2}, SingleFlight: true, MaxBytes: 1 << 20,
			},
			Types:     []string{"work"},
			Runtimes:  []string{"python3.12"},
			Features:  []string{"gpu"},
			Labels:    map[string]string{"zone": "b"},
			Resources: map[string]float64{"vram_gb": 80},
		}
		if got := c.accept().register.GetRegister().GetCapabilities(); !proto.Equal(got, want) {
			t.Errorf("capabilities = %v, want %v", got, want)
		}
		r.shutdown()
	})
}

// The worker declares the same capabilities on each stream, even if the caller has changed the maps
// and slices of its Config since: New copies them.
func TestConfigIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		cfg := worker.Config{
			Runtimes: []string{"python3.12"}, Features: []string{"gpu"},
			Labels: map[string]string{"zone": "b"}, Resources: map[string]float64{"vram_gb": 80},
			PerTypeLimits: map[string]int{"work": 2},
		}
		r := c.run(cfg, echo)
		s := c.accept()
		want := proto.CloneOf(s.register.GetRegister().GetCapabilities())
		cfg.Runtimes[0], cfg.Features[0], cfg.Labels["zone"], cfg.Resources["vram_gb"] = "go", "tpu", "c", 8
		cfg.PerTypeLimits["work"] = 3
		s.finish(errBroken)
		if got := c.accept().register.GetRegister().GetCapabilities(); !proto.Equal(got, want) {
			t.Errorf("capabilities = %v, want %v", got, want)
		}
		r.shutdown()
	})
}

// W4: the worker sends a new capacity to the coordinator at once, but only if it differs from the
// last one. A limit that was removed is sent as 10,000. On a new stream register declares the
// newest capacity. It must declare at least one slot, so that a capacity of 0 follows in a frame of
// its own.
func TestCapacityChanges(t *testing.T) {
	t.Attr("rules", "W2 W4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 2, PerTypeLimits: map[string]int{"work": 1}}, echo)
		s := c.accept()
		check := func(slots uint32, limits map[string]uint32) {
			t.Helper()
			begun := time.Now()
			got := s.next("capacity", isCapacity).GetCapacity()
			if got.GetMaxParallel() != slots || !maps.Equal(got.GetPerTypeLimits(), limits) || time.Since(begun) > 0 {
				t.Errorf("capacity after %v = %v, want %d and %v at once", time.Since(begun), got, slots, limits)
			}
			synctest.Wait() // the worker has nothing left to send, so that only the next change wakes it
		}
		mustSet(t, r.worker.SetConcurrency(5))
		check(5, nil)
		mustSet(t, r.worker.SetTypeLimits(map[string]int{"work": 3, "play": 0}))
		check(5, map[string]uint32{"work": 3, "play": 0})
		mustSet(t, r.worker.SetConcurrency(5))
		mustSet(t, r.worker.SetTypeLimits(nil))
		check(5, map[string]uint32{"work": 10_000, "play": 10_000})
		mustSet(t, r.worker.SetConcurrency(0))
		check(0, nil)
		s.finish(errBroken)
		s = c.accept()
		if got := s.register.GetRegister().GetCapabilities().GetConcurrency(); got.GetMaxParallel() != 1 || len(got.GetPerTypeLimits()) > 0 {
			t.Errorf("register = %v, want max_parallel 1, the least that is allowed, and no limits", got)
		}
		check(0, nil)
		r.shutdown()
	})
}

func mustSet(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// W4: a worker with a capacity of 0 still declares one slot in register. A task that the
// coordinator dispatches into it is released at once, without delay.
func TestTaskIsReleasedAtCapacityZero(t *testing.T) {
	t.Attr("rules", "W4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		mustSet(t, r.worker.SetConcurrency(0))
		s.next("capacity", isCapacity)
		s.finish(errBroken)
		s = c.accept()
		begun := time.Now()
		s.dispatch("t1")
		f, report := s.outcome()
		if held := time.Since(begun); report.GetRelease() == nil || report.GetRelease().GetDelay() != nil || held > 0 {
			t.Errorf("after %v: %v, want a release at once and without delay", held, report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// A task that waits for a free slot, in all or of its type, starts when the capacity grows.
func TestConcurrencyGrows(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  worker.Config
		grow func(*worker.Worker) error
	}{
		"in all":      {worker.Config{Concurrency: 1}, func(w *worker.Worker) error { return w.SetConcurrency(2) }},
		"of its type": {worker.Config{Concurrency: 2, PerTypeLimits: map[string]int{"work": 1}}, func(w *worker.Worker) error { return w.SetTypeLimits(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { concurrencyGrows(t, c.cfg, c.grow) })
		})
	}
}

func concurrencyGrows(t *testing.T, cfg worker.Config, grow func(*worker.Worker) error) {
	c := startCoordinator(t)
	hold := make(chan struct{})
	r := c.run(cfg, func(context.Context, *worker.Task) ([]byte, error) { <-hold; return nil, nil })
	s := c.accept()
	s.dispatch("t1", "t2")
	s.commit(s.reports())
	s.quiet("start without a slot", isReports)
	mustSet(t, grow(r.worker))
	f := s.reports()
	if f.GetReports().GetReports()[0].GetStart() == nil {
		t.Errorf("report = %v, want the second start", f)
	}
	s.commit(f)
	close(hold)
	s.commitOutcomes(2)
	r.shutdown()
}

// Tasks that wait for a slot get one when a handler returns, one task for each slot: never more
// handlers run than Concurrency allows.
func TestWaitingTasksStartOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var running atomic.Int32
		r := c.run(worker.Config{Concurrency: 1}, func(context.Context, *worker.Task) ([]byte, error) {
			if n := running.Add(1); n > 1 {
				t.Errorf("%d handlers run, want 1 at once", n)
			}
			defer running.Add(-1)
			time.Sleep(100 * time.Millisecond)
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1", "t2", "t3", "t4")
		for done := 0; done < 4; {
			f := s.reports()
			for _, report := range f.GetReports().GetReports() {
				if report.GetComplete() != nil {
					done++
				} else if report.GetStart() == nil {
					t.Fatalf("report = %v, want a complete", report)
				}
			}
			s.commit(f)
		}
		r.shutdown()
	})
}

// A handler that ignores the end of its attempt does not hold up tasks of other types; the next
// attempt at its own task begins when it has returned.
func TestStuckHandlerDelaysOnlyItsType(t *testing.T) {
	t.Attr("rules", "W4")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		w := c.Worker("q", worker.Config{Concurrency: 3, PerTypeLimits: map[string]int{"gpu": 1}})
		var running atomic.Int32
		w.Handle("gpu", func(_ context.Context, task *worker.Task) ([]byte, error) {
			if n := running.Add(1); n > 1 {
				t.Errorf("%d handlers of the type run, want 1 at once", n)
			}
			defer running.Add(-1)
			if task.Attempt == 1 {
				time.Sleep(10 * time.Second)
			}
			return nil, nil
		})
		w.Handle("work", echo)
		stop := c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "gpu", AttemptTimeout: durationpb.New(time.Second)})
		time.Sleep(5 * time.Second)
		begun := time.Now()
		if task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "work"}); task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || time.Since(begun) > 0 {
			t.Errorf("a task of another type is %v after %v, want COMPLETED at once", task.GetState(), time.Since(begun))
		}
		if task := c.Wait(id); task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("the task is %v, want COMPLETED by a later attempt", task.GetState())
		}
		stop()
	})
}

// T5: a task that is granted while a handler without a lease still has the only slot is given back:
// the wait costs neither its lease nor its attempt_timeout, and so nothing of its budgets. The
// worker has said before that the slot is taken, and the task begins when it is free.
func TestTaskWaitsForTheSlotOfAStuckHandler(t *testing.T) {
	t.Attr("rules", "T5")
	for name, spec := range map[string]*lessorv1.TaskSpec{
		"attempt_timeout": {AttemptTimeout: durationpb.New(2 * time.Second), RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1}},
		"lease":           {HeartbeatTimeout: durationpb.New(time.Second), RetryPolicy: &lessorv1.RetryPolicy{MaxLosses: 1}},
		"short lease":     {HeartbeatTimeout: durationpb.New(100 * time.Millisecond), RetryPolicy: &lessorv1.RetryPolicy{MaxLosses: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := workertest.Start(t)
				w := c.Worker("q", worker.Config{Concurrency: 1})
				w.Handle("hang", func(context.Context, *worker.Task) ([]byte, error) {
					time.Sleep(10 * time.Second)
					return nil, nil
				})
				w.Handle("quick", echo)
				stop := c.Run(w)
				hang := c.Submit(&lessorv1.TaskSpec{
					Queue: "q", Type: "hang", AttemptTimeout: durationpb.New(time.Second),
					RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1},
				})
				c.WaitState(hang, lessorv1.TaskState_TASK_STATE_RUNNING)
				spec.Queue, spec.Type = "q", "quick"
				task := c.Do(spec)
				if task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || task.GetFailures() != 0 || task.GetLosses() != 0 || task.GetAttempt() != 2 {
					t.Errorf("the task is %v in attempt %d with %d failures and %d losses, want COMPLETED in attempt 2 without any",
						task.GetState(), task.GetAttempt(), task.GetFailures(), task.GetLosses())
				}
				stop()
			})
		})
	}
}

// A handler that ignores the loss of its lease counts towards the limit of its type until it
// returns, although the coordinator no longer counts it. The next task of the type waits a moment
// for the slot and is then released. Meanwhile the worker declares a smaller limit.
func TestStuckHandlerLowersTheLimitOfItsType(t *testing.T) {
	t.Attr("rules", "W4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := map[string]chan struct{}{"t1": make(chan struct{}), "t3": make(chan struct{})}
		r := c.run(worker.Config{Concurrency: 4, PerTypeLimits: map[string]int{"work": 1}}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			if until := hold[task.ID]; until != nil {
				<-until
			}
			return nil, nil
		})
		s := c.accept()
		lose := func(id string) {
			t.Helper()
			s.dispatch(id)
			s.started(id)
			s.cancel(id, lessorv1.Reason_REASON_REVOKED, 0)
			s.dispatch("after " + id)
		}
		check := func(slots, ofType uint32) {
			t.Helper()
			got := s.next("capacity", isCapacity).GetCapacity()
			if got.GetMaxParallel() != slots || !maps.Equal(got.GetPerTypeLimits(), map[string]uint32{"work": ofType}) {
				t.Errorf("capacity = %v, want %d, and %d of the type", got, slots, ofType)
			}
		}
		begun := time.Now()
		lose("t1")
		check(3, 0)
		for _, id := range []string{"after t1", "second after t1"} {
			f, report := s.outcome()
			if report.GetRelease().GetTaskId() != id || time.Since(begun) >= 5*time.Second {
				t.Errorf("after %v: %v, want %s released", time.Since(begun), report, id)
			}
			s.commit(f)
			if id == "after t1" {
				begun = time.Now()
				s.dispatch("second after t1")
			}
		}
		close(hold["t1"])
		check(4, 1)
		lose("t3")
		synctest.Wait() // the next task waits
		close(hold["t3"])
		s.started("after t3")
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// W14: a worker with SingleFlight refuses a task while a handler of another task with the same
// concurrency key runs, even if that task has lost its lease. Tasks with other keys start. When the
// handler has returned, tasks with its key start again.
func TestSingleFlight(t *testing.T) {
	t.Attr("rules", "W14 T11")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 4, SingleFlight: true}, func(context.Context, *worker.Task) ([]byte, error) {
			<-hold
			return nil, nil
		})
		s := c.accept()
		s.send(keyed("t1", "k"))
		s.started("t1")
		refused := func(id string) {
			t.Helper()
			begun := time.Now()
			s.send(keyed(id, "k"))
			e := s.next("refusal", isError).GetError()
			if e.GetCode() != "E.CMD.CONCURRENCY_VIOLATION" || e.GetTaskId() != id || e.GetLeaseId() != "lease-"+id || time.Since(begun) > 0 {
				t.Errorf("error after %v = %v, want a refusal of %s at once", time.Since(begun), e, id)
			}
			s.quiet("start of a refused task", isReports)
		}
		refused("t2")
		s.cancel("t1", lessorv1.Reason_REASON_LEASE_EXPIRED, 0)
		refused("t3")
		s.send(keyed("t4", "other"))
		s.started("t4")
		close(hold)
		f, _ := s.outcome()
		s.commit(f)
		synctest.Wait()
		s.send(keyed("t5", "k"))
		s.started("t5")
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// slowLog is a log that takes a second for each line about a handler that has failed.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		time.Sleep(time.Second)
	}
	return nil
}

func (l slowLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// W14: once the outcome of a task is out, the next task of its key starts, even if the worker is
// still busy with the one before.
func TestSingleFlightEndsWithTheHandler(t *testing.T) {
	t.Attr("rules", "W14 T11")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		log := slog.New(slowLog{slog.DiscardHandler})
		r := c.run(worker.Config{Concurrency: 2, SingleFlight: true, Logger: log}, func(context.Context, *worker.Task) ([]byte, error) {
			return nil, errors.New("broken")
		})
		s := c.accept()
		for i := range 2 {
			begun := time.Now()
			s.send(keyed(fmt.Sprint("t", i), "k"))
			f := s.next("outcome or refusal", func(m *lessorv1.SessionRequest) bool { return isOutcome(m) || isError(m) })
			if e := f.GetError(); e != nil || time.Since(begun) >= time.Second {
				t.Fatalf("task %d is refused after %v: %v, want its outcome before the log has the one before",
					i, time.Since(begun), e)
			}
			s.commit(f)
		}
		r.shutdown()
	})
}

// W8, W14: a refusal that was lost with its stream is sent again on the next one, and so is the
// refusal of a lease that is dispatched again. Otherwise the acknowledgement of a later frame would
// count for the refused lease, too, and its end would count as a loss of the task.
func TestRefusalIsSentAgain(t *testing.T) {
	t.Attr("rules", "W8 W14")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.withTokens()
		hold := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 2, SingleFlight: true}, func(context.Context, *worker.Task) ([]byte, error) {
			<-hold
			return nil, nil
		})
		s := c.accept()
		s.send(keyed("t1", "k"))
		s.started("t1")
		synctest.Wait()
		s.mute.Store(true)
		s.send(keyed("t2", "k"))
		lost := s.next("refusal", isError)
		sent := s.lastSeq()
		c.accepts = func(fresh *stream, a *lessorv1.Accept) {
			a.Resumed, a.NextSeq = true, lost.GetSeq()
			fresh.lastSent = sent
		}
		s.finish(errBroken)
		s = c.accept()
		wantRefusal := func() {
			t.Helper()
			if e := s.next("refusal", isError).GetError(); e.GetCode() != "E.CMD.CONCURRENCY_VIOLATION" || e.GetLeaseId() != "lease-t2" {
				t.Errorf("error = %v, want the refusal of t2", e)
			}
		}
		wantRefusal()
		synctest.Wait()
		s.quiet("refusal that was acknowledged", isError)
		s.send(keyed("t2", "k"))
		wantRefusal()
		close(hold)
		f, _ := s.outcome()
		s.commit(f)
		s.quiet("report of a refused task", isReports)
		r.shutdown()
	})
}

// A worker without SingleFlight leaves the counting of concurrency keys to the coordinator: it
// starts each task that is dispatched, also two of the same key at once.
func TestConcurrencyKeyWithoutSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 2}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return nil, nil
		})
		s := c.accept()
		for _, id := range []string{"t1", "t2"} {
			s.send(keyed(id, "k"))
			s.started(id)
		}
		close(hold)
		s.commitOutcomes(2)
		r.shutdown()
	})
}

// keyed is a dispatch of one task with a concurrency key.
func keyed(id, key string) *lessorv1.SessionResponse {
	f := dispatchOf(id)
	f.GetDispatch().GetAssignments()[0].GetTask().GetSpec().ConcurrencyKey = key
	return f
}

// New refuses a bad capability with an error that names the field; SetConcurrency and SetTypeLimits
// refuse more than 10,000.
func TestBadCapabilities(t *testing.T) {
	c := startCoordinator(t)
	long := strings.Repeat("x", 257)
	types := func(n int) map[string]int {
		limits := make(map[string]int)
		for i := range n {
			limits[fmt.Sprint("t", i)] = 1
		}
		return limits
	}
	for _, test := range []struct {
		field string
		cfg   worker.Config
	}{
		{"PerTypeLimits", worker.Config{PerTypeLimits: map[string]int{"t": -1}}},
		{"PerTypeLimits", worker.Config{PerTypeLimits: map[string]int{long: 1}}},
		{"PerTypeLimits", worker.Config{PerTypeLimits: types(1001)}},
		{"MaxBytes", worker.Config{MaxBytes: -1}},
		{"Runtimes", worker.Config{Runtimes: []string{""}}},
		{"Runtimes", worker.Config{Runtimes: slices.Repeat([]string{"r"}, 257)}},
		{"Features", worker.Config{Features: []string{long}}},
		{"Labels", worker.Config{Labels: map[string]string{"zone": long}}},
		{"Resources", worker.Config{Resources: map[string]float64{"vram_gb": math.NaN()}}},
		{"Resources", worker.Config{Resources: map[string]float64{"vram_gb": math.Inf(1)}}},
		{"Resources", worker.Config{Resources: map[string]float64{"vram_gb": -1}}},
	} {
		if _, err := worker.New(c.conn, []string{"q"}, test.cfg); err == nil || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s = %.80v: New = %v, want an error that names the field", test.field, test.cfg, err)
		}
	}
	most := worker.Config{
		PerTypeLimits: types(1000), Runtimes: slices.Repeat([]string{"r"}, 256),
		Resources: map[string]float64{"vram_gb": 0},
	}
	if _, err := worker.New(c.conn, []string{"q"}, most); err != nil {
		t.Errorf("values at their limits: New = %v, want nil", err)
	}
	w, err := worker.New(c.conn, []string{"q"}, worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if w.SetConcurrency(10_001) == nil || w.SetTypeLimits(map[string]int{"t": 10_001}) == nil {
		t.Error("SetConcurrency(10001) or SetTypeLimits of 10001 = nil, want an error from both")
	}
}

// A name that a type cannot have is an error of Run. A limit of a type without a handler is only a
// warning, because another program may have the handler. The errors of SetConcurrency and
// SetTypeLimits name the call.
func TestTypesWithoutHandlers(t *testing.T) {
	c := startCoordinator(t)
	for _, name := range []string{"\xff", "a\nb", strings.Repeat("x", 257)} {
		w, err := worker.New(c.conn, []string{"q"}, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle(name, echo)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the type of a handler") {
			t.Errorf("Run with a handler for %.10q = %v, want an error", name, err)
		}
	}
	for _, byDefault := range []bool{false, true} {
		var log strings.Builder
		w, err := worker.New(c.conn, []string{"q"}, worker.Config{
			PerTypeLimits: map[string]int{"gpu": 1, "first": 1}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("gpu", echo)
		if byDefault {
			w.HandleDefault(echo)
		}
		w.Drain(0)
		if err := w.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.SetTypeLimits(map[string]int{"gpu": 1, "second": 1}); err != nil {
			t.Fatal(err)
		}
		want := 1
		if byDefault {
			want = 0
		}
		for _, line := range []string{"type=first", "type=second"} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%q is logged %d times, want %d:\n%s", line, got, want, log.String())
			}
		}
		if strings.Contains(log.String(), "type=gpu") {
			t.Errorf("a type with a handler is in the log:\n%s", log.String())
		}
		if err := w.SetConcurrency(-1); err == nil || !strings.Contains(err.Error(), "SetConcurrency") {
			t.Errorf("SetConcurrency(-1) = %v, want an error that names the call", err)
		}
		if err := w.SetTypeLimits(map[string]int{"gpu": -1}); err == nil || !strings.Contains(err.Error(), "SetTypeLimits") {
			t.Errorf("SetTypeLimits = %v, want an error that names the call", err)
		}
	}
}
