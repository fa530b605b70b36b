package worker_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// cut ends a stream and refuses new ones for a time.
func (c *coordinator) cut(s *stream, outage time.Duration) {
	begun := time.Now()
	c.refuse = func(*stream) error {
		if time.Since(begun) > outage {
			c.refuse = nil
		}
		return errBroken
	}
	s.finish(errBroken)
}

// stubborn is a handler that does not stop when its context ends, but returns after the given time.
func stubborn(after time.Duration, result func(context.Context) ([]byte, error)) worker.Handler {
	return func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		time.Sleep(after)
		return result(ctx)
	}
}

func done(context.Context) ([]byte, error) { return []byte("done"), nil }

// wantLate checks that the worker has reported nothing and renewed no lease before the outcome,
// which is the result of done, and returns its frame.
func wantLate(t *testing.T, s *stream) *lessorv1.SessionRequest {
	t.Helper()
	f := s.next("late result", func(f *lessorv1.SessionRequest) bool {
		if isRenewal(f) || isReports(f) && !isOutcome(f) {
			t.Errorf("the worker sent %v for a lease that has expired by its clock", f)
		}
		return isOutcome(f)
	})
	if n := len(f.GetReports().GetReports()); n != 1 {
		t.Errorf("%d reports, want only the outcome: %v", n, f)
	}
	if got := outcomeOf(f).GetComplete(); string(got.GetOutput()) != "done" || got.GetStartedAt() == nil {
		t.Errorf("report = %v, want the result, with the time at which it began", outcomeOf(f))
	}
	return f
}

// A8, K2: a result that a handler returns after its lease has expired by the worker's own clock is
// reported once, on the next stream, and the hooks learn of the verdict: the coordinator's clock
// decides. Neither its Start nor a heartbeat is sent any more, since they would renew the lease.
func TestLateResultIsReported(t *testing.T) {
	t.Attr("rules", "A8 K2")
	for _, returned := range []string{"before the stream is back", "on the new stream"} {
		for _, judge := range []func(*lessorv1.Report) *lessorv1.ReportVerdict{
			committed,
			verdict(lessorv1.Verdict_VERDICT_CANCELLED, lessorv1.Reason_REASON_SUPERSEDED),
		} {
			t.Run(returned, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const outage = 2 * ttl
					after := outage - ttl/2
					if returned == "on the new stream" {
						after = outage + ttl/2
					}
					c := startCoordinator(t)
					r := c.run(worker.Config{}, stubborn(after, done))
					s := c.accept()
					s.dispatch("t1")
					s.reports() // the Start gets no answer
					c.cut(s, outage)
					s = c.accept()
					s.answer(wantLate(t, s), judge)
					time.Sleep(ttl)
					s.quiet("report after the verdict", isReports)
					r.shutdown()
					if len(r.verdicts) != 1 || r.verdicts[0].GetReason() != judge(nil).GetReason() {
						t.Errorf("OnVerdict got %v, want one verdict with reason %v", r.verdicts, judge(nil).GetReason())
					}
					var stop *worker.StopError
					if len(r.stops) != 1 || !errors.Is(r.stops[0], worker.ErrLeaseLost) || !errors.As(r.stops[0], &stop) || stop.Reason != lessorv1.Reason_REASON_UNSPECIFIED {
						t.Errorf("OnStop got %v, want only %v without a reason of the coordinator", r.stops, worker.ErrLeaseLost)
					}
				})
			})
		}
	}
}

