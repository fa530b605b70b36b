package worker_test

import (
	"context"
	"errors"
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

// startedTask starts a worker with one task, t1, whose handler runs until its context ends and then
// sends the cause to the channel.
func startedTask(t *testing.T) (*running, *coordinator, *stream, chan error) {
	t.Helper()
	c := startCoordinator(t)
	causes := make(chan error, 1)
	r := c.run(worker.Config{}, untilStopped(causes))
	s := c.accept()
	s.dispatch("t1")
	s.started("t1")
	return r, c, s, causes
}

// wantLoss checks that the cause is ErrLeaseLost with the reason, and that the worker reports
// nothing (K2).
func wantLoss(t *testing.T, r *running, s *stream, causes chan error, reason lessorv1.Reason) {
	t.Helper()
	cause := <-causes
	var stop *worker.StopError
	if !errors.Is(cause, worker.ErrLeaseLost) || !errors.As(cause, &stop) || stop.Reason != reason {
		t.Errorf("cause = %v, want %v with reason %v", cause, worker.ErrLeaseLost, reason)
	}
	s.quiet("report after the lease was lost", isReports)
	r.shutdown()
}

// K2, K3: a heartbeat that is CANCELLED, or REJECTED because of its lease, ends the handler's
// context; its result is discarded and never reported.
func TestLeaseLostByHeartbeat(t *testing.T) {
	t.Attr("rules", "K2 K3")
	for _, ack := range []*lessorv1.LeaseAck{
		{Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_SUPERSEDED, ShouldCancel: true},
		{Verdict: lessorv1.Verdict_VERDICT_REJECTED, Reason: lessorv1.Reason_REASON_UNKNOWN_TASK},
		{Verdict: lessorv1.Verdict_VERDICT_REJECTED, Reason: lessorv1.Reason_REASON_INVALID_LEASE},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, _, s, causes := startedTask(t)
			s.acknowledge(s.renewal(), ack)
			wantLoss(t, r, s, causes, ack.GetReason())
		})
	}
}

// K2, W10: a reset that says that the leases have ended stops handlers at once: until the worker
// has connected again, nothing else would tell them. Any other reset stops none, and neither kind
// drops an outcome that waits for its verdict.
func TestReset(t *testing.T) {
	t.Attr("rules", "K2")
	for _, ended := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			causes := make(chan error, 1)
			c.run(worker.Config{Concurrency: 2}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
				if task.ID == "done" {
					return []byte("output"), nil
				}
				select {
				case <-ctx.Done():
					causes <- context.Cause(ctx)
				case <-time.After(ttl / 2):
					causes <- nil
				}
				return nil, context.Cause(ctx)
			})
			s := c.accept()
			s.dispatch("runs", "done")
			s.outcome()
			s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: &lessorv1.Reset{
				Code: "E.SESSION.KICKED", Reason: "by hand", RetryAfter: durationpb.New(time.Second), LeasesEnded: ended,
			}}})
			synctest.Wait()
			var stop *worker.StopError
			switch cause := <-causes; {
			case !ended && cause != nil:
				t.Errorf("a reset that ends no lease stopped a handler: %v", cause)
			case ended && (!errors.As(cause, &stop) || !errors.Is(cause, worker.ErrLeaseLost) || stop.Reason != lessorv1.Reason_REASON_REVOKED || stop.Detail != "by hand"):
				t.Errorf("cause = %v, want %v, REVOKED by hand", cause, worker.ErrLeaseLost)
			}
			s = c.accept()
			if _, report := s.outcome(); report.GetComplete().GetTaskId() != "done" {
				t.Errorf("the worker repeated %v, want the outcome without a verdict", report)
			}
		})
	}
}

// K2: a CANCELLED verdict on the Start has the same effect.
func TestLeaseLostByStart(t *testing.T) {
	t.Attr("rules", "K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.answer(s.reports(), verdict(lessorv1.Verdict_VERDICT_CANCELLED, lessorv1.Reason_REASON_DISPATCH_UNACKED))
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_DISPATCH_UNACKED)
	})
}

