package coordinator

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// errorDomain is the domain of every google.rpc.ErrorInfo (S4).
const errorDomain = "lessor"

// Codes of errors. The code goes into metadata["code"]; without "E." and with underscores it is the reason.
const (
	codeInvalid    = "E.REQUEST.INVALID"
	codeNotFound   = "E.TASK.NOT_FOUND"
	codeNoQueue    = "E.QUEUE.NOT_FOUND"
	codeNoWorker   = "E.WORKER.NOT_FOUND"
	codeState      = "E.TASK.STATE"
	codeExists     = "E.TASK.EXISTS"
	codeStopping   = "E.COORDINATOR.STOPPING"
	codeOverloaded = "E.COORDINATOR.OVERLOADED"
	codeStore      = "E.STORE.FAILED"
	codeDiskFull   = "E.STORE.DISK_FULL"
	codeInternal   = "E.INTERNAL"
	codeBackupBusy = "E.BACKUP.BUSY"
	codeBackupLate = "E.BACKUP.TIMEOUT"

	codeCertificate = "E.AUTH.MTLS_REQUIRED"
	codeForbidden   = "E.AUTH.FORBIDDEN"
	codeOpen        = "E.AUTH.OPEN"
	codeAuthLimit   = "E.AUTH.LIMIT"
	codeNoToken     = "E.AUTH.NOT_FOUND"
)

// Codes of what is more than a tenant or a credential may use (X5): nothing was changed, and a repeat helps after the wait that is told.
const (
	codeQuotaCalls    = "E.QUOTA.CALLS"
	codeQuotaSubmits  = "E.QUOTA.SUBMITS"
	codeQuotaFrames   = "E.QUOTA.FRAMES"
	codeQuotaSessions = "E.QUOTA.SESSIONS"
	codeQuotaStreams  = "E.QUOTA.STREAMS"
	codeQuotaWatches  = "E.QUOTA.WATCHES"
	codeQuotaTasks    = "E.QUOTA.TASKS"
	codeQuotaAttempts = "E.QUOTA.ATTEMPTS"
)

var quotaCodes = [...]string{
	quota.Calls: codeQuotaCalls, quota.Submits: codeQuotaSubmits, quota.Frames: codeQuotaFrames, quota.Sessions: codeQuotaSessions,
	quota.Streams: codeQuotaStreams, quota.Watches: codeQuotaWatches, quota.Tasks: codeQuotaTasks,
}

// Waits that help, told with RetryInfo.
const (
	retryStopped    = time.Second
	retryOverloaded = 200 * time.Millisecond
	retryDiskFull   = 5 * time.Second
	retryBackup     = 10 * time.Second
)

// Refusals of calls on what does not exist.
var (
	errNoQueue   = errors.New("no such queue")
	errNoWorker  = errors.New("no session of such a worker is open")
	errNoSession = errors.New("the worker has no such session open")
	errOpen      = errors.New("the coordinator asks for no credentials; start it with --auth")
)

