package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// K5, W8: the stream breaks between a report and its verdict. The handler of another task goes on,
// and its lease is renewed at once on the next stream. The report is sent again, unchanged, until
// it has a verdict.
func TestReportIsSentAgainAfterReconnect(t *testing.T) {
	t.Attr("rules", "K5 W8")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		long := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 2}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			if task.ID == "long" {
				<-long
			}
			return task.Payload, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("long")
		s.started("long")
		s.dispatch("t1")
		s.started("t1")
		_, first := s.outcome()
		s.finish(errBroken)

		s = c.accept()
		opened := time.Now()
		if f := s.renewal(); f.GetHeartbeat().GetLeases()[0].GetLeaseId() != "lease-long" || len(f.GetHeartbeat().GetLeases()) != 1 {
			t.Errorf("first heartbeat of the new stream = %v, want the lease that still runs", f)
		}
		if waited := time.Since(opened); waited > 0 {
			t.Errorf("first heartbeat of the new stream after %v, want at once", waited)
		}
		s.finish(errBroken)
		s = c.accept()
		f, again := s.outcome()
		if !proto.Equal(first, again) {
			t.Errorf("report sent again = %v, want the same as before: %v", again, first)
		}
		s.commit(f)
		close(long)
		f, report := s.outcome()
		if report.GetComplete().GetTaskId() != "long" {
			t.Errorf("report = %v, want long completed", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// W5: a Start that got no verdict is sent again on the next stream: the coordinator takes back a
// grant that is not acknowledged.
func TestStartIsSentAgain(t *testing.T) {
	t.Attr("rules", "W5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		causes := make(chan error, 1)
		r := c.run(worker.Config{}, untilStopped(causes))
		s := c.accept()
		s.dispatch("t1")
		s.reports()
		s.finish(errBroken)
		s = c.accept()
		s.started("t1")
		s.cancel("t1", lessorv1.Reason_REASON_REVOKED, 0)
		wantLoss(t, r, s, causes, lessorv1.Reason_REASON_REVOKED)
	})
}

// K1, K2, K3: after any verdict the worker does not send the report again, neither later nor on a
// new stream. OnVerdict is called once, and the slot is free for the next task. A REJECTED outcome
// is also logged as an error.
func TestVerdictsAreFinal(t *testing.T) {
	for _, test := range []struct {
		rule, name string
		judge      func(*lessorv1.Report) *lessorv1.ReportVerdict
		logged     int
	}{
		{"K1", "committed", committed, 0},
		{"K2", "cancelled", verdict(lessorv1.Verdict_VERDICT_CANCELLED, lessorv1.Reason_REASON_LEASE_EXPIRED), 0},
		{"K3", "rejected as duplicate", verdict(lessorv1.Verdict_VERDICT_REJECTED, lessorv1.Reason_REASON_DUPLICATE_REPORT), 1},
		{"K3", "rejected as unknown", verdict(lessorv1.Verdict_VERDICT_REJECTED, lessorv1.Reason_REASON_UNKNOWN_TASK), 1},
	} {
		t.Run(test.rule+" "+test.name, func(t *testing.T) {
			t.Attr("rules", test.rule)
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				var log bytes.Buffer // has no lock: it is read when nothing writes any more
				r := c.run(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, echo)
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				f, _ := s.outcome()
				s.answer(f, test.judge)
				time.Sleep(10 * ttl)
				s.quiet("report after the verdict", isReports)
				s.finish(errBroken)
				s = c.accept()
				s.quiet("report after the verdict, on a new stream", isReports)
				s.dispatch("t2")
				s.started("t2")
				f, _ = s.outcome()
				s.commit(f)
				r.shutdown()
				synctest.Wait()
				if len(r.verdicts) != 2 || r.verdicts[0].GetReason() != test.judge(nil).GetReason() {
					t.Errorf("OnVerdict got %v, want two verdicts, the first with reason %v",
						r.verdicts, test.judge(nil).GetReason())
				}
				if n := strings.Count(log.String(), `level=ERROR msg="outcome rejected"`); n != test.logged {
					t.Errorf("%d rejections logged, want %d:\n%s", n, test.logged, log.String())
				}
			})
		})
	}
}

