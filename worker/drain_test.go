package worker_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// Drain (W10): the coordinator is told, new work goes back, what runs finishes and gets its verdict, then goodbye.
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
		if d := s.next("drain", isDrain).GetDrain(); d.GetDeadline() == nil {
			t.Errorf("drain = %v, want a deadline", d)
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
			t.Errorf("Run = %v", err)
		}
	})
}

// A handler that outlasts the drain's patience is stopped with ErrDraining; its error gives the task back (K6).
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
			t.Errorf("after %v: %v, want a release after 10 s", time.Since(begun), report)
		}
		if cause := <-causes; !errors.Is(cause, worker.ErrDraining) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrDraining)
		}
		s.commit(f)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// What a stopped handler returns is a failure only where it says so itself: the worker is at fault, not the task.
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
					t.Errorf("report = %v, want a release: %v", report, test.release)
				}
				s.commit(f)
				if err := r.done(); err != nil {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}

// However long a drain may take, it ends no handler before (W10).
func TestDrainForEver(t *testing.T) {
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
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// A handler that ignores even that is left behind, in bounded time and with an error; what it returns is discarded.
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
		if err := r.done(); !errors.Is(err, worker.ErrStuck) || time.Since(begun) != 13*time.Second {
			t.Errorf("Run = %v after %v", err, time.Since(begun))
		}
		close(release)
	})
}

// A stream that takes nothing does not hold up the end.
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
		s.dispatch("t2") // whose Start waits for room
		synctest.Wait()
		begun := time.Now()
		r.stop()
		if err := r.done(); !errors.Is(err, worker.ErrUndelivered) || time.Since(begun) > 5*time.Second {
			t.Errorf("Run = %v after %v", err, time.Since(begun))
		}
	})
}

// A drain without a coordinator still ends: the outcome that cannot be delivered is named.
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
		if err := r.done(); !errors.Is(err, worker.ErrUndelivered) {
			t.Errorf("Run = %v, want %v", err, worker.ErrUndelivered)
		}
	})
}

// A worker that is asked by the coordinator drains the same way, and Run says who asked. The deadline counts from the
// frame's own time, not from this machine's clock.
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
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: &lessorv1.Drain{
			Reason: "upgrade", Deadline: timestamppb.New(time.Now().Add(15 * time.Second)),
		}}})
		f, report := s.outcome()
		if report.GetRelease() == nil || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v, want a release 5 s before the deadline", time.Since(begun), report)
		}
		s.commit(f)
		s.next("goodbye", isGoodbye)
		if err := r.done(); !errors.Is(err, worker.ErrDraining) {
			t.Errorf("Run = %v, want %v", err, worker.ErrDraining)
		}
		if cause := <-causes; !errors.Is(cause, worker.ErrDraining) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrDraining)
		}
	})
}

// A coordinator tells of a drain on each stream; Run tells of it once.
func TestDrainIsToldAnew(t *testing.T) {
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
		if err := r.done(); !errors.Is(err, worker.ErrDraining) || strings.Count(err.Error(), "upgrade") != 1 {
			t.Errorf("Run = %q, want one word of the upgrade", err)
		}
	})
}