// K2: once the coordinator has said that the lease is lost, the result is discarded, also if the
// lease had expired by the worker's own clock before. A renewal that comes so late does not matter:
// the handler was stopped, but its result is reported.
func TestLateResultAfterTheCoordinatorHasSpoken(t *testing.T) {
	t.Attr("rules", "K2")
	lost := &lessorv1.LeaseAck{Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_LEASE_EXPIRED}
	renewed := &lessorv1.LeaseAck{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(10 * ttl)}
	for _, test := range []struct {
		name     string
		say      func(*stream, *lessorv1.SessionRequest)
		reported bool
	}{
		{"a cancel", func(s *stream, _ *lessorv1.SessionRequest) { s.cancel("t1", lessorv1.Reason_REASON_SUPERSEDED, 0) }, false},
		{"a heartbeat is CANCELLED", func(s *stream, beat *lessorv1.SessionRequest) { s.acknowledge(beat, lost) }, false},
		{"a heartbeat is COMMITTED", func(s *stream, beat *lessorv1.SessionRequest) { s.acknowledge(beat, renewed) }, true},
		{"nothing", func(*stream, *lessorv1.SessionRequest) {}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl = 10 * time.Second // so that the stream does not break before, for want of answers
				c := startCoordinator(t)
				r := c.run(worker.Config{}, stubborn(2*ttl, done))
				s := c.accept()
				d := dispatchOf("t1")
				a := d.GetDispatch().GetAssignments()[0]
				a.ExpiresIn, a.HeartbeatTimeout, a.HeartbeatInterval = durationpb.New(ttl), durationpb.New(ttl),
					durationpb.New(ttl/2)
				s.send(d)
				s.answer(s.reports(), verdict(lessorv1.Verdict_VERDICT_COMMITTED, lessorv1.Reason_REASON_NONE))
				beat := s.renewal()
				time.Sleep(ttl)
				s.quiet("report of an attempt that runs", isReports)
				test.say(s, beat)
				if test.reported {
					s.commit(wantLate(t, s))
				}
				time.Sleep(2 * ttl)
				s.quiet("report", isReports)
				r.shutdown()
			})
		})
	}
}

// K2, T5: a handler that returns anything but a result after its lease has expired by the worker's
// own clock reports nothing. Most often it was only stopped, and where the lease is live a failure
// would count against the task.
func TestLateFailureIsNotReported(t *testing.T) {
	t.Attr("rules", "K2 T5")
	for name, result := range map[string]func(context.Context) ([]byte, error){
		"the end of the context": func(ctx context.Context) ([]byte, error) { return nil, ctx.Err() },
		"output and error":       func(ctx context.Context) ([]byte, error) { return []byte("half"), context.Cause(ctx) },
		"a permanent failure":    func(context.Context) ([]byte, error) { return nil, worker.Permanent(errors.New("bad input")) },
		"a release":              func(context.Context) ([]byte, error) { return nil, worker.Release(0, "not here") },
		"a panic":                func(context.Context) ([]byte, error) { panic("boom") },
		"Goexit":                 func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil },
		"Goexit in the error":    func(context.Context) ([]byte, error) { return nil, exitingError{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, stubborn(ttl+time.Second, result))
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				time.Sleep(2 * ttl)
				s.quiet("outcome of a lease that has expired", isOutcome)
				begun := time.Now()
				r.shutdown()
				if waited := time.Since(begun); waited > 0 {
					t.Errorf("the drain took %v, want no time: nothing is left to do", waited)
				}
			})
		})
	}
}

// K2, T7: if the lease expires by the worker's own clock while the handler has the grace of a
// cancel, a result is reported until the grace is over, and not after that.
func TestLateResultAfterACancel(t *testing.T) {
	t.Attr("rules", "K2 T7")
	// so that the stream does not break before, for want of answers
	const ttl, grace = 10 * time.Second, 15 * time.Second
	for _, inGrace := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			after := ttl + grace/2
			if !inGrace {
				after += grace
			}
			c, begun := startCoordinator(t), time.Now()
			r := c.run(worker.Config{}, stubborn(after, done))
			s := c.accept()
			s.dispatch("t1")
			s.answer(s.reports(), func(*lessorv1.Report) *lessorv1.ReportVerdict {
				return &lessorv1.ReportVerdict{Verdict: lessorv1.Verdict_VERDICT_COMMITTED, ExpiresIn: durationpb.New(ttl)}
			})
			time.Sleep(ttl - time.Second)
			s.cancel("t1", lessorv1.Reason_REASON_TASK_CANCELLED, grace)
			if inGrace {
				f, _ := s.outcome()
				s.commit(f)
			}
			time.Sleep(ttl + 3*grace/2 + time.Second - time.Since(begun))
			s.quiet("outcome after the grace", isOutcome)
			r.shutdown()
		})
	}
}