// K2, T7: a task that was cancelled before its Start came has lost its lease. Its handler can then
// read the reason of the cancel, and Task.Lost, when asked for only now, is closed.
func TestCancelledBeforeStart(t *testing.T) {
	t.Attr("rules", "K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			<-ctx.Done()
			<-task.Lost()
			if got := task.CancelReason(); got != "by hand" {
				t.Errorf("CancelReason = %q, want %q", got, "by hand")
			}
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		s := c.accept()
		s.dispatch("t1")
		s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
			return &lessorv1.ReportVerdict{
				Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_TASK_CANCELLED,
				ShouldCancel: true, CancelReason: "by hand",
			}
		})
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_TASK_CANCELLED)
	})
}

// K2, V5: if somebody else has reported the outcome of the lease, with the task token, the attempt
// is over, and the next one may run already. So the handler's context ends, Task.Lost is closed,
// Confirm says the same, and what the handler returns is not reported. The answer to the Start may
// be the first that says so.
func TestAlreadyReported(t *testing.T) {
	t.Attr("rules", "K2")
	for _, on := range []string{"the heartbeat", "the Start"} {
		t.Run("on "+on, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				answers, causes := make(chan error, 1), make(chan error, 1)
				r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
					lost := task.Lost()
					go func() { answers <- task.Confirm(context.Background(), time.Second) }()
					<-ctx.Done()
					<-lost
					causes <- context.Cause(ctx)
					return []byte("output"), nil
				})
				s := c.accept()
				s.dispatch("t1")
				begun := time.Now()
				if on == "the Start" {
					s.answer(s.reports(), verdict(lessorv1.Verdict_VERDICT_CANCELLED, lessorv1.Reason_REASON_ALREADY_REPORTED))
				} else {
					s.acknowledge(s.renewal(), &lessorv1.LeaseAck{
						Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_ALREADY_REPORTED,
					})
				}
				var stop *worker.StopError
				if got := <-answers; !errors.As(got, &stop) || stop.Reason != lessorv1.Reason_REASON_ALREADY_REPORTED {
					t.Errorf("Confirm = %v, want %v with reason ALREADY_REPORTED", got, worker.ErrLeaseLost)
				}
				if took := time.Since(begun); took > lull {
					t.Errorf("the context ended %v after the dispatch, want at the answer", took)
				}
				wantLoss(t, r, s, causes, lessorv1.Reason_REASON_ALREADY_REPORTED)
			})
		})
	}
}

// K5: if the handler has returned, ALREADY_REPORTED on a late heartbeat can mean the worker's own
// outcome, whose verdict may be lost. So it changes nothing: the outcome is sent again until it has
// a verdict.
func TestAlreadyReportedByItself(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		answers, goOn := make(chan error, 1), make(chan struct{})
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			go func() { answers <- task.Confirm(context.Background(), time.Second) }()
			<-goOn
			return []byte("output"), nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		beat := s.renewal()
		close(goOn)
		s.outcome()
		s.acknowledge(beat, &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_ALREADY_REPORTED,
		})
		if got := <-answers; !errors.Is(got, worker.ErrFinished) {
			t.Errorf("Confirm = %v, want %v", got, worker.ErrFinished)
		}
		s.finish(errBroken)
		s = c.accept()
		f, report := s.outcome()
		if string(report.GetComplete().GetOutput()) != "output" {
			t.Errorf("the worker repeated %v, want its outcome", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// K2: a cancel frame without a grace means that the lease is lost.
func TestLeaseLostByCancelFrame(t *testing.T) {
	t.Attr("rules", "K2")
	synctest.Test(t, func(t *testing.T) {
		r, _, s, causes := startedTask(t)
		s.cancel("t1", lessorv1.Reason_REASON_REVOKED, 0)
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_REVOKED)
	})
}

// A8: if the coordinator does not answer, the lease ends by the worker's own clock, exactly
// expires_in after the worker sent the last renewal, here its Start.
func TestLeaseLostByLocalExpiry(t *testing.T) {
	t.Attr("rules", "A8 K2")
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r, _, s, causes := startedTask(t)
		cause := <-causes
		if got := time.Since(begun) - lull; got != ttl {
			t.Errorf("the context ended %v after the Start, want %v", got, ttl)
		}
		causes <- cause
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_UNSPECIFIED)
	})
}

