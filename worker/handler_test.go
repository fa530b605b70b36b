package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// T4: the error of a handler decides category, message and stack of the failure, and whether it may
// be retried. Of several such marks in one error the outermost counts, and of joined errors the
// first; the wait of RetryAfter is sent only if its mark counts.
func TestOutcomes(t *testing.T) {
	boom := errors.New("boom")
	yes, no := true, false
	for _, test := range []struct {
		name    string
		returns error
		want    *lessorv1.TaskError
		retry   *bool
	}{
		{"plain", boom, &lessorv1.TaskError{Category: worker.UserCode, Message: "boom"}, nil},
		{"deadline", fmt.Errorf("db: %w", context.DeadlineExceeded), &lessorv1.TaskError{Category: worker.Timeout, Message: "db: context deadline exceeded"}, nil},
		{"permanent", worker.Permanent(boom), &lessorv1.TaskError{Category: worker.UserCode, Message: "boom"}, &no},
		{"retry after", worker.RetryAfter(time.Minute, boom), &lessorv1.TaskError{Category: worker.UserCode, Message: "boom"}, &yes},
		{"category", worker.WithCategory(worker.DataQuality, boom), &lessorv1.TaskError{Category: worker.DataQuality, Message: "boom"}, nil},
		{"both", fmt.Errorf("x: %w", worker.WithCategory(worker.Infrastructure, worker.Permanent(boom))), &lessorv1.TaskError{Category: worker.Infrastructure, Message: "x: boom"}, &no},
		{"outer wins", worker.Permanent(worker.RetryAfter(time.Minute, boom)), &lessorv1.TaskError{Category: worker.UserCode, Message: "boom"}, &no},
		{"joined", errors.Join(worker.WithCategory(worker.Infrastructure, boom), worker.Permanent(boom), worker.WithCategory(worker.DataQuality, boom)), &lessorv1.TaskError{Category: worker.Infrastructure, Message: "boom\nboom\nboom"}, &no},
		{"stack", worker.WithStack("at line 7", worker.Permanent(boom)), &lessorv1.TaskError{Category: worker.UserCode, Message: "boom", StackTrace: "at line 7"}, &no},
		{"end of a long stack", worker.WithStack(strings.Repeat("x", 64<<10)+"end", boom), &lessorv1.TaskError{Category: worker.UserCode, Message: "boom", StackTrace: strings.Repeat("x", 64<<10-3) + "end"}, nil},
		{"no such category", worker.WithCategory(99, worker.Permanent(boom)), &lessorv1.TaskError{Category: worker.UserCode, Message: "boom"}, &no},
		{"bad UTF-8", errors.New("a\xffb"), &lessorv1.TaskError{Category: worker.UserCode, Message: "a\uFFFDb"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := failureOf(t, func(context.Context, *worker.Task) ([]byte, error) { return nil, test.returns })
			if got.GetCategory() != test.want.GetCategory() || got.GetMessage() != test.want.GetMessage() || got.GetStackTrace() != test.want.GetStackTrace() {
				t.Errorf("error = %v, want %v", got, test.want)
			}
			if (got.Retryable == nil) != (test.retry == nil) || got.GetRetryable() != (test.retry == &yes) {
				t.Errorf("error = %v, want retryable set: %v, and true: %v", got, test.retry != nil, test.retry == &yes)
			}
			if wantWait := test.name == "retry after"; (got.GetRetryAfter().AsDuration() == time.Minute) != wantWait {
				t.Errorf("retry_after = %v, want 1m: %v", got.GetRetryAfter().AsDuration(), wantWait)
			}
		})
	}
}

// The tasks of one dispatch run at the same time, each in its slot, even if the handlers before
// them wait, panic or end their goroutine.
func TestHandlersOfOneDispatchRunInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 12
		c := startCoordinator(t)
		var waiting sync.WaitGroup
		waiting.Add(tasks / 3)
		r := c.run(worker.Config{Concurrency: tasks}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			switch task.ID[0] {
			case 'p':
				panic("ouch")
			case 'g':
				runtime.Goexit()
			}
			waiting.Done()
			waiting.Wait() // until all handlers that wait run at the same time
			return nil, nil
		})
		s := c.accept()
		var ids []string
		for i := range tasks {
			ids = append(ids, fmt.Sprintf("%c%d", "pgw"[i%3], i))
		}
		s.dispatch(ids...)
		s.commitOutcomes(tasks)
		r.shutdown()
	})
}