// K5: a report that got an item error instead of a verdict is sent again, unchanged, and no earlier
// than the coordinator asks. After ReportTries and the end of its lease the worker gives it up, and
// OnError gets ErrUndelivered.
func TestItemErrorsAreRetriedUpToALimit(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{ReportTries: 3}, echo)
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		overloaded := func(*lessorv1.Report) *lessorv1.ReportVerdict {
			return &lessorv1.ReportVerdict{Error: &lessorv1.ItemError{
				Code:       "E.INTERNAL",
				RetryAfter: durationpb.New(time.Minute),
			}}
		}
		var first *lessorv1.Report
		for try := range 3 {
			begun := time.Now()
			f, report := s.outcome()
			if try == 0 {
				first = report
			}
			if waited := time.Since(begun); try > 0 && (waited < time.Minute || waited > time.Minute+10*time.Second) {
				t.Errorf("try %d came after %v, want the retry_after of 1m and at most the largest backoff of 10s", try, waited)
			}
			if !proto.Equal(first, report) {
				t.Errorf("report of try %d = %v, want the same as before: %v", try, report, first)
			}
			s.answer(f, overloaded)
		}
		wantGivenUp(t, r, s)
	})
}

// K5: an outcome is not given up while its lease lives, even if it was sent more often than
// ReportTries: a coordinator that is overloaded, or breaks each stream, for a minute loses no work.
func TestOutcomeIsNotGivenUpWhileItsLeaseLives(t *testing.T) {
	t.Attr("rules", "K5")
	for _, test := range []struct {
		name string
		fail func(*coordinator, *stream, *lessorv1.SessionRequest) *stream
	}{
		{"overload", func(_ *coordinator, s *stream, f *lessorv1.SessionRequest) *stream {
			s.answer(f, func(*lessorv1.Report) *lessorv1.ReportVerdict {
				return &lessorv1.ReportVerdict{Error: &lessorv1.ItemError{Code: "E.COORDINATOR.OVERLOADED"}}
			})
			return s
		}},
		{"frames that are to come later", func(_ *coordinator, s *stream, f *lessorv1.SessionRequest) *stream {
			s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Error{
				Error: &lessorv1.Error{Code: "E.QUOTA.FRAMES_LATER", RetryAfter: durationpb.New(time.Second)},
			}})
			return s
		}},
		{"broken streams", func(c *coordinator, s *stream, _ *lessorv1.SessionRequest) *stream {
			s.finish(errBroken)
			return c.accept()
		}},
		{"streams that are one too many", func(c *coordinator, s *stream, _ *lessorv1.SessionRequest) *stream {
			s.finish(status.Error(codes.ResourceExhausted, "too many streams")) // and no frame of the worker was large
			return c.accept()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{ReportTries: 2}, echo)
				s := c.accept()
				s.dispatch("t1")
				f, first := s.outcome()
				for begun := time.Now(); time.Since(begun) < ttl*2/3; {
					s = test.fail(c, s, f)
					var again *lessorv1.Report
					if f, again = s.outcome(); !proto.Equal(first, again) {
						t.Fatalf("report = %v, want the same as before: %v", again, first)
					}
				}
				s.commit(f)
				r.shutdown()
				if r.gotError(worker.ErrUndelivered) || len(r.verdicts) != 1 {
					t.Errorf("OnError got %v and OnVerdict %v, want one verdict", r.errors, r.verdicts)
				}
			})
		})
	}
}