// A3: the Deadline of a handler's context is that of the task, whatever clock the coordinator has.
// If the lease ends by the worker's own clock, the cause says which of attempt_timeout and deadline
// was over, or that no renewal came.
func TestDeadlineOfTheContext(t *testing.T) {
	t.Attr("rules", "A3")
	const soon, late = 10 * time.Second, time.Hour
	for name, test := range map[string]struct {
		timeout, deadline, lives time.Duration
		says                     string
	}{
		"neither":                 {0, 0, ttl, "no renewal"},
		"attempt_timeout":         {soon, 0, soon, "attempt_timeout of 10s"},
		"deadline":                {0, soon, soon, "the deadline"},
		"deadline first":          {late, soon, soon, "the deadline"},
		"attempt_timeout first":   {soon, late, soon, "attempt_timeout of 10s"},
		"the lease before either": {2 * late, late, ttl, "no renewal"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				begun, causes := time.Now(), make(chan error, 1)
				r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					at, ok := ctx.Deadline()
					if ok != (test.deadline > 0) || ok && !at.Equal(begun.Add(test.deadline)) {
						t.Errorf("Deadline = %v, %v, want %v after the dispatch", at.Sub(begun), ok, test.deadline)
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return nil, ctx.Err()
				})
				s := c.accept()
				d := dispatchOf("t1")
				a, now := d.GetDispatch().GetAssignments()[0], begun.Add(5*time.Hour) // by the coordinator's clock
				a.ServerTime, a.ExpiresIn = timestamppb.New(now), durationpb.New(test.lives)
				if spec := a.GetTask().GetSpec(); test.timeout > 0 {
					spec.AttemptTimeout = durationpb.New(test.timeout)
				}
				if spec := a.GetTask().GetSpec(); test.deadline > 0 {
					spec.Deadline = timestamppb.New(now.Add(test.deadline))
				}
				s.send(d)
				if test.deadline == soon { // the age of the dispatch is not known, so the worker asks first
					s.acknowledge(s.renewal(),
						&lessorv1.LeaseAck{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: a.GetExpiresIn()})
				}
				reason := lessorv1.Reason_REASON_DEADLINE_EXCEEDED
				if test.says == "no renewal" {
					reason = lessorv1.Reason_REASON_UNSPECIFIED
				}
				cause := <-causes
				if !strings.Contains(cause.Error(), test.says) || time.Since(begun) != test.lives {
					t.Errorf("after %v: %v, want %q after %v", time.Since(begun), cause, test.says, test.lives)
				}
				causes <- cause
				s.quiet("start", func(*lessorv1.SessionRequest) bool { return false })
				wantLoss(t, r, s, causes, reason)
			})
		})
	}
}

// A8: an outage of the coordinator extends attempt_timeout. A context that a handler makes of its
// own ends when the handler wants it to, also if that is beyond the attempt_timeout as it was.
func TestTimeoutOfAHandlerBeyondTheAttemptTimeout(t *testing.T) {
	t.Attr("rules", "A8")
	synctest.Test(t, func(t *testing.T) {
		const timeout, own = 10 * time.Second, 40 * time.Second
		c := startCoordinator(t)
		begun, took := time.Now(), time.Duration(0)
		r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			ctx, free := context.WithTimeout(ctx, own)
			defer free()
			<-ctx.Done()
			took = time.Since(begun)
			return nil, ctx.Err()
		})
		s := c.accept()
		d := dispatchOf("t1")
		a := d.GetDispatch().GetAssignments()[0]
		a.GetTask().GetSpec().AttemptTimeout, a.ExpiresIn = durationpb.New(timeout), durationpb.New(timeout)
		s.send(d)
		s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
			// the coordinator has stood still
			return &lessorv1.ReportVerdict{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl)}
		})
		for {
			f := s.next("outcome", func(f *lessorv1.SessionRequest) bool { return isRenewal(f) || isOutcome(f) })
			if isOutcome(f) {
				if e := f.GetReports().GetReports()[0].GetFail().GetError(); e.GetCategory() != worker.Timeout || took != own {
					t.Errorf("the handler ended after %v, with %v; want after %v, because its own time was over", took, e, own)
				}
				s.answer(f, verdict(lessorv1.Verdict_VERDICT_COMMITTED, lessorv1.Reason_REASON_NONE))
				break
			}
			s.renew(f)
		}
		r.shutdown()
	})
}

