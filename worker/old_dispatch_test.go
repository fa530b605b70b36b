package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// grantedAgo returns a dispatch of a task that was granted the time ago before now. For the worker,
// a dispatch is old after more than a second. Its heartbeat interval is 1 s as well.
func grantedAgo(id string, ago time.Duration) *lessorv1.SessionResponse {
	f := dispatchOf(id)
	a := f.GetDispatch().GetAssignments()[0]
	a.ExpiresIn, a.HeartbeatInterval = durationpb.New(ttl-ago), durationpb.New(time.Second)
	return f
}

// A4, W5: a dispatch may come late because it was sent again, and its lease may have ended
// meanwhile. If the task was granted at most a second ago the handler begins at once. Otherwise the
// worker asks with heartbeats, one in each interval, and the handler begins when the coordinator
// has answered that the lease lives.
func TestOldDispatchIsConfirmed(t *testing.T) {
	t.Attr("rules", "A4 W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		s := c.accept()
		s.send(grantedAgo("fresh", time.Second))
		f, _ := s.outcome()
		s.commit(f)

		s.send(grantedAgo("old", time.Second+time.Millisecond))
		s.renewal() // it gets no answer
		asked := time.Now()
		f = s.renewal()
		if waited := time.Since(asked); waited > time.Second {
			t.Errorf("the worker asked again after %v, want at most the heartbeat interval of 1s", waited)
		}
		s.quiet("reports before the lease was confirmed", isReports)
		s.renew(f)
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// A3: attempt_timeout cuts a lease when it is granted, so that such a lease has little time left
// although it is new. Its handler begins at once. When the time is over, the reason says so.
func TestLeaseCutByAttemptTimeoutIsRecent(t *testing.T) {
	t.Attr("rules", "A3")
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		c := startCoordinator(t)
		stopped := make(chan error, 1)
		r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		s := c.accept()
		f := grantedAgo("cut", ttl-timeout)
		a := f.GetDispatch().GetAssignments()[0]
		a.Task.Spec.AttemptTimeout, a.HeartbeatInterval = durationpb.New(timeout), durationpb.New(time.Minute)
		sent := time.Now()
		s.send(f)
		s.started("cut")
		if waited := time.Since(sent); waited > time.Second {
			t.Errorf("the handler began after %v, want it at once", waited)
		}
		if cause := <-stopped; !strings.Contains(cause.Error(), "the attempt_timeout of 30s is over") {
			t.Errorf("the lease ended with %q, want that attempt_timeout is over", cause)
		}
		r.shutdown()
	})
}

// A4, K2: if the coordinator answers that the lease of an old dispatch has ended, the handler never
// begins and the worker reports nothing.
func TestOldDispatchOfALeaseThatEnded(t *testing.T) {
	t.Attr("rules", "A4 K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
			t.Error("A4: the handler began without a lease")
			return nil, nil
		})
		s := c.accept()
		s.send(grantedAgo("old", 4*time.Second))
		s.acknowledge(s.renewal(), &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_DISPATCH_UNACKED,
		})
		s.quiet("report of an attempt that must not begin", isReports)
		r.shutdown()
	})
}

// A4, W5: a dispatch that was fresh when the coordinator sent it, but was in transit for more than
// a second, is old as well. The worker knows the time in transit from the time of the frame and the
// times of earlier answers.
func TestLateDispatchIsConfirmed(t *testing.T) {
	t.Attr("rules", "A4 W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		s := c.accept()
		s.sendLate(grantedAgo("in time", 0), time.Second)
		f, _ := s.outcome()
		s.commit(f)

		s.sendLate(grantedAgo("late", 0), time.Second+time.Millisecond)
		f = s.renewal()
		s.quiet("reports before the lease was confirmed", isReports)
		s.renew(f)
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// A3, A4: the answer about an old dispatch may come when the time that it gives is already over.
// Then no handler begins and the worker reports nothing.
func TestOldDispatchIsConfirmedTooLate(t *testing.T) {
	t.Attr("rules", "A3 A4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		const tasks = 16
		r := c.run(worker.Config{Concurrency: tasks}, func(context.Context, *worker.Task) ([]byte, error) {
			t.Error("A4: a handler began without a lease")
			return nil, nil
		})
		s := c.accept()
		d := &lessorv1.Dispatch{}
		for i := range tasks {
			d.Assignments = append(d.Assignments, grantedAgo(fmt.Sprint("t", i), 4*time.Second).GetDispatch().GetAssignments()...)
		}
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: d}})
		var asked []*lessorv1.SessionRequest
		for n := 0; n < tasks; {
			f := s.renewal()
			n += len(f.GetHeartbeat().GetLeases())
			asked = append(asked, f)
		}
		time.Sleep(900 * time.Millisecond)
		for _, f := range asked {
			s.acknowledge(f, &lessorv1.LeaseAck{
				Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(500 * time.Millisecond),
			})
		}
		s.quiet("report of an attempt that must not begin", isReports)
		r.shutdown()
	})
}

// A task whose dispatch the worker still asks about may be cancelled, or the worker may drain. Then
// the handler does not begin. The outcome is the same as if the handler had run and its context had
// ended.
func TestOldDispatchIsStopped(t *testing.T) {
	for name, test := range map[string]struct {
		stop func(*stream)
		want func(*lessorv1.Report) bool
	}{
		"cancelled": {
			func(s *stream) { s.cancel("old", lessorv1.Reason_REASON_TASK_CANCELLED, grace) },
			func(r *lessorv1.Report) bool { return r.GetFail().GetError().GetCategory() == worker.Cancelled },
		},
		"drained": {
			func(s *stream) {
				s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: &lessorv1.Drain{Deadline: timestamppb.Now()}}})
			},
			func(r *lessorv1.Report) bool { return r.GetRelease() != nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
					t.Error("the handler began")
					return nil, nil
				})
				s := c.accept()
				s.send(grantedAgo("old", 4*time.Second))
				s.renewal() // it gets no answer
				test.stop(s)
				f, report := s.outcome()
				if !test.want(report) {
					t.Errorf("report = %v, want that of a task that was %s", report, name)
				}
				s.commit(f)
				r.stop()
				<-r.ended
			})
		})
	}
}
