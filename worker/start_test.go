package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// V19, W5: a handler that returns within a lull needs no Start. Its outcome says when it began, and acknowledges the dispatch in the same frame.
func TestOutcomeTakesThePlaceOfItsStart(t *testing.T) {
	t.Attr("rules", "V19 W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
			time.Sleep(lull / 2)
			return nil, nil
		})
		s := c.accept()
		synctest.Wait()
		begun := time.Now()
		d := dispatchOf("t1")
		d.Ack = &lessorv1.Ack{Request: true}
		id := s.send(d).GetId()
		f := s.reports()
		if got := f.GetReports().GetReports(); len(got) != 1 || !got[0].GetComplete().GetStartedAt().AsTime().Equal(begun) {
			t.Errorf("the frame has the reports %v, want one complete that began at %v", got, begun)
		}
		if got := f.GetAck().GetFor(); got != id {
			t.Errorf("the frame acknowledges %q, want the dispatch %q", got, id)
		}
		if waited := time.Since(begun); waited != lull/2 {
			t.Errorf("the outcome came after %v, want at once, after %v", waited, lull/2)
		}
		s.commit(f)
		s.quiet("further reports", isReports)
		r.shutdown()
	})
}

// W5: the Start of a handler that runs longer than a lull is sent then, with those of all others that run; the outcomes of others do not hold it up.
func TestStartIsSentWhileTheHandlerRuns(t *testing.T) {
	t.Attr("rules", "W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 10}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			if strings.HasPrefix(task.ID, "long") {
				time.Sleep(time.Second)
			}
			return nil, nil
		})
		s := c.accept()
		begun := time.Now()
		s.dispatch("long1")
		s.dispatch("long2")
		for i := range 10 {
			s.dispatch(fmt.Sprintf("short%d", i))
			f, _ := s.outcome()
			s.commit(f)
		}
		f := s.reports()
		if waited := time.Since(begun); waited != lull {
			t.Errorf("the Starts came after %v, want %v", waited, lull)
		}
		if got := f.GetReports().GetReports(); len(got) != 2 || got[0].GetStart().GetTaskId() != "long1" || got[1].GetStart().GetTaskId() != "long2" {
			t.Errorf("the frame has the reports %v, want the two Starts", got)
		}
		s.commit(f)
		f, _ = s.outcome() // of both
		s.commit(f)
		r.shutdown()
	})
}

// A heartbeat of a handler that has just begun does not overtake its Start.
func TestStartIsSentBeforeAHeartbeatOfItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			return nil, task.SaveCheckpoint(ctx, []byte("first"))
		})
		s := c.accept()
		begun := time.Now()
		s.dispatch("t1")
		f := s.next("start or heartbeat", func(f *lessorv1.SessionRequest) bool { return isReports(f) || isRenewal(f) })
		if got := f.GetReports().GetReports(); len(got) != 1 || got[0].GetStart() == nil {
			t.Errorf("the first frame is %v, want the Start", f)
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("the Start came after %v, want at once, because the heartbeat waits", waited)
		}
		s.commit(f)
		s.renew(s.renewal())
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// V19, W8: a Start that had no answer when its stream broke is not sent again once there is an outcome, which says when the attempt began.
func TestStartIsNotSentAgainBesideItsOutcome(t *testing.T) {
	t.Attr("rules", "V19 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		finish := make(chan struct{})
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
			<-finish
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		if f := s.reports(); isOutcome(f) {
			t.Errorf("received %v, want a Start", f)
		}
		s.finish(errBroken)
		close(finish)
		s = c.accept()
		f := s.reports()
		if got := f.GetReports().GetReports(); len(got) != 1 || got[0].GetComplete().GetStartedAt() == nil {
			t.Errorf("the new stream begins with the reports %v, want the complete alone", got)
		}
		s.commit(f)
		r.shutdown()
	})
}
