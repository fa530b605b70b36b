package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/runner"
)

// The first signal asks for an orderly stop, a second one stops at once. The same signal twice
// within duplicateWindow counts once, because timeout(1) sends it to the process and to its group.
func TestSignals(t *testing.T) {
	type sent struct {
		after  time.Duration
		signal syscall.Signal
	}
	for name, c := range map[string]struct {
		sent []sent
		hard bool
	}{
		"one":                    {[]sent{{0, syscall.SIGTERM}}, false},
		"one that comes twice":   {[]sent{{0, syscall.SIGTERM}, {duplicateWindow - 1, syscall.SIGTERM}}, false},
		"the same again":         {[]sent{{0, syscall.SIGTERM}, {duplicateWindow, syscall.SIGTERM}}, true},
		"twice, and again":       {[]sent{{0, syscall.SIGINT}, {0, syscall.SIGINT}, {duplicateWindow, syscall.SIGINT}}, true},
		"quit":                   {[]sent{{0, syscall.SIGQUIT}}, true},
		"quit after another one": {[]sent{{0, syscall.SIGTERM}, {0, syscall.SIGQUIT}}, true},
		"another one, right now": {[]sent{{0, syscall.SIGHUP}, {0, syscall.SIGTERM}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				soft, stop := context.WithCancelCause(t.Context())
				hard, kill := context.WithCancelCause(t.Context())
				received, done := make(chan os.Signal), make(chan struct{})
				go handleSignals(received, done, stop, kill)
				for _, s := range c.sent {
					time.Sleep(s.after)
					received <- s.signal
				}
				synctest.Wait()
				if soft.Err() == nil || (hard.Err() != nil) != c.hard {
					t.Errorf("orderly stop: %v, stop at once: %v, want an orderly stop and at once: %t",
						context.Cause(soft), context.Cause(hard), c.hard)
				}
				close(done)
			})
		})
	}
}

// A signal ends a run that waits for a coordinator which does not answer, and the error names the
// signal, not the call.
func TestSignalWhileTheCoordinatorDoesNotAnswer(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	interrupted := &interruptedError{signal: os.Interrupt}
	stop(interrupted)
	work := runWork{runCmd: runCmd{Addr: "127.0.0.1:1"}, app: &app{ctx: ctx, stopNow: ctx}}
	if _, err := work.runRemote(); !errors.Is(err, interrupted) {
		t.Errorf("error %v, want %v", err, interrupted)
	}
}

// silent does not answer the call that opens failed lines again, or not even the one before, which
// counts lines; during is called meanwhile.
type silent struct {
	lessorv1.TaskServiceClient
	lists  bool
	during func()
}

func (s silent) ListTasks(
	ctx context.Context, _ *lessorv1.ListTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.ListTasksResponse, error) {
	if s.lists {
		return &lessorv1.ListTasksResponse{}, nil
	}
	s.during()
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (s silent) BatchRetryTasks(
	ctx context.Context, _ *lessorv1.BatchRetryTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchRetryTasksResponse, error) {
	s.during()
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// So it is while a run is resumed, before the worker begins: while lines are counted, and while
// failed ones are opened again.
func TestSignalWhileARunIsResumed(t *testing.T) {
	for _, lists := range []bool{false, true} {
		testSignalWhileARunIsResumed(t, lists)
	}
}

func testSignalWhileARunIsResumed(t *testing.T, lists bool) {
	ctx, stop := context.WithCancelCause(t.Context())
	interrupted := &interruptedError{signal: os.Interrupt}
	job, err := runner.Open(ctx, t.TempDir(), runner.Options{}, strings.NewReader("line\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = job.Close() }()
	work := runWork{
		runCmd: runCmd{RetryFailed: true}, app: &app{ctx: ctx, stopNow: ctx}, job: job,
		screen: runner.NewScreen(io.Discard, io.Discard, runner.Apart),
	}
	err = work.resume(t.Context(), &client{tasks: silent{lists: lists, during: func() { stop(interrupted) }}})
	if !errors.Is(err, interrupted) {
		t.Errorf("lines are counted: %t: error %v, want %v", lists, err, interrupted)
	}
}
