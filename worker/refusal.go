package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker/internal/connecting"
)

// Reasons for which this side ends a session.
var (
	errCallHangs     = errors.New("the source of the connection's credentials does not return")
	errNoStream      = errors.New("the connection has no room for a session: other calls on it, such as watches, take up all that the coordinator permits; give the worker a connection of its own")
	errOpenTimeout   = errors.New("the coordinator did not accept the session in time")
	errSendTimeout   = errors.New("a frame could not be sent in time")
	errAnswerTimeout = errors.New("the coordinator did not answer a frame in time")
	errIdle          = errors.New("no frame arrived from the coordinator within its idle timeout")
	errClosed        = errors.New("the coordinator closed the session")
	errReaderGone    = errors.New("a hook called runtime.Goexit on the goroutine that reads frames")
	errTenantTaken   = errors.New("the coordinator named the tenant of the credentials")
	errDeniedFrame   = errors.New("a frame's envelope does not match the session")
)

// noConnectionError returns ErrNoConnection with the reason, from gRPC's message.
func noConnectionError(message string) error {
	return fmt.Errorf("%w: %s", ErrNoConnection, connecting.Why(message))
}

// lossText returns for the log why a session has ended: of a connection that was lost, gRPC's
// message without its code.
func lossText(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() == codes.Unavailable {
		return connecting.Cause(st.Message())
	}
	return err.Error()
}

// frameError is an error frame of the coordinator.
type frameError struct{ frame *lessorv1.Error }

// Error names the code and the message.
func (e *frameError) Error() string {
	return fmt.Sprintf("%s: %s", e.frame.GetCode(), e.frame.GetMessage())
}

// resetError is a reset frame.
type resetError struct{ frame *lessorv1.Reset }

// Error names the code and the reason.
func (e *resetError) Error() string {
	return fmt.Sprintf("reset by the coordinator: %s: %s", e.frame.GetCode(), e.frame.GetReason())
}

// permanentRefusal returns the refusal if err means that reconnecting cannot help, and else nil.
// Only the opening of a session can be refused for good. A session that was established and then
// ended is opened again, perhaps with renewed credentials; then the answer to the opening decides.
func permanentRefusal(err error, established, acceptedBefore bool) *RefusedError {
	if e, ok := errors.AsType[*frameError](err); ok {
		return refusalOfFrame(e.frame)
	}
	if st, ok := status.FromError(err); ok && !established {
		return refusalOfStatus(st, acceptedBefore)
	}
	return nil
}

// awaitsCredential reports whether to try again although the coordinator refuses the worker, as it
// has for so long: the worker had a valid credential before, and the operator, or what renews its
// token, may only be late. Meanwhile handlers go on while their leases live, as in any other
// outage.
func (w *Worker) awaitsCredential(refused *RefusedError, since time.Duration) bool {
	w.lock()
	defer w.unlock()
	if !w.mu.acceptedBefore || !refused.ofCredential() {
		return false
	}
	now := time.Now()
	for _, a := range w.mu.attempts {
		if a.lease.left(now) > 0 {
			return true
		}
	}
	return since < credentialGrace
}

// needsCredential reports whether another credential may end the wait that follows err sooner.
func needsCredential(err error) bool {
	if retryAfterOf(err) > 0 {
		return false
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.ofCredential()
	}
	if reset, ok := errors.AsType[*resetError](err); ok {
		return reset.frame.GetCode() == codeInvalidToken
	}
	return credentialRefused(err)
}

// ofCredential reports whether what was refused is the credential.
func (e *RefusedError) ofCredential() bool { return strings.HasPrefix(e.Code, authCodes) }

// refusalOfFrame returns the refusal for an error frame; nil if the frame says that another try may
// help.
func refusalOfFrame(e *lessorv1.Error) *RefusedError {
	if e.GetRetryAfter() != nil || e.GetCode() == codeInternal {
		return nil
	}
	return &RefusedError{Code: e.GetCode(), Message: e.GetMessage(), Remediation: e.GetRemediation()}
}

// refusalOfStatus returns the refusal for a status; nil if another try may help. After a
// coordinator has accepted the worker once (acceptedBefore), only statuses with the coordinator's
// own domain count (S4). A status without that domain comes from something in between, such as a
// proxy that has no route at the moment, or from a source of credentials that has none at the
// moment. Before the first acceptance, such a status counts as well, because it shows a wrong
// address or a missing token.
func refusalOfStatus(st *status.Status, acceptedBefore bool) *RefusedError {
	switch st.Code() {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
	default:
		return nil
	}
	info := detail.Of[*errdetails.ErrorInfo](st)
	if acceptedBefore && info.GetDomain() != detail.Domain {
		return nil
	}
	refused := &RefusedError{Code: st.Code().String(), Message: st.Message()}
	if info.GetMetadata()["code"] != "" {
		refused.Code = info.GetMetadata()["code"]
	}
	return refused
}

// retryAfterOf returns the wait that the coordinator asked for; 0 if it asked for none.
func retryAfterOf(err error) time.Duration {
	if failed, ok := errors.AsType[*frameError](err); ok {
		return failed.frame.GetRetryAfter().AsDuration()
	}
	if reset, ok := errors.AsType[*resetError](err); ok {
		return reset.frame.GetRetryAfter().AsDuration()
	}
	st, _ := status.FromError(err)
	return detail.Of[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration()
}