// K5: if a frame is refused, its reports are sent again in frames of their own: one that is refused
// takes no other with it. It is given up after ReportTries, even if its lease lives.
func TestReportsOfARefusedFrameAreSentAlone(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 3, ReportTries: 3},
			func(context.Context, *worker.Task) ([]byte, error) { <-release; return nil, nil })
		s := c.accept()
		s.dispatch("good", "bad", "fine")
		s.commit(s.reports())
		s.finish(errBroken)
		synctest.Wait()
		close(release) // the outcomes wait for the next stream, and share a frame
		synctest.Wait()
		s = c.accept()
		refused := 0
		for f, _ := s.outcome(); ; f, _ = s.outcome() {
			reports := f.GetReports().GetReports()
			if n := len(reports); n != 1 && refused > 0 || n != 3 && refused == 0 {
				t.Fatalf("a frame has %d reports after %d refusals, want 3 at first and then 1", len(reports), refused)
			}
			if !slices.ContainsFunc(reports, func(r *lessorv1.Report) bool { return r.GetComplete().GetTaskId() == "bad" }) {
				s.commit(f)
				continue
			}
			s.send(&lessorv1.SessionResponse{
				Corr:    f.GetId(),
				Payload: &lessorv1.SessionResponse_Error{Error: &lessorv1.Error{Code: "E.REQUEST.INVALID"}},
			})
			if refused++; refused == 3 {
				break
			}
		}
		time.Sleep(ttl / 2)
		s.quiet("report after the last try", isReports)
		if len(r.verdicts) != 2 || !r.gotError(worker.ErrUndelivered) {
			t.Errorf("verdicts: %v, errors: %v; want 2 and %v", r.verdicts, r.errors, worker.ErrUndelivered)
		}
		r.shutdown()
	})
}

// K5: an outcome at which the coordinator fails breaks each stream on which it is sent. It is given
// up after ReportTries, even if its lease lives, and the outcomes behind it are not.
func TestOutcomeThatBreaksStreamsIsGivenUp(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 2, ReportTries: 3, MaxMessageBytes: 256 << 10}, func(_ context.Context, t *worker.Task) ([]byte, error) {
			if t.ID == "large" {
				return make([]byte, 100<<10), nil
			}
			time.Sleep(10 * time.Millisecond) // so that it returns later
			return nil, nil
		})
		s := c.accept()
		s.dispatch("large", "small")
		for broken := 0; broken < 3; broken++ {
			if _, report := s.outcome(); len(report.GetComplete().GetOutput()) == 0 {
				t.Fatalf("the report of %s came, want the large one first", report.GetComplete().GetTaskId())
			}
			s.finish(coordinatorStatus(codes.Internal, "INTERNAL"))
			s = c.accept()
		}
		f, report := s.outcome()
		if report.GetComplete().GetTaskId() != "small" {
			t.Fatalf("the report of %s came, want that of small", report.GetComplete().GetTaskId())
		}
		s.commit(f)
		synctest.Wait()
		if len(r.verdicts) != 1 || !r.gotError(worker.ErrUndelivered) {
			t.Errorf("verdicts: %v, errors: %v; want 1 and %v", r.verdicts, r.errors, worker.ErrUndelivered)
		}
		r.shutdown()
	})
}

