package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// V19, W5: a handler that returns within a lull needs no Start. Its outcome says when it began, and
// acknowledges the dispatch in the same frame.
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

// W5: the Start of a handler that runs longer than a lull is sent then, with those of all others
// that run; the outcomes of others do not hold it up.
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
		synctest.Wait()
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
		s.commitOutcomes(2)
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

// V19, W8: a Start that had no answer when its stream broke is not sent again once there is an
// outcome, which says when the attempt began.
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

// W5: a handler that begins when no dispatch is being acknowledged has its Start sent after a lull
// as well. Here it begins late, because there was no slot until the first one returned.
func TestStartOfAHandlerThatBeginsLate(t *testing.T) {
	t.Attr("rules", "W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 1}, func(context.Context, *worker.Task) ([]byte, error) {
			time.Sleep(time.Second)
			return nil, nil
		})
		s := c.accept()
		begun := time.Now()
		s.dispatch("t1", "t2")
		s.started("t1")
		s.commitOutcomes(1)
		s.started("t2")
		if waited := time.Since(begun); waited != time.Second+lull {
			t.Errorf("the second Start came after %v, want %v", waited, time.Second+lull)
		}
		s.commitOutcomes(1)
		r.shutdown()
	})
}

// T7, K6: a handler that is told to stop within the lull has its whole grace. The worker sends no
// Start, which would end the lease.
func TestCancelWithinTheLull(t *testing.T) {
	t.Attr("rules", "T7 K6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil, ctx.Err()
		})
		s := c.accept()
		s.dispatch("t1")
		synctest.Wait()
		s.cancel("t1", lessorv1.Reason_REASON_TASK_CANCELLED, grace)
		f := s.reports()
		if got := f.GetReports().GetReports(); len(got) != 1 || got[0].GetFail().GetStartedAt() == nil {
			t.Errorf("the first reports are %v, want a fail that says when the attempt began", got)
		}
		s.commit(f)
		r.shutdown()
	})
}

// K3, V1: a Start that was rejected for its content says nothing about the lease, and has not
// renewed it. So a heartbeat follows at once, and the handler goes on.
func TestStartRejectedForItsContent(t *testing.T) {
	t.Attr("rules", "K3 V1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		goOn := make(chan struct{})
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			<-goOn
			return nil, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("t1")
		s.answer(s.reports(), verdict(lessorv1.Verdict_VERDICT_REJECTED, lessorv1.Reason_REASON_INVALID_REQUEST))
		rejected := time.Now()
		f := s.renewal()
		if waited := time.Since(rejected); waited > 0 {
			t.Errorf("the lease is renewed after %v, want at once", waited)
		}
		s.renew(f)
		close(goOn)
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// T7, K6: the same if the Start was sent, but the coordinator could not take it: it is not sent
// again.
func TestCancelBeforeAStartIsRepeated(t *testing.T) {
	t.Attr("rules", "T7 K6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			<-ctx.Done()
			time.Sleep(20 * time.Second) // much longer than the wait before the Start is sent again
			return nil, ctx.Err()
		})
		s := c.accept()
		s.dispatch("t1")
		s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
			return &lessorv1.ReportVerdict{Error: &lessorv1.ItemError{
				Code:       "E.INTERNAL",
				RetryAfter: durationpb.New(time.Second),
			}}
		})
		s.cancel("t1", lessorv1.Reason_REASON_TASK_CANCELLED, grace)
		f := s.reports()
		if got := f.GetReports().GetReports(); len(got) != 1 || got[0].GetFail().GetStartedAt() == nil {
			t.Errorf("the reports after the cancel are %v, want a fail that says when the attempt began", got)
		}
		s.commit(f)
		r.shutdown()
	})
}

// attemptOf returns a dispatch of the given attempt of tasks.
func attemptOf(attempt uint32, ids ...string) *lessorv1.SessionResponse {
	d := dispatchOf(ids...)
	for _, a := range d.GetDispatch().GetAssignments() {
		a.Attempt = attempt
	}
	return d
}