// A3: a handler's context ends by its Deadline, whatever an answer says: the clock of the
// coordinator may have been set back.
func TestContextEndsByItsDeadline(t *testing.T) {
	t.Attr("rules", "A3")
	synctest.Test(t, func(t *testing.T) {
		const lives = 10 * time.Second
		c := startCoordinator(t)
		begun, causes := time.Now(), make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		d := dispatchOf("t1")
		a := d.GetDispatch().GetAssignments()[0]
		a.ServerTime, a.ExpiresIn = timestamppb.Now(), durationpb.New(lives)
		a.GetTask().GetSpec().Deadline = timestamppb.New(begun.Add(lives))
		s.send(d)
		s.renew(s.renewal()) // the age of the dispatch is not known, so the worker asks first
		cause := <-causes
		if got := time.Since(begun); got != lives {
			t.Errorf("the context ended after %v (%v), want %v", got, cause, lives)
		}
		causes <- cause
		s.quiet("start", func(*lessorv1.SessionRequest) bool { return false })
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_DEADLINE_EXCEEDED)
	})
}

// A3, A8: an answer may give less time than a heartbeat interval, because the attempt timeout or
// the deadline of the task comes first. The lease ends then, and not at the next heartbeat.
func TestLeaseEndsBeforeTheNextHeartbeat(t *testing.T) {
	t.Attr("rules", "A8 K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		begun := time.Now()
		s.dispatch("t1")
		s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
			return &lessorv1.ReportVerdict{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(interval / 3)}
		})
		cause := <-causes
		if got := time.Since(begun) - lull; got != interval/3 {
			t.Errorf("the context ended %v after the Start, want %v", got, interval/3)
		}
		causes <- cause
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_UNSPECIFIED)
	})
}

// K2: the Start of an attempt whose lease is over is not sent any more, here on the stream after an
// outage that was longer than the lease.
func TestStartOfALostLeaseIsNotSent(t *testing.T) {
	t.Attr("rules", "K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.reports() // it gets no answer
		c.cut(s, ttl)
		wantLoss(t, r, c.accept(), causes, lessorv1.Reason_REASON_UNSPECIFIED)
	})
}

// K4: while a handler runs, the worker renews its lease with heartbeats at most an interval apart,
// so that it outlives its TTL. It sends none after the handler has returned.
func TestRenewal(t *testing.T) {
	t.Attr("rules", "K4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			select {
			case <-time.After(10 * ttl):
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		last, beats := time.Now(), 0
		for {
			f := s.next("renewal or outcome", func(f *lessorv1.SessionRequest) bool { return isRenewal(f) || isOutcome(f) })
			if isOutcome(f) {
				if f.GetReports().GetReports()[0].GetComplete() == nil {
					t.Errorf("report = %v, want a complete", f)
				}
				s.commit(f)
				break
			}
			if gap := time.Since(last); gap > interval || gap < interval/2 {
				t.Errorf("heartbeat after %v, want %v to %v", gap, interval/2, interval)
			}
			last = time.Now()
			beats++
			s.renew(f)
		}
		if want := int(10 * ttl / interval); beats < want-1 || beats > 2*want {
			t.Errorf("%d heartbeats, want %d to %d", beats, want-1, 2*want)
		}
		time.Sleep(5 * interval)
		s.quiet("heartbeat after the end", isRenewal)
		r.shutdown()
	})
}

// K2: a dispatch with a lease that has expired already starts no handler and gets no report.
func TestExpiredDispatchIsNotStarted(t *testing.T) {
	t.Attr("rules", "K2")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
			t.Error("the handler was started")
			return nil, nil
		})
		s := c.accept()
		assigned := assignment("t1")
		assigned.ExpiresIn = durationpb.New(0)
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{
			Dispatch: &lessorv1.Dispatch{Assignments: []*lessorv1.Assignment{assigned}},
		}})
		s.quiet("report of an expired dispatch", isReports)
		r.shutdown()
	})
}