// A handler that panics or calls runtime.Goexit fails its task; a panic is reported with its stack.
// So does an error whose method calls Goexit. The worker goes on.
func TestPanicIsAFailure(t *testing.T) {
	got := failureOf(t, func(context.Context, *worker.Task) ([]byte, error) { panicHere(); return nil, nil })
	if got.GetCategory() != worker.UserCode || got.GetMessage() != "panic: ouch" || !strings.Contains(got.GetStackTrace(), "panicHere") {
		t.Errorf("error = %v, want category USER_CODE, message %q and a stack with panicHere", got, "panic: ouch")
	}
	for name, h := range map[string]worker.Handler{
		"handler":   func(context.Context, *worker.Task) ([]byte, error) { runtime.Goexit(); return nil, nil },
		"its error": func(context.Context, *worker.Task) ([]byte, error) { return nil, exitingError{} },
		"its panic": func(context.Context, *worker.Task) ([]byte, error) { panic(exitingError{}) },
	} {
		got = failureOf(t, h)
		if got.GetCategory() != worker.UserCode || got.GetMessage() != "handler called runtime.Goexit" {
			t.Errorf("%s: error = %v, want category USER_CODE and message %q", name, got, "handler called runtime.Goexit")
		}
	}
}

// exitingError is an error whose method Error ends the goroutine.
type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

// A panic with an error of Release gives the task back, as the error itself does.
func TestPanicWithARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := reportOf(t, func(context.Context, *worker.Task) ([]byte, error) { panic(worker.Release(time.Minute, "no room")) })
		if got.GetRelease().GetReason() != "no room" {
			t.Errorf("report = %v, want a release", got)
		}
	})
}

func panicHere() { panic("ouch") }

// badError is an error whose methods panic if the pointer is nil.
type badError struct{ message string }

func (e *badError) Error() string { return e.message }

func (e *badError) Is(error) bool { return e.message != "" }

// If the methods of an error panic, the task fails as if its handler had panicked, whether the
// handler returned the error or panicked with it. The worker goes on.
func TestBadErrorIsAFailure(t *testing.T) {
	for name, h := range map[string]worker.Handler{
		"returned": func(context.Context, *worker.Task) ([]byte, error) { return nil, (*badError)(nil) },
		"wrapped":  func(context.Context, *worker.Task) ([]byte, error) { return nil, worker.Permanent((*badError)(nil)) },
		"thrown":   func(context.Context, *worker.Task) ([]byte, error) { panic((*badError)(nil)) },
		"twice":    func(context.Context, *worker.Task) ([]byte, error) { return nil, worstError{} },
	} {
		t.Run(name, func(t *testing.T) {
			got := failureOf(t, h)
			if got.GetCategory() != worker.UserCode || !strings.HasPrefix(got.GetMessage(), "panic: ") || got.GetStackTrace() == "" {
				t.Errorf("error = %v, want category USER_CODE, a message that begins with %q, and a stack", got, "panic: ")
			}
		})
	}
}

// worstError is an error whose method panics with an error whose method panics.
type worstError struct{}

func (worstError) Error() string { panic((*badError)(nil)) }

// failureOf runs one task with the handler and returns the error that the worker reports.
func failureOf(t *testing.T, h worker.Handler) (failure *lessorv1.TaskError) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		report := reportOf(t, h)
		if report.GetFail() == nil {
			t.Fatalf("report = %v, want a fail", report)
		}
		failure = report.GetFail().GetError()
	})
	return failure
}

// reportOf runs one task with the handler, commits its outcome, stops the worker and returns the
// report.
func reportOf(t *testing.T, h worker.Handler) *lessorv1.Report {
	t.Helper()
	c := startCoordinator(t)
	r := c.run(worker.Config{}, h)
	s := c.accept()
	s.dispatch("t1")
	s.started("t1")
	f, report := s.outcome()
	s.commit(f)
	r.shutdown()
	return report
}

// T5: a handler that returns Release gives the task back, with a reason and a delay. That is no
// failure.
func TestRelease(t *testing.T) {
	t.Attr("rules", "T5")
	synctest.Test(t, func(t *testing.T) {
		got := reportOf(t, func(context.Context, *worker.Task) ([]byte, error) {
			return nil, fmt.Errorf("wrapped: %w", worker.Release(time.Minute, "not here"))
		}).GetRelease()
		if got.GetReason() != "not here" || got.GetDelay().AsDuration() != time.Minute {
			t.Errorf("release = %v, want reason %q and delay 1m", got, "not here")
		}
	})
}