// S7: if the coordinator reads smaller frames than Config.MaxMessageBytes allows, its limit holds
// for all that the worker sends: reports that wait together, an outcome, a checkpoint and output
// that do not fit. It holds for the session that states it.
func TestCoordinatorsMessageLimit(t *testing.T) {
	t.Attr("rules", "S7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		const limit = 512 << 10
		c.accepts = func(_ *stream, a *lessorv1.Accept) { a.MaxMessageBytes = limit }
		release := make(chan struct{})
		ids := []string{"large", "t1", "t2", "t3", "t4", "t5", "t6"}
		cfg := worker.Config{Concurrency: len(ids), MaxMessageBytes: 64 << 20, OutputBuffer: 2 << 20}
		r := c.run(cfg, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			switch task.ID {
			default:
				<-release
				return make([]byte, 110<<10), nil
			case "later":
				return make([]byte, limit), nil
			case "large":
			}
			if rejected, ok := errors.AsType[*worker.RejectedError](task.SaveCheckpoint(ctx, make([]byte, limit))); !ok {
				t.Errorf("SaveCheckpoint of %d bytes = %v, want that it is too large", limit, rejected)
			}
			_, _ = task.Output("log").Write(make([]byte, 1<<20))
			return make([]byte, limit), nil
		})
		s := c.accept()
		s.dispatch(ids...)
		for missing := len(ids); missing > 0; {
			f := s.next("frame", func(f *lessorv1.SessionRequest) bool {
				if size := proto.Size(f); size > limit {
					t.Errorf("a frame has %d bytes, want at most %d", size, limit)
				}
				return isReports(f)
			})
			for _, report := range f.GetReports().GetReports() {
				if report.GetFail().GetTaskId() == "large" {
					checkUnreportable(t, report, worker.Configuration, "bytes")
					close(release)
				}
				if isOutcomeReport(report) {
					missing--
				}
			}
			s.commit(f)
		}
		c.accepts = nil
		s.finish(errBroken)
		s = c.accept()
		s.dispatch("later")
		f, report := s.outcome()
		if report.GetComplete() == nil {
			t.Errorf("a coordinator that states no limit got %v, want the output", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// S7: if a frame is refused as too large although it is within the limits that are known, its
// reports are sent again in frames of their own. An outcome that is refused alone is replaced by a
// failure, which is logged, and takes no other with it.
func TestOutcomeThatIsRefusedAsTooLarge(t *testing.T) {
	t.Attr("rules", "S7 K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		release, log := make(chan struct{}), &journal{}
		cfg := worker.Config{Concurrency: 5, MaxMessageBytes: 16 << 20, Logger: slog.New(slog.NewTextHandler(log, nil))}
		r := c.run(cfg, func(_ context.Context, task *worker.Task) ([]byte, error) {
			<-release
			if task.ID == "large" {
				return make([]byte, 3<<20), nil
			}
			return make([]byte, 1<<20), nil
		})
		const limit = 2 << 20 // of something between the worker and the coordinator
		s := c.accept()
		s.dispatch("t1", "t2", "t3", "t4", "large")
		for range 5 {
			s.commit(s.reports())
			synctest.Wait()
			if len(s.frames) == 0 {
				break
			}
		}
		close(release)
		done, refusals := map[string]bool{}, 0
		for len(done) < 5 {
			f := s.reports()
			if proto.Size(f) > limit {
				if refusals++; refusals > 4 {
					t.Fatalf("refused %d times, and only %d outcomes came", refusals, len(done))
				}
				s.finish(status.Error(codes.ResourceExhausted, "grpc: received message larger than max"))
				s = c.accept()
				continue
			}
			for _, report := range f.GetReports().GetReports() {
				id, _, _ := identity(report)
				if done[id] = true; id == "large" {
					checkUnreportable(t, report, worker.Configuration, "too large")
				} else if report.GetComplete() == nil {
					t.Errorf("report = %v, want a complete", report)
				}
			}
			s.commit(f)
		}
		r.shutdown()
		wantFailureLogged(t, log, "a message with it alone was refused as too large")
	})
}

// K5: a report whose frame is answered with an error frame got no verdict: it is sent again,
// unchanged.
func TestErrorFrameIsNoVerdict(t *testing.T) {
	t.Attr("rules", "K5")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		f, first := s.outcome()
		s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Error{
			Error: &lessorv1.Error{Code: "E.QUOTA", RetryAfter: durationpb.New(time.Second)},
		}})
		f, again := s.outcome()
		if !proto.Equal(first, again) {
			t.Errorf("report sent again = %v, want the same as before: %v", again, first)
		}
		s.commit(f)
		r.shutdown()
		if len(r.errors) != 1 || !strings.Contains(r.errors[0].Error(), "E.QUOTA") {
			t.Errorf("OnError got %v, want the error of the coordinator", r.errors)
		}
	})
}