// K6: a cancel frame with a grace ends the handler's context at once, but the lease lives on for
// the grace, in which the handler cleans up. If the handler then returns an error, the worker
// reports a Fail with category CANCELLED. The grace decides and not the reason: a newer coordinator
// may cancel for a reason that the SDK does not know.
func TestCancelWithGrace(t *testing.T) {
	t.Attr("rules", "K6")
	for _, reason := range []lessorv1.Reason{lessorv1.Reason_REASON_TASK_CANCELLED, 9999} {
		synctest.Test(t, func(t *testing.T) { cancelWithGrace(t, reason) })
	}
}

func cancelWithGrace(t *testing.T, reason lessorv1.Reason) {
	c := startCoordinator(t)
	r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		task.Progress(0.1, "", "uploading")
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, worker.ErrCancelled) || task.CancelReason() != "because" {
			t.Errorf("cause = %v with reason %q, want %v with reason %q",
				cause, task.CancelReason(), worker.ErrCancelled, "because")
		}
		time.Sleep(grace - time.Second) // cleans up
		return nil, worker.WithPartialProgress([]byte("7 of 9"), ctx.Err())
	})
	s := c.accept()
	s.dispatch("t1")
	s.started("t1")
	s.cancel("t1", reason, grace)
	f, report := s.outcome()
	got := report.GetFail()
	if got.GetError().GetCategory() != worker.Cancelled || got.GetCancelledDuringPhase() != "uploading" || string(got.GetPartialProgress()) != "7 of 9" {
		t.Errorf("report = %v, want a fail with category CANCELLED in phase uploading, and the partial progress", report)
	}
	s.commit(f)
	r.shutdown()
}

// T7: attempt_timeout and the deadline cut a lease, but no longer after a cancel. So a worker that
// is cancelled shortly before them asks at once how long its lease lives now; otherwise the handler
// would lose most of its grace.
func TestCancelBeforeAttemptTimeout(t *testing.T) {
	t.Attr("rules", "T7 K6")
	synctest.Test(t, func(t *testing.T) {
		const timeout = grace / 2
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			time.Sleep(grace - time.Second) // cleans up
			return []byte("done"), nil
		})
		s := c.accept()
		f := grantedAgo("cut", ttl-timeout)
		a := f.GetDispatch().GetAssignments()[0]
		a.Task.Spec.AttemptTimeout, a.HeartbeatInterval = durationpb.New(timeout), durationpb.New(time.Minute)
		s.send(f)
		s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
			return &lessorv1.ReportVerdict{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(timeout)}
		})
		s.cancel("cut", lessorv1.Reason_REASON_TASK_CANCELLED, grace)
		asked := time.Now()
		renewal := s.renewal()
		if waited := time.Since(asked); waited > time.Second {
			t.Errorf("the worker asked after %v how long its lease lives, want at once", waited)
		}
		s.renew(renewal)
		f2, report := s.outcome()
		if string(report.GetComplete().GetOutput()) != "done" {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f2)
		r.shutdown()
	})
}

