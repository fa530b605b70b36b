package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// W10: a worker that drains tells the coordinator its deadline, releases tasks that still come,
// lets its handlers finish and waits for the verdicts on their outcomes. Then it says goodbye.
func TestDrain(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 2}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			time.Sleep(20 * time.Second)
			return nil, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		r.stop()
		if d := s.next("drain", isDrain).GetDrain(); !d.GetDeadline().AsTime().Equal(time.Now().Add(35 * time.Second)) {
			t.Errorf("drain = %v, want a deadline in 35s, the sum of the default timeouts", d)
		}
		s.dispatch("t2")
		f, report := s.outcome()
		if report.GetRelease().GetTaskId() != "t2" {
			t.Errorf("report = %v, want t2 released", report)
		}
		s.commit(f)
		f, report = s.outcome()
		if report.GetComplete().GetTaskId() != "t1" {
			t.Errorf("report = %v, want t1 completed", report)
		}
		synctest.Wait()
		s.quiet("goodbye before the verdict", isGoodbye)
		s.commit(f)
		s.next("goodbye", isGoodbye)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// W10: after DrainTimeout the context of a handler that still runs ends with ErrDraining. If the
// handler then returns an error, the task is released.
func TestDrainStopsHandlers(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{DrainTimeout: 10 * time.Second}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		begun := time.Now()
		r.stop()
		f, report := s.outcome()
		if report.GetRelease() == nil || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v, want a release after 10s", time.Since(begun), report)
		}
		if cause := <-causes; !errors.Is(cause, worker.ErrDraining) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrDraining)
		}
		s.commit(f)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// If a drain has stopped a handler, an error of the handler releases the task: the worker is the
// reason, not the task. It is a failure of the task only if the handler says so, by Permanent or a
// category, or panics.
func TestErrorsAfterDrain(t *testing.T) {
	for name, test := range map[string]struct {
		end     func() error
		release bool
	}{
		"plain":     {func() error { return errHandler }, true},
		"stack":     {func() error { return worker.WithStack("killed", errHandler) }, true},
		"permanent": {func() error { return worker.Permanent(errHandler) }, false},
		"category":  {func() error { return worker.WithCategory(worker.DataQuality, errHandler) }, false},
		"panic":     {func() error { panic("ouch") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					<-ctx.Done()
					return nil, test.end()
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				r.stop()
				f, report := s.outcome()
				if (report.GetRelease() != nil) != test.release || (report.GetFail() != nil) == test.release {
					t.Errorf("report = %v, want a release: %v (otherwise a fail)", report, test.release)
				}
				s.commit(f)
				if err := r.done(); err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
			})
		})
	}
}

// W10: DrainTimeout and StopTimeout may be the longest Duration. Their sum must not overflow, which
// would stop the handlers at once. The drain states no deadline then, because the coordinator would
// refuse one that is so late, and with it the drain.
func TestDrainWithTheLongestTimeouts(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{DrainTimeout: math.MaxInt64, StopTimeout: math.MaxInt64}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(20 * time.Second):
				return nil, nil
			}
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		r.stop()
		if d := s.next("drain", isDrain).GetDrain(); d.GetDeadline() != nil {
			t.Errorf("drain = %v, want no deadline", d)
		}
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// A worker that is stopped while it opens a stream does not wait for the coordinator's answer.
func TestStopWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.refuse = func(s *stream) error {
			_, _ = s.grpc.Recv()
			<-s.grpc.Context().Done() // no accept
			return s.grpc.Context().Err()
		}
		r := c.run(worker.Config{}, echo)
		synctest.Wait()
		begun := time.Now()
		r.stop()
		if err := r.done(); err != nil || time.Since(begun) > 0 {
			t.Errorf("Run = %v after %v, want nil at once", err, time.Since(begun))
		}
	})
}