// K5: an answer may lack the verdict on a report, name another lease in its place, or have no
// verdict in it. Then the report is sent again.
func TestIncompleteVerdicts(t *testing.T) {
	t.Attr("rules", "K5")
	for name, verdicts := range map[string][]*lessorv1.ReportVerdict{
		"none":          nil,
		"another lease": {{LeaseId: "lease-t2", Verdict: lessorv1.Verdict_VERDICT_COMMITTED}},
		"unspecified":   {{LeaseId: "lease-t1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) {
					time.Sleep(time.Second) // so that the outcome comes in a frame of its own
					return nil, nil
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				f, first := s.outcome()
				begun := time.Now()
				s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Verdicts{
					Verdicts: &lessorv1.Verdicts{Verdicts: verdicts},
				}})
				f, again := s.outcome()
				if waited := time.Since(begun); !proto.Equal(first, again) || waited > time.Second {
					t.Errorf("report sent again after %v = %v, want the same as before within 1s: %v", waited, again, first)
				}
				s.commit(f)
				r.shutdown()
			})
		})
	}
}

// If a report gets no verdict for some time, the worker leaves the stream, although the frame was
// acknowledged, and sends the report again on a new one.
func TestUnansweredReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.outcome()
		s = c.accept()
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// S7: an output that no message has room for fails its task. The log says so once, as of every
// failure, and names the limit that has to change: the worker's own, or the coordinator's.
func TestOutputTooLargeForAMessageIsLogged(t *testing.T) {
	t.Attr("rules", "S7")
	for name, c := range map[string]struct {
		own, coordinators uint64
		want              string
	}{
		"the worker's limit":      {256 << 10, 4 << 20, "at most 258048 fit into a message: Config.MaxMessageBytes of the worker is 262144"},
		"the coordinator's limit": {4 << 20, 256 << 10, "at most 258048 fit into a message: the coordinator reads at most 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coord := startCoordinator(t)
				coord.accepts = func(_ *stream, a *lessorv1.Accept) { a.MaxMessageBytes = c.coordinators }
				log := &journal{}
				cfg := worker.Config{MaxMessageBytes: int(c.own), Logger: slog.New(slog.NewTextHandler(log, nil))}
				r := coord.run(cfg, func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, 300<<10), nil })
				s := coord.accept()
				s.dispatch("t1")
				f, report := s.outcome()
				checkUnreportable(t, report, worker.Configuration, c.want)
				s.commit(f)
				r.shutdown()
				wantFailureLogged(t, log, c.want)
			})
		})
	}
}

// wantFailureLogged checks that the log has one failure of category CONFIGURATION, with the text.
func wantFailureLogged(t *testing.T, log *journal, text string) {
	t.Helper()
	var failures []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `msg="task failed"`) {
			failures = append(failures, line)
		}
	}
	if len(failures) != 1 || !strings.Contains(failures[0], "level=WARN") || !strings.Contains(failures[0], "CONFIGURATION") ||
		!strings.Contains(failures[0], text) {
		t.Errorf("the log has the failures %q, want one warning, CONFIGURATION: %s", failures, text)
	}
}

