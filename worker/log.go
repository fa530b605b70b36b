package worker

import (
	"context"
	"errors"
	"log/slog"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// log names the attempt in each line; the lease id is a secret and stays out.
func (a *attempt) log() *slog.Logger {
	return a.w.log.With("task", a.task.ID, "attempt", a.task.Attempt, "type", a.task.Type)
}

// logFailure tells the operator of the worker what its handler returned. A panic is a mistake in the program, and its
// stack is wanted at once.
func (a *attempt) logFailure(failure *lessorv1.TaskError, err error) {
	if errors.As(err, new(*PanicError)) {
		a.log().Error("handler panicked", "error", failure.GetMessage(), "stack", failure.GetStackTrace())
		return
	}
	a.log().Warn("task failed", "category", failure.GetCategory(), "error", failure.GetMessage())
}

// logVerdict writes down how an attempt ended: loud where something is wrong with what was said (K3).
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
		"kind", v.GetKind(), "reason", v.GetReason(), "detail", v.GetDetail(), "state", v.GetTaskState())
}