// S2: the Task has the fields of the assignment. The artifacts that the handler adds are sent with
// its result.
func TestTaskFieldsAndArtifacts(t *testing.T) {
	t.Attr("rules", "S2")
	synctest.Test(t, func(t *testing.T) {
		got := reportOf(t, func(_ context.Context, task *worker.Task) ([]byte, error) {
			if task.ID != "t1" || task.Attempt != 1 || task.AttemptID != "t1/1" || task.FencingToken != 7 || task.Queue != "q" ||
				task.Type != "work" || string(task.Checkpoint) != "saved" || task.CancelGrace != grace ||
				task.HeartbeatTimeout != ttl ||
				!task.Deadline.IsZero() {
				t.Errorf("task = %+v, want the fields of %v", task, assignment("t1"))
			}
			task.AddArtifact(worker.Artifact{ResourceID: "s3://x", Size: 3, Metadata: map[string]string{"k": "v"}})
			return []byte("out"), nil
		}).GetComplete()
		if len(got.GetArtifacts()) != 1 || got.GetArtifacts()[0].GetResourceId() != "s3://x" || got.GetArtifacts()[0].GetMetadata()["k"] != "v" {
			t.Errorf("complete = %v, want the one artifact s3://x with its metadata", got)
		}
	})
}

// An artifact whose text is not valid UTF-8 fails the attempt for good, as one that the coordinator
// refuses does: with other text it would be another artifact.
func TestArtifactThatIsNoUTF8(t *testing.T) {
	const bad = "bad\xffid"
	for field, artifact := range map[string]worker.Artifact{
		"ResourceID": {ResourceID: bad}, "WorkerID": {ResourceID: "x", WorkerID: bad}, "Type": {ResourceID: "x", Type: bad},
		"key": {ResourceID: "x", Metadata: map[string]string{bad: ""}}, "value": {ResourceID: "x", Metadata: map[string]string{"k": bad}},
	} {
		synctest.Test(t, func(t *testing.T) {
			failure := reportOf(t, func(_ context.Context, task *worker.Task) ([]byte, error) {
				task.AddArtifact(artifact)
				task.AddArtifact(worker.Artifact{ResourceID: "good"})
				return []byte("out"), nil
			}).GetFail().GetError()
			if failure.GetCategory() != worker.UserCode || failure.Retryable == nil || failure.GetRetryable() || !strings.Contains(failure.GetMessage(), "UTF-8") {
				t.Errorf("%s: failure = %v, want a permanent one of category USER_CODE that names UTF-8", field, failure)
			}
		})
	}
}

// Reports that wait at the same time are sent in one frame. Here the handlers end while there is no
// stream.
func TestReportsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprintf("t%d", i))
		}
		finish := make(chan struct{})
		r := c.run(worker.Config{Concurrency: len(ids)}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			<-finish
			return task.Payload, nil
		})
		s := c.accept()
		s.dispatch(ids...)
		for starts := 0; starts < len(ids); {
			f := s.reports()
			starts += len(f.GetReports().GetReports())
			s.commit(f)
		}
		synctest.Wait()
		s.finish(errBroken)
		synctest.Wait()
		close(finish)
		s = c.accept()
		f := s.reports()
		if n := len(f.GetReports().GetReports()); n != len(ids) {
			t.Errorf("the frame has %d reports, want %d", n, len(ids))
		}
		s.commit(f)
		r.shutdown()
	})
}

// W6: a dispatch that comes again starts no second handler, whether the first one runs, has
// returned, or has its verdict. While it runs the repeat is acknowledged at once by a heartbeat.
func TestDuplicateDispatch(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		starts := 0
		release := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 4}, func(context.Context, *worker.Task) ([]byte, error) {
			starts++
			<-release
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.dispatch("t1")
		begun := time.Now()
		if f := s.renewal(); f.GetHeartbeat().GetLeases()[0].GetLeaseId() != "lease-t1" || time.Since(begun) > 0 {
			t.Errorf("the repeated dispatch was acknowledged after %v by %v, want at once by a heartbeat of lease-t1",
				time.Since(begun), f)
		}
		close(release)
		f, _ := s.outcome()
		s.dispatch("t1")
		s.commit(f)
		s.dispatch("t1")
		s.quiet("report on a duplicate", isReports)
		if starts != 1 {
			t.Errorf("the handler was started %d times, want once", starts)
		}
		r.shutdown()
	})
}