// An outcome that the coordinator rejects for its content leaves the lease live, so the worker then
// reports a failure that is not retried: another attempt would end in the same way. If that failure
// is rejected as well, the worker reports nothing more. An output that is larger than a message is
// not sent at all; the worker reports the failure directly.
func TestResultTooLarge(t *testing.T) {
	t.Attr("rules", "K3")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		size := make(chan int, 2)
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, <-size), nil })
		s := c.accept()

		size <- 2 << 20
		s.dispatch("t1")
		s.started("t1")
		f, _ := s.outcome()
		s.answer(f, func(r *lessorv1.Report) *lessorv1.ReportVerdict {
			v := verdict(lessorv1.Verdict_VERDICT_REJECTED, lessorv1.Reason_REASON_RESULT_TOO_LARGE)(r)
			v.Detail = "output: has 4 bytes; the limit is 3; the lease stays live"
			return v
		})
		f, report := s.outcome()
		checkUnreportable(t, report, worker.Configuration, "rejected: RESULT_TOO_LARGE: output: has 4 bytes; the limit is 3")
		if text := report.GetFail().GetError().GetMessage(); strings.Contains(text, "live") {
			t.Errorf("the failure says %q, but the lease ends with it", text)
		}
		s.commit(f)

		size <- 1
		s.dispatch("bad")
		s.started("bad")
		f, _ = s.outcome()
		refuse := verdict(lessorv1.Verdict_VERDICT_REJECTED, lessorv1.Reason_REASON_INVALID_REQUEST)
		s.answer(f, refuse)
		f, report = s.outcome()
		checkUnreportable(t, report, worker.UserCode, "rejected: INVALID_REQUEST")
		s.answer(f, refuse)
		s.quiet("report after the failure was rejected", isReports)

		size <- 5 << 20
		s.dispatch("t2")
		s.started("t2")
		f, report = s.outcome()
		checkUnreportable(t, report, worker.Configuration, "bytes")
		s.commit(f)
		r.shutdown()
	})
}

func checkUnreportable(t *testing.T, report *lessorv1.Report, category worker.Category, word string) {
	t.Helper()
	failure := report.GetFail().GetError()
	if failure.GetCategory() != category || failure.Retryable == nil || failure.GetRetryable() || !strings.Contains(failure.GetMessage(), word) {
		t.Errorf("report = %v, want a permanent failure of category %v that names %q", report, category, word)
	}
}

// No frame is larger than MaxMessageBytes, however many reports, progresses, chunks of output and
// heartbeats wait at the same time.
func TestFramesStayWithinMaxMessageBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		const limit = 256 << 10
		var ids []string
		for i := range 300 {
			ids = append(ids, fmt.Sprintf("t%d", i))
		}
		finish := make(chan struct{})
		r := c.run(worker.Config{Concurrency: len(ids), MaxMessageBytes: limit}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			task.Progress(0.5, strings.Repeat("m", 2000), strings.Repeat("s", 2000))
			fmt.Fprint(task.Output("log"), strings.Repeat("o", 10_000))
			for range 250 { // with names that take more than the data
				task.Emit(worker.Chunk{Channel: strings.Repeat("c", 256), MIMEType: strings.Repeat("m", 256), Data: []byte("o")})
			}
			<-finish
			fmt.Fprint(task.Output("log"), strings.Repeat("o", 10_000))
			return make([]byte, 5_000), nil
		})
		s := c.accept()
		s.dispatch(ids...)
		time.AfterFunc(interval+time.Second, func() { close(finish) })
		for done := 0; done < len(ids); {
			f := s.next("frame", func(*lessorv1.SessionRequest) bool { return true })
			if n := proto.Size(f); n > limit {
				t.Errorf("a frame of %v has %d bytes, want at most %d",
					f.ProtoReflect().WhichOneof(f.ProtoReflect().Descriptor().Oneofs().Get(0)).Name(), n, limit)
			}
			done += outcomes(f)
			switch {
			case isReports(f):
				s.commit(f)
			case isRenewal(f):
				s.renew(f)
			}
		}
		r.shutdown()
	})
}