// A handler that ignores the end of its context does not hold up Run: after DrainTimeout and
// StopTimeout Run returns ErrStuck and leaves the handler behind. What the handler returns later is
// discarded.
func TestStuckHandlerIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := make(chan struct{})
		r := c.run(worker.Config{DrainTimeout: 10 * time.Second, StopTimeout: 3 * time.Second},
			func(context.Context, *worker.Task) ([]byte, error) { <-release; return nil, nil })
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		begun := time.Now()
		r.stop()
		s.next("goodbye", isGoodbye)
		if err := r.done(); !errors.Is(err, worker.ErrStuck) || !r.gotError(worker.ErrStuck) || time.Since(begun) != 13*time.Second {
			t.Errorf("Run = %v after %v, and OnError got %v; want %v after 13s from both",
				err, time.Since(begun), r.errors, worker.ErrStuck)
		}
		close(release)
	})
}

// A stream that takes no frames does not hold up Run, which returns within the timeouts of the
// drain.
func TestDrainOnBlockedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 2, DrainTimeout: time.Second, StopTimeout: time.Second},
			func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, 1<<20), nil })
		s := c.accept()
		s.pause()
		defer s.resume()
		s.dispatch("t1") // fills the stream
		time.Sleep(time.Second)
		s.dispatch("t2") // its Start waits for room
		synctest.Wait()
		begun := time.Now()
		r.stop()
		if err := r.done(); !errors.Is(err, worker.ErrUndelivered) || time.Since(begun) > 5*time.Second {
			t.Errorf("Run = %v after %v, want %v within 5s", err, time.Since(begun), worker.ErrUndelivered)
		}
	})
}

// K5: a report that is given up during a drain, after ReportTries and the end of its lease, is an
// error of Run.
func TestReportIsGivenUpDuringADrain(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := make(chan struct{})
		r := c.run(worker.Config{ReportTries: 2},
			func(context.Context, *worker.Task) ([]byte, error) { <-release; return nil, nil })
		s := c.accept()
		s.dispatch("t1")
		s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
			return &lessorv1.ReportVerdict{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(time.Second)}
		})
		synctest.Wait()
		begun := time.Now()
		r.stop()
		close(release)
		for range 2 {
			f, _ := s.outcome()
			s.answer(f, func(*lessorv1.Report) *lessorv1.ReportVerdict {
				return &lessorv1.ReportVerdict{Error: &lessorv1.ItemError{
					Code:       "E.INTERNAL",
					RetryAfter: durationpb.New(time.Second),
				}}
			})
		}
		if err := r.done(); !errors.Is(err, worker.ErrUndelivered) || !r.gotError(worker.ErrUndelivered) || time.Since(begun) > 10*time.Second {
			t.Errorf("Run = %v after %v, and OnError got %v; want %v from both at once",
				err, time.Since(begun), r.errors, worker.ErrUndelivered)
		}
	})
}

// A drain ends even if the coordinator is away: Run returns ErrUndelivered because of the outcome
// that it could not deliver.
func TestDrainWhileDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := make(chan struct{})
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { <-release; return nil, errHandler })
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		c.refuse = func(*stream) error { return errBroken }
		s.finish(errBroken)
		synctest.Wait()
		close(release)
		r.stop()
		if err := r.done(); !errors.Is(err, worker.ErrUndelivered) || errors.Is(err, worker.ErrStuck) || !r.gotError(worker.ErrUndelivered) {
			t.Errorf("Run = %v, and OnError got %v; want only %v from both", err, r.errors, worker.ErrUndelivered)
		}
	})
}

// W10: a worker drains in the same way if the coordinator asks for it, and Run returns nil. The
// deadline counts from the time of the frame, not from the clock of this machine: here the clock of
// the coordinator is an hour behind.
func TestDrainByCoordinator(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		begun := time.Now()
		s.sendLate(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: &lessorv1.Drain{
			Reason: "upgrade", Deadline: timestamppb.New(time.Now().Add(15*time.Second - time.Hour)),
		}}}, time.Hour)
		f, report := s.outcome()
		if report.GetRelease() == nil || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v, want a release after 10s, 5s before the deadline", time.Since(begun), report)
		}
		s.commit(f)
		s.next("goodbye", isGoodbye)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if cause := <-causes; !errors.Is(cause, worker.ErrDraining) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrDraining)
		}
	})
}

