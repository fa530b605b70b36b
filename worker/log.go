package worker

import (
	"context"
	"errors"
	"log/slog"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// log returns a logger that names the attempt. The lease id is a secret, so it is not logged. Enums
// are logged by String, since slog writes numbers into JSON.
func (a *attempt) log() *slog.Logger {
	return a.w.log.With("task", a.task.ID, "attempt", a.task.Attempt, "type", a.task.Type)
}

// logFailure logs what the handler returned. A panic is a mistake in the program, so it is logged
// as an error, with its stack.
func (a *attempt) logFailure(failure *lessorv1.TaskError, err error) {
	if errors.As(err, new(*PanicError)) {
		a.log().Error("handler panicked", "error", failure.GetMessage(), "stack", failure.GetStackTrace())
		return
	}
	if errors.Is(context.Cause(a.ctx), ErrCancelled) { // the task becomes CANCELLED, not FAILED (T7)
		a.log().Info("task stopped after its cancel", "error", failure.GetMessage())
		return
	}
	a.log().Warn("task failed", "category", failure.GetCategory().String(), "error", failure.GetMessage())
}

// logDiscarded logs an outcome that is not reported. Most errors say no more than that the context
// has ended; a panic does.
func (a *attempt) logDiscarded(outcome *report, err error) {
	if errors.As(err, new(*PanicError)) {
		a.logFailure(outcome.item.GetFail().GetError(), err)
	}
	a.log().Info("outcome discarded: the lease was lost")
}

// logVerdict logs how an attempt ended, as an error if the report was wrong (K3).
func (a *attempt) logVerdict(v *lessorv1.ReportVerdict) {
	level, msg := slog.LevelDebug, "outcome committed"
	switch v.GetVerdict() {
	case lessorv1.Verdict_VERDICT_CANCELLED:
		level, msg = slog.LevelInfo, "outcome discarded by the coordinator"
	case lessorv1.Verdict_VERDICT_REJECTED:
		level, msg = slog.LevelError, "outcome rejected"
	}
	if !a.w.log.Enabled(context.Background(), level) {
		return
	}
	a.log().Log(context.Background(), level, msg,
		"kind", v.GetKind().String(), "reason", v.GetReason().String(), "detail", v.GetDetail(), "state",
		v.GetTaskState().String())
}