// K6: a handler that was cancelled and returns no error completes the task. Here the cancel comes
// with the answer to a heartbeat.
func TestCancelledButComplete(t *testing.T) {
	t.Attr("rules", "K6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			<-ctx.Done()
			return []byte("done"), nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.acknowledge(s.renewal(), &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl),
			TaskState: lessorv1.TaskState_TASK_STATE_CANCELLING, ShouldCancel: true, CancelReason: "by hand",
		})
		f, report := s.outcome()
		if string(report.GetComplete().GetOutput()) != "done" {
			t.Errorf("report = %v, want a complete", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// T7, A8: a handler that hears late of a cancel has what the coordinator says is left of the grace,
// not all of Task.CancelGrace, and the cause of its context says when that ends. What an answer
// tells is counted from when its heartbeat was sent. A frame or answer that says later that less is
// left is heeded too: the first frame may have been long under way. Confirm then tells the earlier
// end.
func TestRestOfTheGrace(t *testing.T) {
	t.Attr("rules", "T7 A8")
	const left, transit = 5 * time.Second, 2 * time.Second
	answer := &lessorv1.LeaseAck{
		Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl), ShouldCancel: true,
		CancelGraceLeft: durationpb.New(left),
	}
	cancel := func(s *stream, grace time.Duration) { s.cancel("t1", lessorv1.Reason_REASON_TASK_CANCELLED, grace) }
	renew := func(s *stream) {
		f := s.renewal()
		time.Sleep(transit)
		s.acknowledge(f, answer)
	}
	for name, test := range map[string]struct {
		tell        func(*stream)
		first, want time.Duration // from when the handler is told: the grace that the cause tells, and the whole grace
	}{
		"cancel frame":          {func(s *stream) { cancel(s, left) }, left, left},
		"answer":                {renew, left - transit, left - transit},
		"frame with less":       {func(s *stream) { cancel(s, 6*left); cancel(s, 2*left); cancel(s, 3*left) }, 6 * left, 2 * left},
		"then answer with less": {func(s *stream) { cancel(s, 6*left); cancel(s, 2*left); renew(s) }, 6 * left, left},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				lost := make(chan struct{})
				r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
					defer close(lost)
					<-ctx.Done()
					told := time.Now()
					stop, _ := errors.AsType[*worker.StopError](context.Cause(ctx))
					if got := stop.GraceEnds.Sub(told); got != test.first {
						t.Errorf("GraceEnds is in %v, want in %v", got, test.first)
					}
					// returns with the answer, or else with the loss of the lease
					err := task.Confirm(context.Background(), 0)
					if stop, _ := errors.AsType[*worker.StopError](err); stop == nil || errors.Is(err, worker.ErrCancelled) && !stop.GraceEnds.Equal(told.Add(test.want)) {
						t.Errorf("Confirm returns %#v, want ErrLeaseLost or that GraceEnds is in %v", err, test.want)
					}
					<-task.Lost()
					if got := time.Since(told); got != test.want {
						t.Errorf("the lease was lost after %v, want after %v", got, test.want)
					}
					return nil, nil
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				test.tell(s)
				<-lost
				r.shutdown()
			})
		})
	}
}

// K2: a handler that still runs at the end of the grace has lost its lease: Task.Lost is closed,
// and nothing is reported. Renewals that are answered meanwhile and the repeats of the cancel do
// not extend the grace.
func TestCancelGraceOver(t *testing.T) {
	t.Attr("rules", "K2")
	synctest.Test(t, func(t *testing.T) {
		const grace = interval * 3 / 2 // long enough for a renewal
		c := startCoordinator(t)
		waited := make(chan time.Duration, 1)
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			<-ctx.Done()
			begun := time.Now()
			<-task.Lost()
			if got := task.CancelReason(); got != "because" {
				t.Errorf("CancelReason = %q, want %q", got, "because")
			}
			waited <- time.Since(begun)
			return []byte("too late"), nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.cancel("t1", lessorv1.Reason_REASON_TASK_CANCELLED, grace)
		for repeats, done := 0, false; !done; {
			select {
			case got := <-waited:
				if got != grace || repeats == 0 {
					t.Errorf("the grace was %v with %d repeats of the cancel, want %v with at least one", got, repeats, grace)
				}
				done = true
			case f := <-s.frames:
				if isRenewal(f) {
					repeats++
					s.acknowledge(f, &lessorv1.LeaseAck{
						Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl), ShouldCancel: true,
					})
				}
			}
		}
		s.quiet("report after the grace", isReports)
		r.shutdown()
		if n := len(r.stops); n != 2 || !errors.Is(r.stops[0], worker.ErrCancelled) || !errors.Is(r.stops[1], worker.ErrLeaseLost) {
			t.Errorf("OnStop got %v, want %v and then %v", r.stops, worker.ErrCancelled, worker.ErrLeaseLost)
		}
	})
}