// W11: while the stream takes no frames, output is dropped, oldest first, and the handler does not
// wait.
func TestSlowStream(t *testing.T) {
	t.Attr("rules", "W11")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		const chunks = 4096
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			out := task.Output("stdout")
			for i := range chunks {
				line := bytes.Repeat([]byte{'a' + byte(i%26)}, 8<<10)
				if i == chunks-1 {
					copy(line, "the end")
				}
				_, _ = out.Write(line)
				time.Sleep(time.Millisecond)
			}
			return nil, nil
		})
		s := c.accept()
		s.pause()
		s.dispatch("t1")
		time.Sleep(10 * time.Second) // the handler needs 4 s for its output, if it does not wait
		s.resume()
		kept, tail, f := s.outputUntilOutcome()
		if kept >= chunks/2 || kept == 0 {
			t.Errorf("%d of %d chunks came, want some, but fewer than half", kept, chunks)
		}
		if !strings.HasPrefix(tail, "the end") {
			t.Errorf("the last chunk is %.20q, want the newest, which begins with %q", tail, "the end")
		}
		s.commit(f)
		r.shutdown()
	})
}

// outputUntilOutcome reads frames until the outcome comes, and returns how many chunks came, the
// text of the last one, and the frame of the outcome.
func (s *stream) outputUntilOutcome() (chunks int, tail string, outcome *lessorv1.SessionRequest) {
	s.t.Helper()
	for {
		f := s.next("output or outcome", func(f *lessorv1.SessionRequest) bool { return f.GetFeedback() != nil || isReports(f) })
		for _, item := range f.GetFeedback().GetItems() {
			for _, ch := range item.GetChunks() {
				chunks, tail = chunks+1, ch.GetText()
			}
		}
		if isOutcome(f) {
			return chunks, tail, f
		}
		if isReports(f) {
			s.commit(f)
		}
	}
}

// A stream that takes no frames for some time counts as broken: the worker opens another one and
// sends the outcomes on that.
func TestBlockedStreamIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 2},
			func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, 1<<20), nil })
		blocked := c.accept()
		blocked.pause()
		defer blocked.resume()
		blocked.dispatch("t1") // fills the stream
		time.Sleep(time.Second)
		blocked.dispatch("t2") // its Start waits for room
		s := c.accept()
		s.commitOutcomes(2)
		r.shutdown()
	})
}

var errHandler = errors.New("handler gave up")

// V19: a Start that never gets a verdict is given up after ReportTries without an error. Heartbeats
// renew the lease meanwhile, and the task completes.
func TestStartIsGivenUp(t *testing.T) {
	t.Attr("rules", "K4")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{ReportTries: 3}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			time.Sleep(3 * ttl)
			return nil, context.Cause(ctx)
		})
		s := c.accept()
		s.dispatch("t1")
		starts := 0
		for done := false; !done; {
			f := s.next("frame", func(f *lessorv1.SessionRequest) bool { return isReports(f) || isRenewal(f) })
			switch {
			case isRenewal(f):
				s.renew(f)
			case isOutcome(f):
				if outcomeOf(f).GetComplete() == nil {
					t.Errorf("report = %v, want a complete", f)
				}
				s.commit(f)
				done = true
			default:
				starts++
				s.answer(f, func(*lessorv1.Report) *lessorv1.ReportVerdict {
					return &lessorv1.ReportVerdict{Error: &lessorv1.ItemError{Code: "E.INTERNAL"}}
				})
			}
		}
		r.shutdown()
		if starts != 3 || len(r.errors) > 0 {
			t.Errorf("the Start was sent %d times, and OnError got %v; want 3 times and no error", starts, r.errors)
		}
	})
}

// K5, W8: reports that had no verdict when a stream broke are sent again on each new stream, once
// and in their order, whether or not the worker had a session to resume. Here the coordinator
// begins a new session each time.
func TestReportsAreSentAgainInOrder(t *testing.T) {
	t.Attr("rules", "K5 W8")
	for name, tokens := range map[string]bool{"with a token": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				if tokens {
					c.withTokens()
				}
				r := c.run(worker.Config{Concurrency: 8}, echo)
				s := c.accept()
				want := []string{"t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"}
				for _, id := range want {
					s.dispatch(id)
					s.started(id)
					s.outcome()
				}
				for range 3 {
					s.finish(errBroken)
					s = c.accept()
					f, _ := s.outcome()
					var got []string
					for _, report := range f.GetReports().GetReports() {
						got = append(got, report.GetComplete().GetTaskId())
					}
					if !slices.Equal(got, want) {
						t.Errorf("reports of the new stream = %v, want %v", got, want)
					}
					s.quiet("second frame of reports", isReports)
					s.early = f
				}
				f, _ := s.outcome()
				s.commit(f)
				r.shutdown()
			})
		})
	}
}