// A task whose type has no handler is released with a delay. The coordinator sends none, because
// the worker registers its types.
func TestUnknownType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		assigned := assignment("t1")
		assigned.Task.Spec.Type = "other"
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{
			Dispatch: &lessorv1.Dispatch{Assignments: []*lessorv1.Assignment{assigned}},
		}})
		f, report := s.outcome()
		if got := report.GetRelease(); got.GetDelay().AsDuration() <= 0 {
			t.Errorf("report = %v, want a release with a delay", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// W6: a frame that asks for an acknowledgement gets one, within a lull: it may share the frame of
// something else. A second accept, which has no meaning in an open session, is answered with
// E.CMD.UNKNOWN and changes nothing.
func TestAcknowledgement(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		synctest.Wait()
		begun := time.Now()
		id := s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{Request: true}}).GetId()
		s.next("ack", func(f *lessorv1.SessionRequest) bool { return f.GetAck().GetFor() == id && f.GetId() != "" })
		if waited := time.Since(begun); waited > lull {
			t.Errorf("acknowledged after %v, want at most %v", waited, lull)
		}
		id = s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Accept{Accept: &lessorv1.Accept{}}}).GetId()
		s.next("error", func(f *lessorv1.SessionRequest) bool {
			return f.GetCorr() == id && f.GetError().GetCode() == "E.CMD.UNKNOWN"
		})
		r.shutdown()
	})
}

// Progress and output are sent while the task runs; writes to one channel are joined, in order. The
// rest of the output is sent before the outcome.
func TestFeedback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			task.Progress(0.5, "half", "running")
			out := task.Output("stdout")
			fmt.Fprint(out, "hello ")
			fmt.Fprint(out, "world")
			time.Sleep(time.Second)
			fmt.Fprint(out, "bye")
			_, _ = task.Output("raw").Write([]byte{0xff})
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		begun := time.Now()
		item := s.next("feedback", isFeedback).GetFeedback().GetItems()[0]
		if waited := time.Since(begun); waited > 100*time.Millisecond {
			t.Errorf("the feedback came after %v, want at most 100ms", waited)
		}
		if item.GetProgress() != 0.5 || item.GetStage() != "running" || item.GetMessage() != "half" || item.GetLeaseId() != "lease-t1" ||
			len(item.GetChunks()) != 1 || item.GetChunks()[0].GetText() != "hello world" {
			t.Errorf("feedback = %v, want progress 0.5, stage running, message half, and one chunk %q", item, "hello world")
		}
		f := s.next("feedback or outcome", func(f *lessorv1.SessionRequest) bool { return isFeedback(f) || isOutcome(f) })
		chunks := f.GetFeedback().GetItems()[0].GetChunks()
		want := []string{"stdout 1 bye", "raw 0 \xff"}
		got := []string{}
		for _, ch := range chunks {
			got = append(got, fmt.Sprintf("%s %d %s%s", ch.GetChannel(), ch.GetIndex(), ch.GetText(), ch.GetData()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("chunks before the outcome = %q, want %q", got, want)
		}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}

// The context of a handler ends when the handler has returned.
func TestContextEndsWithTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		reportOf(t, func(c context.Context, _ *worker.Task) ([]byte, error) { ctx = c; return nil, nil })
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("cause = %v, want %v", context.Cause(ctx), context.Canceled)
		}
	})
}

// Output and metrics are sent soon while the handler runs, each of them also alone.
func TestFeedbackIsSentSoon(t *testing.T) {
	for name, give := range map[string]func(*worker.Task){
		"output": func(task *worker.Task) { fmt.Fprint(task.Output("stdout"), "hello") },
		"chunk":  func(task *worker.Task) { task.Emit(worker.Chunk{Channel: "llm", Data: []byte("hello")}) },
		"metric": func(task *worker.Task) { task.SetMetric("loss", 0.5) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				hold := make(chan struct{})
				r := c.run(worker.Config{}, func(_ context.Context, task *worker.Task) ([]byte, error) {
					give(task)
					<-hold
					return nil, nil
				})
				s := c.accept()
				s.dispatch("t1")
				s.started("t1")
				begun := time.Now()
				s.next("feedback", isFeedback)
				if waited := time.Since(begun); waited > time.Second {
					t.Errorf("the feedback came after %v, want at most 1s", waited)
				}
				close(hold)
				f, _ := s.outcome()
				s.commit(f)
				r.shutdown()
			})
		})
	}
}
