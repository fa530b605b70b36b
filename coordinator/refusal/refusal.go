package refusal

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
)

// Waits after which a repeat may succeed, sent as RetryInfo.
const (
	retryStopped    = time.Second
	retryOverloaded = 200 * time.Millisecond
	retryDiskFull   = 5 * time.Second
	retryBackup     = 10 * time.Second
)

// Refusals that need no data beside their message.
var (
	ErrNoQueue   = errors.New("no such queue")
	ErrNoWorker  = errors.New("no worker of this name has an open session")
	ErrNoSession = errors.New("the worker has no open session with this id")
	// ErrNoneSelected refuses a call about the workers that a filter selects.
	ErrNoneSelected = errors.New("no open session of a worker matches the filter")
	ErrOpen         = errors.New("the coordinator runs without credentials; start it with --auth")

	// ErrNoCertificate refuses a caller without a client certificate.
	ErrNoCertificate = errors.New("a client certificate is required")

	ErrBackupBusy  = errors.New("another backup is under way")
	ErrNoBackup    = errors.New("the last backup is another one, or the coordinator was restarted since")
	ErrBackupLate  = errors.New("the backup took longer than serve --backup-timeout allows and was cut off; discard what was received")
	ErrBackupDisk  = errors.New("the disk of the coordinator is nearly full, and its store grows during a backup, which was cut off; discard what was received")
	ErrBackupStall = errors.New("the reader of the backup stalled for longer than serve --backup-stall allows, and the backup was cut off; discard what was received")

	ErrStandbyStall = errors.New("the standby read nothing for longer than serve --backup-stall allows, and was cut off")
)

// RoleError refuses a caller that has none of the roles that may make the call.
type RoleError struct {
	What string
	Has  auth.Role
	Asks auth.Role
}

func (e *RoleError) Error() string {
	if e.Asks == auth.Nobody {
		return e.What + " is not allowed for any role"
	}
	return fmt.Sprintf("%s requires the role %v; the credential has the role %v", e.What, e.Asks, e.Has)
}

// HostError refuses a call that is about all tenants to a caller that is not of the host tenant. It
// does not say which tenant that is (X2).
type HostError struct {
	What   string // the call, or the path of the page
	NoHost bool   // there is no host tenant
}

func (e *HostError) Error() string {
	about := e.What + " is about all tenants, so it is only for the host tenant"
	switch {
	case e.NoHost:
		return about + ", and there is none: the coordinator has to be started with --host-tenant and the name of a tenant"
	case e.What == "/metrics":
		return about + " (serve --host-tenant), and the credential is of another one; /metrics/queues has the queues of its tenant"
	}
	return about + " (serve --host-tenant), and the credential is of another one"
}

// AnsweredError ends a stream after the answers to all messages that were taken on it: one without
// an answer has had no effect.
type AnsweredError struct{ Cause *auth.Error }

func (e *AnsweredError) Error() string { return e.Cause.Error() }

func (e *AnsweredError) Unwrap() error { return e.Cause }

// Status converts an error of the engine, a parser or the gate to a gRPC status; no other place
// does (S4). An error that is a status already is returned as it is; nil stays nil.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if refused := authStatus(err); refused != nil {
		return refused
	}
	var (
		field  *lease.FieldError
		state  *lease.StateError
		exists *lease.ExistsError
		over   *quota.Error
		failed *store.CommitError
	)
	switch {
	case errors.As(err, &over):
		about := map[string]string{"limit": over.Limit.String(), "of": over.Of, "value": over.Most}
		if over.Limit == quota.Tasks {
			about["used"], about["asked"] = fmt.Sprint(over.Used), fmt.Sprint(over.Asked)
		}
		return New(codes.ResourceExhausted, quotaCodes[over.Limit], over.Error(), about, RetryIn(over.Wait))
	case errors.As(err, &field):
		return New(codes.InvalidArgument, CodeInvalid, field.Error(), nil, violation(field.Field, field.Problem))
	case errors.Is(err, lease.ErrNotFound):
		return New(codes.NotFound, CodeNotFound, err.Error(), nil)
	case errors.Is(err, ErrNoQueue):
		return New(codes.NotFound, CodeNoQueue, err.Error(), nil)
	case errors.Is(err, ErrNoWorker), errors.Is(err, ErrNoSession), errors.Is(err, ErrNoneSelected):
		return New(codes.NotFound, CodeNoWorker, err.Error(), nil)
	case errors.As(err, &state):
		return New(codes.FailedPrecondition, CodeState, state.Error(),
			map[string]string{"task_id": state.Task.String(), "state": state.State.String()})
	case errors.As(err, &exists):
		return New(codes.AlreadyExists, CodeExists, exists.Error(), existing(exists))
	case errors.Is(err, engine.ErrStopped):
		return New(codes.Unavailable, CodeStopping, err.Error(), nil, RetryIn(retryStopped))
	case errors.Is(err, engine.ErrOverloaded):
		return New(codes.ResourceExhausted, CodeOverloaded, err.Error(), nil, RetryIn(retryOverloaded))
	case errors.Is(err, engine.ErrStoreGone):
		return New(codes.Unavailable, CodeStoreGone, err.Error(), nil, RetryIn(retryDiskFull))
	case errors.Is(err, engine.ErrDiskFull):
		return New(codes.ResourceExhausted, CodeDiskFull, err.Error(), nil, RetryIn(retryDiskFull))
	case errors.Is(err, engine.ErrStore), errors.As(err, &failed):
		// CommitError: from a read after a commit has failed. The cause is only for the operator's
		// log
		return New(codes.Unavailable, CodeStore, engine.ErrStore.Error(), nil, RetryIn(retryStopped))
	case errors.Is(err, ErrBackupBusy):
		return New(codes.ResourceExhausted, CodeBackupBusy, err.Error(), nil, RetryIn(retryBackup))
	case errors.Is(err, ErrNoBackup):
		return New(codes.NotFound, CodeNoBackup, err.Error(), nil)
	case errors.Is(err, ErrBackupDisk):
		return New(codes.ResourceExhausted, CodeDiskFull, err.Error(), nil)
	case errors.Is(err, ErrBackupLate), errors.Is(err, ErrBackupStall):
		return New(codes.Aborted, CodeBackupLate, err.Error(), nil)
	case errors.Is(err, standby.ErrBehind), errors.Is(err, ErrStandbyStall):
		return New(codes.Aborted, CodeStandbyBehind, err.Error(), nil)
	case errors.Is(err, standby.ErrReplaced):
		return New(codes.Aborted, CodeStandbyReplaced, err.Error(), nil)
	case errors.Is(err, standby.ErrNameTaken):
		return New(codes.AlreadyExists, CodeStandbyName, err.Error(), nil)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return New(codes.Internal, CodeInternal, "internal error", nil)
}