// K5: a late result that gets no verdict is given up after ReportTries, since its lease has expired
// by the worker's clock.
func TestLateResultIsGivenUp(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{ReportTries: 3}, stubborn(ttl+time.Second, done))
		s := c.accept()
		s.dispatch("t1")
		s.reports()
		for range 3 {
			c.cut(s, 2*ttl)
			s = c.accept()
			wantLate(t, s)
		}
		c.cut(s, 0)
		s = c.accept()
		wantGivenUp(t, r, s)
	})
}

// W10, K5: a drain waits for the verdict on a late result as for any other, and gives it up at its
// end.
func TestDrainWithALateResult(t *testing.T) {
	t.Attr("rules", "W10 K5")
	for _, test := range []struct {
		patience time.Duration
		want     error
	}{{time.Hour, nil}, {time.Second, worker.ErrUndelivered}} {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			r := c.run(worker.Config{DrainTimeout: test.patience}, stubborn(ttl+time.Second, done))
			s := c.accept()
			s.dispatch("t1")
			s.started("t1")
			c.cut(s, 2*ttl)
			time.Sleep(ttl + 2*time.Second)
			r.stop()
			if test.want == nil {
				s = c.accept()
				s.commit(wantLate(t, s))
			}
			if err := r.done(); !errors.Is(err, test.want) {
				t.Errorf("Run = %v, want %v", err, test.want)
			}
		})
	}
}

// K2, W14: while the handler of a lapsed attempt runs, the task comes again. Its new attempt waits
// for the only slot, or is refused because of its concurrency key. The late result is reported
// under its own lease, and then the slot is free, once.
func TestTaskComesAgainWhileALateHandlerRuns(t *testing.T) {
	t.Attr("rules", "K2 W14")
	const ttl = 10 * time.Second // so that the stream does not break before, for want of answers
	for _, single := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := startCoordinator(t)
			running := 0
			r := c.run(worker.Config{Concurrency: 1, SingleFlight: single}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
				if running++; running > 1 {
					t.Error("two attempts run at once")
				}
				defer func() { running-- }()
				after := time.Second
				if task.Attempt == 1 {
					after += ttl
				}
				return stubborn(after, done)(ctx, task)
			})
			s := c.accept()
			dispatch := func(lease string, attempt uint32) {
				d := keyed("t1", "k")
				a := d.GetDispatch().GetAssignments()[0]
				a.LeaseId, a.Attempt = lease, attempt
				a.ExpiresIn, a.HeartbeatTimeout = durationpb.New(ttl), durationpb.New(ttl)
				s.send(d)
			}
			wantResult := func(lease string) {
				t.Helper()
				f, got := s.outcome()
				if id := got.GetComplete().GetLeaseId(); id != lease {
					t.Errorf("report %v, want the result of %s", got, lease)
				}
				s.commit(f)
			}
			dispatch("first", 1)
			s.answer(s.reports(), verdict(lessorv1.Verdict_VERDICT_COMMITTED, lessorv1.Reason_REASON_NONE))
			time.Sleep(ttl + time.Second/2)
			dispatch("second", 2)
			if single {
				if e := s.next("refusal", isError).GetError(); e.GetLeaseId() != "second" {
					t.Errorf("refused %v, want the second lease", e)
				}
			} else {
				s.renew(s.renewal())
			}
			wantResult("first")
			if !single {
				wantResult("second")
			}
			synctest.Wait() // the worker has declared its slot again
			dispatch("third", 3)
			s.renew(s.renewal())
			wantResult("third")
			r.shutdown()
		})
	}
}
