package refusal

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// S4: every error has a gRPC code, a reason, a code in its metadata, and RetryInfo if waiting helps.
func TestErrorsBecomeStatuses(t *testing.T) {
	t.Attr("rules", "S4")
	id := lease.TaskID{Space: 1, Seq: 7}
	for _, tt := range []struct {
		err    error
		code   codes.Code
		reason string
		meta   map[string]string
		field  string
		retry  bool
	}{
		{
			err: &lease.FieldError{Field: "task.queue", Problem: "must not be empty"}, code: codes.InvalidArgument,
			reason: "REQUEST_INVALID", meta: map[string]string{"code": "E.REQUEST.INVALID"}, field: "task.queue",
		},
		{err: lease.ErrNotFound, code: codes.NotFound, reason: "TASK_NOT_FOUND", meta: map[string]string{"code": "E.TASK.NOT_FOUND"}},
		{
			err: &lease.StateError{Task: id, State: lease.Running, Why: "use force"}, code: codes.FailedPrecondition,
			reason: "TASK_STATE", meta: map[string]string{"code": "E.TASK.STATE", "state": "RUNNING", "task_id": id.String()},
		},
		{
			err: &lease.ExistsError{Field: "task.idempotency_key", Key: "k", Task: id}, code: codes.AlreadyExists,
			reason: "TASK_EXISTS", meta: map[string]string{"field": "task.idempotency_key", "task_id": id.String()},
		},
		{
			err: &lease.ExistsError{Field: "tasks[1].idempotency_key", Key: "k"}, code: codes.AlreadyExists,
			reason: "TASK_EXISTS", meta: map[string]string{"field": "tasks[1].idempotency_key", "task_id": ""},
		},
		{err: engine.ErrStopped, code: codes.Unavailable, reason: "COORDINATOR_STOPPING", retry: true},
		{err: engine.ErrOverloaded, code: codes.ResourceExhausted, reason: "COORDINATOR_OVERLOADED", retry: true},
		{err: engine.ErrDiskFull, code: codes.ResourceExhausted, reason: "STORE_DISK_FULL", retry: true},
		{err: fmt.Errorf("%w: disk on fire", engine.ErrStore), code: codes.Unavailable, reason: "STORE_FAILED", retry: true},
		{err: &store.CommitError{Err: errors.New("disk on fire")}, code: codes.Unavailable, reason: "STORE_FAILED", retry: true},
		{err: errors.New("what?"), code: codes.Internal, reason: "INTERNAL"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			st := status.Convert(Status(tt.err))
			if st.Code() != tt.code {
				t.Errorf("code is %v, want %v", st.Code(), tt.code)
			}
			info := found[*errdetails.ErrorInfo](st)
			if info.GetReason() != tt.reason || info.GetDomain() != "lessor" {
				t.Errorf("ErrorInfo is %v, want reason %s of domain lessor", info, tt.reason)
			}
			for k, v := range tt.meta {
				if info.GetMetadata()[k] != v {
					t.Errorf("metadata[%q] is %q, want %q", k, info.GetMetadata()[k], v)
				}
			}
			if v := found[*errdetails.BadRequest](st).GetFieldViolations(); tt.field != "" && (len(v) != 1 || v[0].GetField() != tt.field) {
				t.Errorf("violations are %v, want one of %s", v, tt.field)
			}
			if got := found[*errdetails.RetryInfo](st) != nil; got != tt.retry {
				t.Errorf("RetryInfo present: %v, want %v", got, tt.retry)
			}
		})
	}
}

// found returns the status detail of type T, or nil if there is none.
func found[T any](st *status.Status) (none T) {
	for _, d := range st.Details() {
		if d, ok := d.(T); ok {
			return d
		}
	}
	return none
}

// The message of an internal error does not contain its cause.
func TestInternalCausesStayInside(t *testing.T) {
	for _, err := range []error{fmt.Errorf("%w: /var/lib/secret", engine.ErrStore), &store.CommitError{Err: errors.New("/var/lib/secret")}, errors.New("/var/lib/secret")} {
		if msg := status.Convert(Status(err)).Message(); msg != "the store failed" && msg != "internal error" {
			t.Errorf("the message is %q, want one without the cause", msg)
		}
	}
}

// Status keeps nil and statuses as they are, and gives the errors of ended contexts their own codes.
func TestStatusesAndEndedContextsPass(t *testing.T) {
	if Status(nil) != nil {
		t.Error("Status(nil) is an error, want nil")
	}
	if got := status.Code(Status(context.Canceled)); got != codes.Canceled {
		t.Errorf("context.Canceled becomes %v, want CANCELLED", got)
	}
	if got := status.Code(Status(context.DeadlineExceeded)); got != codes.DeadlineExceeded {
		t.Errorf("context.DeadlineExceeded becomes %v, want DEADLINE_EXCEEDED", got)
	}
	if got := status.Code(Status(status.Error(codes.DataLoss, "x"))); got != codes.DataLoss {
		t.Errorf("a status with DATA_LOSS becomes %v", got)
	}
}
