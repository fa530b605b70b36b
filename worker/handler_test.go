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

// What a handler returns decides the one report of its attempt (T4, V16).
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
				t.Errorf("retryable = %v, want %v", got.Retryable, test.retry)
			}
			if wantWait := test.name == "retry after"; (got.GetRetryAfter().AsDuration() == time.Minute) != wantWait {
				t.Errorf("retry_after = %v", got.GetRetryAfter())
			}
		})
	}
}

// Handlers of one frame run at once, each under its slot, whatever those before them do: wait, panic, or end their goroutine.
func TestHandlersOfAFrameRunAtOnce(t *testing.T) {
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
			waiting.Wait() // for all others that wait
			return nil, nil
		})
		s := c.accept()
		var ids []string
		for i := range tasks {
			ids = append(ids, fmt.Sprintf("%c%d", "pgw"[i%3], i))
		}
		s.dispatch(ids...)
		outcomes := 0
		for outcomes < tasks {
			f := s.reports()
			for _, report := range f.GetReports().GetReports() {
				if outcome(report) {
					outcomes++
				}
			}
			s.commit(f)
		}
		r.shutdown()
	})
}

// A panic and runtime.Goexit are failures, the former with its stack, and the worker goes on.
func TestPanicIsAFailure(t *testing.T) {
	got := failureOf(t, func(context.Context, *worker.Task) ([]byte, error) { panicHere(); return nil, nil })
	if got.GetCategory() != worker.UserCode || got.GetMessage() != "panic: ouch" || !strings.Contains(got.GetStackTrace(), "panicHere") {
		t.Errorf("error = %v", got)
	}
	for name, h := range map[string]worker.Handler{
		"handler":    func(context.Context, *worker.Task) ([]byte, error) { runtime.Goexit(); return nil, nil },
		"its error":  func(context.Context, *worker.Task) ([]byte, error) { return nil, exitingError{} },
		"its thrown": func(context.Context, *worker.Task) ([]byte, error) { panic(exitingError{}) },
	} {
		got = failureOf(t, h)
		if got.GetCategory() != worker.UserCode || got.GetMessage() != "handler called runtime.Goexit" {
			t.Errorf("%s: error = %v", name, got)
		}
	}
}

// exitingError is an error whose method ends the goroutine.
type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

func panicHere() { panic("ouch") }

// badError is an error whose methods fail, as those of a nil pointer do.
type badError struct{ message string }

func (e *badError) Error() string { return e.message }

func (e *badError) Is(error) bool { return e.message != "" }

// An error whose own methods panic is a failure like a handler that panics, returned or thrown, and takes nothing else along.
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
				t.Errorf("error = %v", got)
			}
		})
	}
}

// worstError panics with an error that panics.
type worstError struct{}

func (worstError) Error() string { panic((*badError)(nil)) }

// failureOf runs one task and returns the error that is reported.
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

// reportOf runs one task to its verdict, stops the worker and returns the report.
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

// Release gives the task back with a delay, and is no failure (T5).
func TestRelease(t *testing.T) {
	t.Attr("rules", "T5")
	synctest.Test(t, func(t *testing.T) {
		got := reportOf(t, func(context.Context, *worker.Task) ([]byte, error) {
			return nil, fmt.Errorf("wrapped: %w", worker.Release(time.Minute, "not here"))
		}).GetRelease()
		if got.GetReason() != "not here" || got.GetDelay().AsDuration() != time.Minute {
			t.Errorf("release = %v", got)
		}
	})
}

// A handler reads what the assignment brought (S2), and its artifacts go with the result.
func TestTaskFieldsAndArtifacts(t *testing.T) {
	t.Attr("rules", "S2")
	synctest.Test(t, func(t *testing.T) {
		got := reportOf(t, func(_ context.Context, task *worker.Task) ([]byte, error) {
			if task.ID != "t1" || task.Attempt != 1 || task.AttemptID != "t1/1" || task.FencingToken != 7 || task.Queue != "q" ||
				task.Type != "work" || string(task.Checkpoint) != "saved" || task.CancelGrace != grace {
				t.Errorf("task = %+v", task)
			}
			task.AddArtifact(worker.Artifact{ResourceID: "s3://x", Size: 3, Metadata: map[string]string{"k": "v"}})
			return []byte("out"), nil
		}).GetComplete()
		if len(got.GetArtifacts()) != 1 || got.GetArtifacts()[0].GetResourceId() != "s3://x" || got.GetArtifacts()[0].GetMetadata()["k"] != "v" {
			t.Errorf("complete = %v", got)
		}
	})
}

// Reports that wait together share a frame (section 6: everything batchable is batched).
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
		close(finish) // between two streams
		s = c.accept()
		f := s.reports()
		if n := len(f.GetReports().GetReports()); n != len(ids) {
			t.Errorf("the frame has %d reports, want %d", n, len(ids))
		}
		s.commit(f)
		r.shutdown()
	})
}

// A dispatch that is delivered twice starts one handler, while it runs and after (W6, W7).
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
			t.Errorf("the duplicate was not acknowledged at once, but after %v by %v", time.Since(begun), f)
		}
		close(release)
		f, _ := s.outcome()
		s.dispatch("t1")
		s.commit(f)
		s.dispatch("t1")
		s.quiet("report on a duplicate", isReports)
		if starts != 1 {
			t.Errorf("%d starts, want 1", starts)
		}
		r.shutdown()
	})
}

// A task of a type without a handler goes back with a delay; it cannot normally come.
func TestUnknownType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		asg := assignment("t1")
		asg.Task.Spec.Type = "other"
		s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{
			Dispatch: &lessorv1.Dispatch{Assignments: []*lessorv1.Assignment{asg}},
		}})
		f, report := s.outcome()
		if got := report.GetRelease(); got.GetDelay().AsDuration() <= 0 {
			t.Errorf("report = %v, want a release with a delay", report)
		}
		s.commit(f)
		r.shutdown()
	})
}

// Frames that ask for an acknowledgement get one (W6); frames that mean nothing here are answered and change nothing.
func TestAcknowledgement(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		id := s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{Request: true}}).GetId()
		s.next("ack", func(f *lessorv1.SessionRequest) bool { return f.GetAck().GetFor() == id && f.GetId() != "" })
		id = s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Accept{Accept: &lessorv1.Accept{}}}).GetId()
		s.next("error", func(f *lessorv1.SessionRequest) bool {
			return f.GetCorr() == id && f.GetError().GetCode() == "E.CMD.UNKNOWN"
		})
		r.shutdown()
	})
}

// Output and progress reach the stream while the task runs, joined and in order, and the rest before the outcome.
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
		item := s.next("feedback", isFeedback).GetFeedback().GetItems()[0]
		if item.GetProgress() != 0.5 || item.GetStage() != "running" || item.GetMessage() != "half" || item.GetLeaseId() != "lease-t1" ||
			len(item.GetChunks()) != 1 || item.GetChunks()[0].GetText() != "hello world" {
			t.Errorf("feedback = %v", item)
		}
		f := s.next("feedback or outcome", func(f *lessorv1.SessionRequest) bool { return isFeedback(f) || isOutcome(f) })
		chunks := f.GetFeedback().GetItems()[0].GetChunks()
		want := []string{"stdout 1 bye", "raw 0 \xff"}
		got := []string{}
		for _, ch := range chunks {
			got = append(got, fmt.Sprintf("%s %d %s%s", ch.GetChannel(), ch.GetIndex(), ch.GetText(), ch.GetData()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("chunks = %q, want %q before the outcome", got, want)
		}
		f, _ = s.outcome()
		s.commit(f)
		r.shutdown()
	})
}