// authStatus is Status for errors about credentials. It returns nil for any other error.
func authStatus(err error) error {
	var (
		bad   *auth.Error
		role  *RoleError
		host  *HostError
		limit *auth.LimitError
	)
	switch {
	case errors.As(err, &bad):
		said := map[string]string{"problem": string(bad.Problem)}
		if errors.As(err, new(*AnsweredError)) {
			said[detail.Unanswered] = detail.NotTaken
		}
		return New(codes.Unauthenticated, CodeToken, bad.Error(), said)
	case errors.As(err, &role):
		return New(codes.PermissionDenied, CodeForbidden, role.Error(), map[string]string{"role": role.Has.String()})
	case errors.As(err, &host):
		return New(codes.PermissionDenied, CodeForbidden, host.Error(),
			map[string]string{"host_tenant": hostWords[host.NoHost]})
	case errors.As(err, &limit):
		return New(codes.ResourceExhausted, CodeAuthLimit, limit.Error(), nil)
	case errors.Is(err, ErrNoCertificate):
		return New(codes.Unauthenticated, CodeCertificate, err.Error(), nil)
	case errors.Is(err, auth.ErrNotFound):
		return New(codes.NotFound, CodeNoToken, err.Error(), nil)
	case errors.Is(err, ErrOpen):
		return New(codes.FailedPrecondition, CodeOpen, err.Error(), nil)
	}
	return nil
}

// hostWords say in the metadata of a HostError which tenant is the host.
var hostWords = map[bool]string{true: "none", false: "another"}

// existing returns the field of the error and, if there is one, the task that has its value.
func existing(err *lease.ExistsError) map[string]string {
	metadata := map[string]string{"field": err.Field}
	if err.Task != (lease.TaskID{}) {
		metadata["task_id"] = err.Task.String()
	}
	return metadata
}

// New returns a status with an error code (see codes.go), metadata for programs, and further
// details.
func New(c codes.Code, code, message string, metadata map[string]string, more ...protoadapt.MessageV1) error {
	info := detail.ErrorInfo(code)
	maps.Copy(info.Metadata, metadata)
	st := status.New(c, strings.ToValidUTF8(message, "\uFFFD"))
	detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...)
	if err != nil { // only an OK status cannot have details
		return st.Err()
	}
	return detailed.Err()
}

// After is Status for a call that had changed so many tasks before err cut it off. It tells
// programs their number, as "changed": these changes stay.
func After(changed uint64, err error) error {
	st := status.Convert(Status(err)).Proto()
	for _, of := range st.GetDetails() {
		info := &errdetails.ErrorInfo{}
		if of.UnmarshalTo(info) != nil { // another detail
			continue
		}
		info.Metadata["changed"] = fmt.Sprint(changed)
		if err := of.MarshalFrom(info); err != nil { // a number breaks no message
			return Status(err)
		}
	}
	return status.FromProto(st).Err()
}

func violation(field, problem string) *errdetails.BadRequest {
	return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: problem}}}
}

// RetryIn returns the detail that tells the wait after which a repeat may succeed.
func RetryIn(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// CodeOf returns the code of an error that Status or New made, or "" for any other error.
func CodeOf(err error) string {
	info := detail.Of[*errdetails.ErrorInfo](status.Convert(err))
	if info.GetDomain() != detail.Domain {
		return ""
	}
	return info.GetMetadata()["code"]
}
