package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Reasons why a handler's context has ended. Test for them with errors.Is(context.Cause(ctx),
// ErrLeaseLost) and so on. The cause itself is a *StopError, which contains the coordinator's
// reason.
var (
	// ErrLeaseLost: the attempt has lost its lease. The handler must stop at once and have no
	// further effect on the outside world (K2). What it returns is discarded, unless the lease has
	// only expired by the worker's own clock, and the handler returns no error; see Handler.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled: somebody cancelled the task. The handler may finish or clean up until
	// StopError.GraceEnds; what it returns by then is still reported (K6, T7).
	ErrCancelled = errors.New("task cancelled")
	// ErrDraining: the worker is stopping and Config.DrainTimeout is over. What the handler returns
	// within Config.StopTimeout is still reported. If it returns an error, the task is given back,
	// and that does not count as a failure, unless the error is one of Permanent, RetryAfter or
	// WithCategory.
	ErrDraining = errors.New("worker is draining")
)

// Errors of Task.Confirm and Task.SaveCheckpoint, in addition to the three above. Test for them
// with errors.Is.
var (
	// ErrLeaseShort: the lease is live, but has less time left than Confirm asked for.
	ErrLeaseShort = errors.New("lease too short")
	// ErrFinished: the handler has returned already.
	ErrFinished = errors.New("attempt finished")
)

// Errors of Run and Config.Hooks. Test for them with errors.Is.
var (
	// ErrAlreadyRun: Run was called twice on one Worker.
	ErrAlreadyRun = errors.New("worker has run already")
	// ErrConnClosed: the caller has closed the connection while Run used it.
	ErrConnClosed = errors.New("the connection was closed before Run returned")
	// ErrNoConnection: for some time, the worker could not connect to the coordinator. It continues
	// to try.
	ErrNoConnection = errors.New("no connection to the coordinator")
	// ErrStuck: a handler or the Installer was still running Config.StopTimeout after the drain had
	// ended its context.
	ErrStuck = errors.New("handler did not stop")
	// ErrUndelivered: an outcome got no verdict within Config.ReportTries tries and the life of its
	// lease, or before the worker had to stop. Its lease expires. Or the coordinator has not
	// acknowledged, before the worker had to stop, what became of a package.
	ErrUndelivered = errors.New("report undelivered")
)

// StopError is the cause with which a handler's context ends.
type StopError struct {
	// Err is ErrLeaseLost, ErrCancelled or ErrDraining.
	Err error
	// Reason is the coordinator's reason, or REASON_DEADLINE_EXCEEDED if the attempt_timeout or the
	// deadline of the task has ended the lease; REASON_UNSPECIFIED if there is none, for example
	// because no renewal arrived in time.
	Reason lessorv1.Reason
	// Detail is an explanation for people.
	Detail string
	// GraceEnds is with ErrCancelled when the grace ends; else it is zero. If the worker was not
	// connected at the time of the cancel, that is sooner than in Task.CancelGrace. If the
	// coordinator later says that the grace ends sooner than it seemed, Task.Confirm returns that,
	// and Task.Lost is closed then.
	GraceEnds time.Time
}

// Error names the kind, the reason and the detail.
func (e *StopError) Error() string {
	return joinReason(e.Err.Error(), e.Reason, e.Detail)
}

// Unwrap returns the kind.
func (e *StopError) Unwrap() error { return e.Err }

// RejectedError is a REJECTED verdict: the request was wrong. It is never retried (K3).
type RejectedError struct {
	// Reason is the coordinator's reason.
	Reason lessorv1.Reason
	// Detail names the field or the cause.
	Detail string
}

// Error names the reason and the detail.
func (e *RejectedError) Error() string {
	return joinReason("rejected", e.Reason, e.Detail)
}

// RefusedError ends Run: the coordinator refused to open a session, and another try would not help.
// Until a coordinator has accepted the worker for the first time, a refusal by a proxy or by the
// source of credentials counts as well. After that, a refusal of the credential (E.AUTH...) ends
// Run only if no valid credential comes within five minutes, and no lease of the worker lives any
// longer. Until then, handlers go on while their leases live, and Hooks.OnError gets the
// RefusedError of each try. But nothing is renewed meanwhile: a lease that ends before the worker
// is let in again is lost, and its task runs again. So renew a credential well before it ends. A
// new one is used at the next try: within a second if it comes from TokenFile, else it may be up to
// Config.MaxBackoff away.
type RefusedError struct {
	// Code is a code of the session protocol such as E.SESSION.DENIED, or the name of a gRPC status
	// code.
	Code string
	// Message is the message of the refusal.
	Message string
	// Remediation says what to do about it; may be empty.
	Remediation string
}

// Error names the code, the message and the remediation.
func (e *RefusedError) Error() string {
	msg := fmt.Sprintf("session refused: %s: %s", e.Code, e.Message)
	if e.Remediation != "" {
		msg += " (" + e.Remediation + ")"
	}
	return msg
}

// PanicError is a handler's panic, or its call of runtime.Goexit. It is reported as a failure of
// category USER_CODE.
type PanicError struct {
	// Value is what was passed to panic; nil for runtime.Goexit.
	Value any
	// Stack is the goroutine's stack at the panic; empty for runtime.Goexit.
	Stack []byte
}

// Error names the value.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "handler called runtime.Goexit"
	}
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// joinReason returns "what: X: detail" for REASON_X, the form in which other messages show a
// reason. It leaves out what is empty.
func joinReason(what string, reason lessorv1.Reason, detail string) string {
	if reason != lessorv1.Reason_REASON_UNSPECIFIED {
		what += ": " + strings.TrimPrefix(reason.String(), "REASON_")
	}
	if detail != "" {
		what += ": " + detail
	}
	return what
}