// W4: a handler that goes on after the loss of its lease occupies a slot that the coordinator
// counts as free. The worker therefore lowers its capacity until the handler returns.
func TestStuckHandlerLowersCapacity(t *testing.T) {
	t.Attr("rules", "W4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 2}, func(context.Context, *worker.Task) ([]byte, error) {
			<-release
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.cancel("t1", lessorv1.Reason_REASON_REVOKED, 0)
		begun := time.Now()
		if got := s.next("capacity", isCapacity).GetCapacity().GetMaxParallel(); got != 1 || time.Since(begun) > time.Second {
			t.Errorf("capacity = %d after %v, want 1 within 1s", got, time.Since(begun))
		}
		close(release)
		begun = time.Now()
		if got := s.next("capacity", isCapacity).GetCapacity().GetMaxParallel(); got != 2 || time.Since(begun) > 0 {
			t.Errorf("capacity = %d after %v, want 2 at once", got, time.Since(begun))
		}
		s.quiet("report after the lease was lost", isReports)
		r.shutdown()
	})
}

// A handler that goes on after the loss of its lease occupies the only slot. A task that the
// coordinator dispatches meanwhile waits for the slot. It is released before the 5 s are over in
// which a dispatch must be acknowledged (W5), or starts if the handler returns in time.
func TestNoFreeSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := map[string]chan struct{}{"t1": make(chan struct{}), "t3": make(chan struct{})}
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			if until := release[task.ID]; until != nil {
				<-until
			}
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.cancel("t1", lessorv1.Reason_REASON_REVOKED, 0)
		begun := time.Now()
		s.dispatch("t2")
		f, report := s.outcome()
		if report.GetRelease().GetTaskId() != "t2" || time.Since(begun) >= 5*time.Second {
			t.Errorf("after %v: %v, want t2 released within 5s", time.Since(begun), report)
		}
		s.commit(f)
		close(release["t1"])
		synctest.Wait() // until the slot is free
		s.dispatch("t3")
		s.started("t3")
		s.cancel("t3", lessorv1.Reason_REASON_REVOKED, 0)
		s.dispatch("t4")
		synctest.Wait() // t4 waits for the slot
		close(release["t3"])
		s.started("t4")
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// A8, K1: a handler that returns at the instant at which its lease ends by the worker's own clock
// has its result reported, once.
func TestHandlerReturnsWhenTheLeaseEnds(t *testing.T) {
	t.Attr("rules", "A8 K1")
	synctest.Test(t, func(t *testing.T) {
		const tasks, ttl = 16, 4 * time.Second
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: tasks}, func(context.Context, *worker.Task) ([]byte, error) {
			time.Sleep(ttl)
			return nil, nil
		})
		s := c.accept()
		d := &lessorv1.Dispatch{}
		for i := range tasks {
			a := assignment(fmt.Sprint("t", i))
			a.ExpiresIn, a.HeartbeatTimeout = durationpb.New(ttl), durationpb.New(ttl)
			d.Assignments = append(d.Assignments, a)
		}
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: d}})
		reported := make(map[string]bool)
		for len(reported) < tasks {
			f, _ := s.outcome()
			for _, report := range f.GetReports().GetReports() {
				id, _, kind := identity(report)
				if kind != lessorv1.ReportKind_REPORT_KIND_COMPLETE || reported[id] {
					t.Errorf("report = %v, want one complete of each task", report)
				}
				reported[id] = true
			}
			s.commit(f)
		}
		time.Sleep(2 * ttl)
		s.quiet("second outcome", isOutcome)
		r.shutdown()
	})
}

// A COMMITTED answer without expires_in neither renews the lease nor ends it, not even if it is the
// first answer, that to the Start.
func TestAnswerWithoutExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		begun := time.Now()
		s.dispatch("t1")
		s.answer(s.reports(), verdict(lessorv1.Verdict_VERDICT_COMMITTED, lessorv1.Reason_REASON_NONE))
		for range int(ttl/interval) - 1 {
			s.acknowledge(s.renewal(), &lessorv1.LeaseAck{Verdict: lessorv1.Verdict_VERDICT_COMMITTED})
		}
		cause := <-causes
		if got := time.Since(begun); got != ttl {
			t.Errorf("the lease ended after %v, want %v", got, ttl)
		}
		causes <- cause
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_UNSPECIFIED)
	})
}
