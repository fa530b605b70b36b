package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// slog writes the number of an enum into JSON, which tells nobody anything.
func TestLogInJSONHasTheNamesOfEnums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		log := &journal{}
		w := c.Worker("q", worker.Config{Logger: slog.New(slog.NewJSONHandler(log, nil))})
		w.Handle("fails", func(context.Context, *worker.Task) ([]byte, error) { return nil, worker.Permanent(errors.New("no")) })
		w.Handle("tells too much", func(context.Context, *worker.Task) ([]byte, error) { return make([]byte, 2<<20), nil })
		c.Run(w)
		c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "fails"})
		c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "tells too much"})
		synctest.Wait() // the worker writes the log after it has gone on
		for _, want := range []string{
			`"category":"ERROR_CATEGORY_USER_CODE"`, `"kind":"REPORT_KIND_COMPLETE","reason":"REASON_RESULT_TOO_LARGE"`, `"state":"TASK_STATE_LEASED"`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %s:\n%s", want, log.String())
			}
		}
	})
}

// T7: a handler that a cancel stopped has not failed. Its task becomes CANCELLED, and whoever looks
// for warnings finds none.
func TestLogOfACancelIsNoWarning(t *testing.T) {
	t.Attr("rules", "T7")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		log := &journal{}
		w := c.Worker("q", worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		w.Handle("t", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			return nil, errors.New("stopped at row 7")
		})
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "t"})
		c.WaitState(id, lessorv1.TaskState_TASK_STATE_RUNNING)
		c.Cancel(id, "not needed any more")
		if got := c.Wait(id).GetState(); got != lessorv1.TaskState_TASK_STATE_CANCELLED {
			t.Errorf("state = %v, want CANCELLED", got)
		}
		synctest.Wait() // the worker writes the log after it has gone on
		if !strings.Contains(log.String(), "stopped at row 7") || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the log has a warning, or not the error of the handler:\n%s", log.String())
		}
	})
}

// A panic is a mistake in the program. Its text and stack are logged also if the lease was lost,
// and nobody else is told of it.
func TestPanicAfterTheLeaseWasLostIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		log := &journal{}
		r := c.run(worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			<-ctx.Done()
			panicHere()
			return nil, nil
		})
		s := c.accept()
		s.dispatch("t1")
		s.started("t1")
		s.acknowledge(s.renewal(), &lessorv1.LeaseAck{
			Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_SUPERSEDED, ShouldCancel: true,
		})
		s.quiet("report after the lease was lost", isReports)
		for _, want := range []string{`msg="handler panicked"`, "panic: ouch", "panicHere", "outcome discarded"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %s:\n%s", want, log.String())
			}
		}
		r.shutdown()
	})
}