// toStatus is the one switch from an error of the engine or a parser to a gRPC status (S4). An error that is a status already stays
// as it is; nil stays nil.
func toStatus(err error) error {
	var (
		field  *lease.FieldError
		state  *lease.StateError
		exists *lease.ExistsError
		over   *quota.Error
		failed *store.CommitError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &over):
		return newStatus(codes.ResourceExhausted, quotaCodes[over.Limit], over.Error(),
			map[string]string{"limit": over.Limit.String(), "of": over.Of, "value": over.Most}, retryIn(over.Wait))
	case isOfAuth(err):
		return authStatus(err)
	case errors.As(err, &field):
		return newStatus(codes.InvalidArgument, codeInvalid, field.Error(), nil, violation(field.Field, field.Problem))
	case errors.Is(err, lease.ErrNotFound):
		return newStatus(codes.NotFound, codeNotFound, err.Error(), nil)
	case errors.Is(err, errNoQueue):
		return newStatus(codes.NotFound, codeNoQueue, err.Error(), nil)
	case errors.Is(err, errNoWorker), errors.Is(err, errNoSession):
		return newStatus(codes.NotFound, codeNoWorker, err.Error(), nil)
	case errors.As(err, &state):
		return newStatus(codes.FailedPrecondition, codeState, state.Error(),
			map[string]string{"task_id": state.Task.String(), "state": state.State.String()})
	case errors.As(err, &exists):
		return newStatus(codes.AlreadyExists, codeExists, exists.Error(), existing(exists))
	case errors.Is(err, engine.ErrStopped):
		return newStatus(codes.Unavailable, codeStopping, err.Error(), nil, retryIn(retryStopped))
	case errors.Is(err, engine.ErrOverloaded):
		return newStatus(codes.ResourceExhausted, codeOverloaded, err.Error(), nil, retryIn(retryOverloaded))
	case errors.Is(err, engine.ErrDiskFull):
		return newStatus(codes.ResourceExhausted, codeDiskFull, err.Error(), nil, retryIn(retryDiskFull))
	case errors.Is(err, engine.ErrStore), errors.As(err, &failed): // by a read, after somebody's commit failed; the cause is for the operator's log
		return newStatus(codes.Unavailable, codeStore, engine.ErrStore.Error(), nil, retryIn(retryStopped))
	case errors.Is(err, errBackupBusy):
		return newStatus(codes.ResourceExhausted, codeBackupBusy, err.Error(), nil, retryIn(retryBackup))
	case errors.Is(err, errBackupLate), errors.Is(err, errBackupStall):
		return newStatus(codes.Aborted, codeBackupLate, err.Error(), nil)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return newStatus(codes.Internal, codeInternal, "internal error", nil)
}

// isOfAuth reports whether err is one that authStatus knows.
func isOfAuth(err error) bool {
	var (
		bad   *auth.Error
		role  *roleError
		limit *auth.LimitError
	)
	return errors.As(err, &bad) || errors.As(err, &role) || errors.As(err, &limit) || errors.Is(err, errNoCertificate) ||
		errors.Is(err, errOwner) || errors.Is(err, errOpen) || errors.Is(err, auth.ErrNotFound)
}

// authStatus is toStatus for what is about credentials.
func authStatus(err error) error {
	var (
		bad   *auth.Error
		role  *roleError
		limit *auth.LimitError
	)
	switch {
	case errors.As(err, &bad):
		return newStatus(codes.Unauthenticated, codeToken, bad.Error(), map[string]string{"problem": string(bad.Problem)})
	case errors.As(err, &role):
		return newStatus(codes.PermissionDenied, codeForbidden, role.Error(), map[string]string{"role": role.has.String()})
	case errors.Is(err, errOwner):
		return newStatus(codes.PermissionDenied, codeForbidden, err.Error(), nil)
	case errors.As(err, &limit):
		return newStatus(codes.ResourceExhausted, codeAuthLimit, limit.Error(), nil)
	case errors.Is(err, errNoCertificate):
		return newStatus(codes.Unauthenticated, codeCertificate, err.Error(), nil)
	case errors.Is(err, auth.ErrNotFound):
		return newStatus(codes.NotFound, codeNoToken, err.Error(), nil)
	}
	return newStatus(codes.FailedPrecondition, codeOpen, err.Error(), nil)
}

// existing names the field, and the task that its value stands for, if there is one.
func existing(err *lease.ExistsError) map[string]string {
	metadata := map[string]string{"field": err.Field}
	if err.Task != (lease.TaskID{}) {
		metadata["task_id"] = err.Task.String()
	}
	return metadata
}

func newStatus(c codes.Code, code, message string, metadata map[string]string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{
		Reason: strings.ReplaceAll(strings.TrimPrefix(code, "E."), ".", "_"), Domain: errorDomain,
		Metadata: map[string]string{"code": code},
	}
	for k, v := range metadata {
		info.Metadata[k] = v
	}
	st := status.New(c, strings.ToValidUTF8(message, "\uFFFD"))
	detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...)
	if err != nil { // only for an OK status
		return st.Err()
	}
	return detailed.Err()
}

func violation(field, problem string) *errdetails.BadRequest {
	return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: problem}}}
}

func retryIn(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// errorCode is the code of an error that toStatus made, for the log; empty for any other.
func errorCode(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == errorDomain {
			return info.Metadata["code"]
		}
	}
	return ""
}