// S3: Start, heartbeat and outcome carry the ids of the task and its lease, the worker, the trace
// context and the time; heartbeat and outcome also carry the newest progress and metrics, and an
// outcome when the attempt began.
func TestReportFields(t *testing.T) {
	t.Attr("rules", "S3")
	for name, test := range map[string]struct {
		err  error
		want *lessorv1.Report
	}{
		"complete": {nil, &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{Output: []byte("out")}}}},
		"fail": {errHandler, &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
			Error: &lessorv1.TaskError{Category: worker.UserCode, Message: errHandler.Error()},
		}}}},
		"release": {worker.Release(0, "not here"), &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{Reason: "not here"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
					task.Progress(0.5, "half", "running")
					task.SetMetric("loss", 0.25)
					if err := task.Confirm(ctx, time.Second); err != nil {
						t.Errorf("Confirm = %v, want nil", err)
					}
					time.Sleep(time.Second)
					return []byte("out"), test.err
				})
				s := c.accept()
				d := dispatchOf("t1")
				d.GetDispatch().GetAssignments()[0].Traceparent = "trace"
				s.send(d)
				now := timestamppb.Now()
				f := s.reports()
				checkFields(t, f.GetReports().GetReports()[0].GetStart(), &lessorv1.StartRequest{StartedAt: now, Begun: true})
				s.commit(f)
				f = s.renewal()
				checkFields(t, f.GetHeartbeat().GetLeases()[0], &lessorv1.HeartbeatRequest{
					Progress: &lessorv1.Progress{Fraction: 0.5, Message: "half", Stage: "running"},
					Metrics:  map[string]float64{"loss": 0.25},
				})
				s.renew(f)
				f, report := s.outcome()
				switch end, metrics := timestamppb.New(now.AsTime().Add(time.Second)), map[string]float64{"loss": 0.25}; {
				case report.GetComplete() != nil:
					want := test.want.GetComplete()
					want.Metrics, want.CompletedAt, want.StartedAt = metrics, end, now
					checkFields(t, report.GetComplete(), want)
				case report.GetFail() != nil:
					want := test.want.GetFail()
					want.Metrics, want.CompletedAt, want.StartedAt = metrics, end, now
					checkFields(t, report.GetFail(), want)
				default:
					test.want.GetRelease().StartedAt = now
					checkFields(t, report.GetRelease(), test.want.GetRelease())
				}
				s.commit(f)
				r.shutdown()
			})
		})
	}
}

// checkFields checks that got is want with the fields that all reports on task t1 have in common;
// an outcome must also have some report_id.
func checkFields(t *testing.T, got, want proto.Message) {
	t.Helper()
	set := func(name protoreflect.Name, value any) {
		m := want.ProtoReflect()
		m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(value))
	}
	set("task_id", "t1")
	set("lease_id", "lease-t1")
	set("attempt", uint32(1))
	set("worker_id", "w1")
	set("traceparent", "trace")
	if id := got.ProtoReflect().Descriptor().Fields().ByName("report_id"); id != nil {
		if got.ProtoReflect().Get(id).String() == "" {
			t.Errorf("report = %v, want a report_id", got)
		}
		set("report_id", got.ProtoReflect().Get(id).String())
	}
	if !proto.Equal(got, want) {
		t.Errorf("report = %v, want %v", got, want)
	}
}