// T5, W5: the handler of a task that had an attempt before begins when the coordinator has answered
// that it has heard of the attempt: a task that kills its workers at once counts as lost, and not
// as never received. The worker asks at once, for all tasks of a dispatch in one frame. A first
// attempt begins without an answer.
func TestLaterAttemptBeginsWhenItWasHeardOf(t *testing.T) {
	t.Attr("rules", "T5 W5")
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 4}, func(context.Context, *worker.Task) ([]byte, error) {
			begun.Add(1)
			time.Sleep(10 * time.Second)
			return nil, nil
		})
		s := c.accept()
		s.send(attemptOf(1, "first"))
		s.started("first")

		sent := time.Now()
		s.send(attemptOf(2, "a", "b", "c"))
		f := s.renewal()
		if asked := len(f.GetHeartbeat().GetLeases()); asked != 3 || time.Since(sent) != 0 {
			t.Errorf("the worker asked for %d leases after %v, want all three at once", asked, time.Since(sent))
		}
		time.Sleep(time.Second)
		s.quiet("report before the answer", isReports)
		if n := begun.Load(); n != 1 {
			t.Errorf("T5: %d handlers began before the coordinator had heard of their attempts", n-1)
		}
		s.renew(f)
		s.commitOutcomes(4)
		if n := begun.Load(); n != 4 {
			t.Errorf("%d handlers began, want 4", n)
		}
		r.shutdown()
	})
}

// T5, W8: if the stream breaks before the answer, the worker asks again on the next one.
func TestLaterAttemptAsksAgainOnTheNextStream(t *testing.T) {
	t.Attr("rules", "T5 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.send(attemptOf(2, "t1"))
		s.renewal()
		s.finish(errors.New("the stream is cut"))
		s = c.accept()
		f := s.renewal()
		time.Sleep(time.Second)
		s.quiet("report before the answer", isReports)
		s.renew(f)
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// T5: what ends an attempt ends the wait as well, and the handler is not called: a lost lease, one
// that expires by the worker's own clock, a cancel, and the end of the time that a drain leaves.
func TestLaterAttemptIsEndedBeforeItBegan(t *testing.T) {
	t.Attr("rules", "T5 W10")
	for name, test := range map[string]struct {
		end func(c *running, s *stream, asked *lessorv1.SessionRequest)
		// report is what the worker must report; nil: nothing.
		report func(*lessorv1.Report) bool
	}{
		"lost": {end: func(_ *running, s *stream, asked *lessorv1.SessionRequest) {
			s.acknowledge(asked, &lessorv1.LeaseAck{
				Verdict: lessorv1.Verdict_VERDICT_CANCELLED,
				Reason:  lessorv1.Reason_REASON_DISPATCH_UNACKED,
			})
		}},
		"taken back": {end: func(_ *running, s *stream, _ *lessorv1.SessionRequest) {
			s.cancel("t1", lessorv1.Reason_REASON_DISPATCH_UNACKED, 0)
		}},
		"no answer": {end: func(*running, *stream, *lessorv1.SessionRequest) { time.Sleep(ttl) }},
		"cancelled": {
			end: func(_ *running, s *stream, _ *lessorv1.SessionRequest) {
				s.cancel("t1", lessorv1.Reason_REASON_TASK_CANCELLED, time.Minute)
			},
			report: func(r *lessorv1.Report) bool { return r.GetFail().GetError().GetCategory() == worker.Cancelled },
		},
		"drained": {
			end:    func(r *running, _ *stream, _ *lessorv1.SessionRequest) { r.worker.Drain(0) },
			report: func(r *lessorv1.Report) bool { return r.GetRelease() != nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
					t.Error("the handler was called")
					return nil, nil
				})
				s := c.accept()
				s.send(attemptOf(2, "t1"))
				test.end(r, s, s.renewal())
				if test.report == nil {
					time.Sleep(time.Second)
					s.quiet("report", isReports)
				} else {
					f, got := s.outcome()
					if !test.report(got) {
						t.Errorf("the worker reported %v", got)
					}
					s.commit(f)
				}
				r.shutdown()
			})
		})
	}
}

// W6: within a lull, an acknowledgement is not sent alone, whatever else wakes the writer.
func TestAcknowledgementIsNotSentAloneWithinTheLull(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 4}, echo)
		s := c.accept()
		s.quiet("", func(*lessorv1.SessionRequest) bool { return false }) // the first heartbeat
		sent := time.Now()
		s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{Request: true}})
		synctest.Wait()
		if err := r.worker.SetConcurrency(4); err != nil { // wakes the writer, which has nothing to tell
			t.Error(err)
		}
		s.quiet("frame", func(*lessorv1.SessionRequest) bool { return true })
		s.next("acknowledgement", func(f *lessorv1.SessionRequest) bool { return f.GetAck().GetFor() != "" })
		if waited := time.Since(sent); waited != lull {
			t.Errorf("the acknowledgement came after %v, want %v", waited, lull)
		}
		r.shutdown()
	})
}
