package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// aged is a dispatch of a task that was granted some time ago.
func aged(id string, ago time.Duration) *lessorv1.SessionResponse {
	f := dispatchOf(id)
	a := f.GetDispatch().GetAssignments()[0]
	a.ExpiresIn, a.HeartbeatInterval = durationpb.New(ttl-ago), durationpb.New(time.Second)
	return f
}

// A handler begins at once on a fresh dispatch; on an old one, which was sent again, it waits until the coordinator has said
// that the lease lives (A4, W5).
func TestOldDispatchIsConfirmed(t *testing.T) {
	t.Attr("rules", "A4 W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		s := c.accept()
		s.send(aged("fresh", time.Second))
		f, _ := s.outcome()
		s.commit(f)

		s.send(aged("old", time.Second+time.Millisecond))
		s.renewal() // is lost
		asked := time.Now()
		f = s.renewal()
		if waited := time.Since(asked); waited > time.Second {
			t.Errorf("it was asked again after %v, want at most the interval of 1s", waited)
		}
		s.quiet("reports before the lease was confirmed", isReports)
		s.renew(f)
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// Where the lease of an old dispatch has ended meanwhile, its handler never begins, and nothing is reported (A4, K2).
func TestOldDispatchOfALeaseThatEnded(t *testing.T) {
	t.Attr("rules", "A4 K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
			t.Error("A4: the handler began without a lease")
			return nil, nil
		})
		s := c.accept()
		s.send(aged("old", 4*time.Second))
		s.acknowledge(s.renewal(), &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_DISPATCH_UNACKED,
		})
		s.quiet("a report", isReports)
		r.shutdown()
	})
}

// A dispatch that was fresh when it left and long under way is confirmed as well, by its time and that of answers; one that was not begins at once (A4, W5).
func TestLateDispatchIsConfirmed(t *testing.T) {
	t.Attr("rules", "A4 W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		s := c.accept()
		s.sendLate(aged("in time", 0), time.Second)
		f, _ := s.outcome()
		s.commit(f)

		s.sendLate(aged("late", 0), time.Second+time.Millisecond)
		f = s.renewal()
		s.quiet("reports before the lease was confirmed", isReports)
		s.renew(f)
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}