// A coordinator repeats its drain on each new stream. The worker goes on with the drain.
func TestRepeatedDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := make(chan struct{})
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { <-release; return nil, nil })
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		drain := func() {
			s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: &lessorv1.Drain{Reason: "upgrade"}}})
			s.next("drain", isDrain)
		}
		drain()
		s.finish(errBroken)
		s = c.accept()
		drain()
		close(release)
		f, _ := s.outcome()
		s.commit(f)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// A drain ends as soon as the last handler has returned, also if that handler had lost its lease
// before.
func TestDrainWaitsForAHandlerWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { <-hold; return nil, nil })
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.cancel("t1", lessorv1.Reason_REASON_REVOKED, 0)
		r.stop()
		s.quiet("goodbye while the handler runs", isGoodbye)
		begun := time.Now()
		close(hold)
		if err := r.done(); err != nil || time.Since(begun) > 0 {
			t.Errorf("Run = %v %v after the handler has returned, want nil at once", err, time.Since(begun))
		}
	})
}

// Of two drains, here 2 s apart, the one that ends earlier counts: that of the coordinator, which
// leaves the handlers 5 s less than its deadline, or that of Run's context, whichever comes first.
func TestEarlierDrainCounts(t *testing.T) {
	for _, test := range []struct {
		timeout, deadline, want time.Duration
	}{
		{timeout: time.Hour, deadline: 15 * time.Second, want: 10 * time.Second},
		{timeout: 4 * time.Second, deadline: time.Hour, want: 4 * time.Second},
	} {
		for _, coordinatorFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v coordinator first %v", test.want, coordinatorFirst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := startCoordinator(t)
					r := c.run(worker.Config{DrainTimeout: test.timeout}, untilStopped(make(chan error, 1)))
					s := c.accept()
					s.dispatch("t1")
					s.started("t1")
					begun := time.Now()
					ask := func() {
						s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: &lessorv1.Drain{
							Deadline: timestamppb.New(begun.Add(test.deadline)),
						}}})
					}
					first, second := (func())(r.stop), ask
					if coordinatorFirst {
						first, second = ask, r.stop
					}
					first()
					time.Sleep(2 * time.Second)
					second()
					f, _ := s.outcome()
					if got := time.Since(begun); got != test.want {
						t.Errorf("the handler was stopped after %v, want %v", got, test.want)
					}
					s.commit(f)
					if err := r.done(); err != nil {
						t.Errorf("Run = %v, want nil", err)
					}
				})
			})
		}
	}
}

// Drain with 0 during a drain, as at a second signal, ends the contexts of the handlers at once.
// Their tasks are given back, and the worker says goodbye. A longer timeout changes nothing, nor
// does a call after the end.
func TestDrainIsShortened(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{DrainTimeout: time.Hour}, untilStopped(make(chan error, 1)))
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		r.stop()
		s.next("drain", isDrain)
		r.worker.Drain(2 * time.Hour)
		time.Sleep(10 * time.Second)
		begun := time.Now()
		r.worker.Drain(0)
		f, report := s.outcome()
		if report.GetRelease() == nil || time.Since(begun) > 0 {
			t.Errorf("after %v: %v, want a release at once", time.Since(begun), report)
		}
		s.commit(f)
		s.next("goodbye", isGoodbye)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		r.worker.Drain(0)
	})
}

// Drain alone is enough to end a worker, also before Run.
func TestDrainWithoutContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { <-hold; return nil, nil })
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		r.worker.Drain(time.Minute)
		s.next("drain", isDrain)
		close(hold)
		f, _ := s.outcome()
		s.commit(f)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}

		w, err := worker.New(c.conn, []string{"q"}, worker.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w.HandleDefault(echo)
		w.Drain(-time.Second)
		if err := w.Run(t.Context()); err != nil {
			t.Errorf("Run after Drain = %v, want nil", err)
		}
	})
}
