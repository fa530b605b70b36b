package refusal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
)

// S4: every error has a gRPC code, a reason, a code in its metadata, and RetryInfo if waiting
// helps.
func TestErrorsBecomeStatuses(t *testing.T) {
	t.Attr("rules", "S4")
	id := lease.TaskID{Space: 1, Seq: 7}
	for _, tt := range []struct {
		err    error
		code   codes.Code
		reason string
		meta   map[string]string
		field  string
		retry  time.Duration
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
		{err: engine.ErrStopped, code: codes.Unavailable, reason: "COORDINATOR_STOPPING", retry: time.Second},
		{err: engine.ErrOverloaded, code: codes.ResourceExhausted, reason: "COORDINATOR_OVERLOADED", retry: 200 * time.Millisecond},
		{err: engine.ErrDiskFull, code: codes.ResourceExhausted, reason: "STORE_DISK_FULL", retry: 5 * time.Second},
		{err: fmt.Errorf("%w: disk on fire", engine.ErrStore), code: codes.Unavailable, reason: "STORE_FAILED", retry: time.Second},
		{err: &store.CommitError{Err: errors.New("disk on fire")}, code: codes.Unavailable, reason: "STORE_FAILED", retry: time.Second},
		{err: ErrNoBackup, code: codes.NotFound, reason: "BACKUP_NOT_FOUND"},
		{err: ErrBackupBusy, code: codes.ResourceExhausted, reason: "BACKUP_BUSY", retry: 10 * time.Second},
		{err: fmt.Errorf("follow: %w", standby.ErrBehind), code: codes.Aborted, reason: "STANDBY_BEHIND"},
		{err: standby.ErrNameTaken, code: codes.AlreadyExists, reason: "STANDBY_NAME_TAKEN"},
		{err: standby.ErrReplaced, code: codes.Aborted, reason: "STANDBY_REPLACED"},
		{err: errors.New("what?"), code: codes.Internal, reason: "INTERNAL"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			st := status.Convert(Status(tt.err))
			if st.Code() != tt.code {
				t.Errorf("code is %v, want %v", st.Code(), tt.code)
			}
			info := detail.Of[*errdetails.ErrorInfo](st)
			if info.GetReason() != tt.reason || info.GetDomain() != "lessor" {
				t.Errorf("ErrorInfo is %v, want reason %s of domain lessor", info, tt.reason)
			}
			for k, v := range tt.meta {
				if info.GetMetadata()[k] != v {
					t.Errorf("metadata[%q] is %q, want %q", k, info.GetMetadata()[k], v)
				}
			}
			if v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations(); tt.field != "" && (len(v) != 1 || v[0].GetField() != tt.field) {
				t.Errorf("violations are %v, want one of %s", v, tt.field)
			}
			if got := detail.Of[*errdetails.RetryInfo](st); got.GetRetryDelay().AsDuration() != tt.retry || (got != nil) != (tt.retry > 0) {
				t.Errorf("RetryInfo is %v, want %v", got, tt.retry)
			}
		})
	}
}

// S4: the error of one spec among others says the same as the status that SubmitTask would have:
// its code, its field if one is to blame, its wait if waiting helps, and what else programs learn.
func TestSubmitErrorIsThatOfTheCall(t *testing.T) {
	t.Attr("rules", "S4")
	for _, tt := range []struct {
		err   error
		code  string
		field string
		retry time.Duration
		meta  map[string]string
	}{
		{err: &lease.FieldError{Field: "tasks[1].queue", Problem: "must not be empty"}, code: CodeInvalid, field: "tasks[1].queue"},
		{err: &lease.ExistsError{Field: "tasks[1].idempotency_key", Key: "k"}, code: CodeExists, field: "tasks[1].idempotency_key"},
		{
			err:  &lease.ExistsError{Field: "idempotency_key", Key: "k", Task: lease.TaskID{Space: 1, Seq: 7}},
			code: CodeExists, field: "idempotency_key",
			meta: map[string]string{"task_id": lease.TaskID{Space: 1, Seq: 7}.String()},
		},
		{
			err:  &quota.Error{Limit: quota.Tasks, Of: "tenant", Most: "5", Wait: time.Second, Used: 4, Asked: 2},
			code: CodeQuotaTasks, retry: time.Second,
			meta: map[string]string{"limit": "tasks", "of": "tenant", "value": "5", "used": "4", "asked": "2"},
		},
		{err: engine.ErrDiskFull, code: CodeDiskFull, retry: 5 * time.Second},
		{err: errors.New("what?"), code: CodeInternal},
	} {
		m, st := SubmitError(tt.err), status.Convert(Status(tt.err))
		if codes.Code(m.GetStatus()) != st.Code() || m.GetMessage() != st.Message() {
			t.Errorf("%v: the status is %v %q, want %v", tt.err, codes.Code(m.GetStatus()), m.GetMessage(), st)
		}
		if m.GetCode() != tt.code || m.GetField() != tt.field {
			t.Errorf("%v: the code is %s with the field %q, want %s with %q",
				tt.err, m.GetCode(), m.GetField(), tt.code, tt.field)
		}
		if !maps.Equal(m.GetMetadata(), tt.meta) {
			t.Errorf("%v: the metadata is %v, want %v", tt.err, m.GetMetadata(), tt.meta)
		}
		if got := m.GetRetryAfter(); got.AsDuration() != tt.retry || (got != nil) != (tt.retry > 0) {
			t.Errorf("%v: the wait is %v, want %v", tt.err, got, tt.retry)
		}
	}
}

// W14: an item of a frame that got no verdict has the code and the wait of a call that fails so,
// and does not contain an internal cause.
func TestItemErrorsHaveTheirWaits(t *testing.T) {
	t.Attr("rules", "W14")
	for _, tt := range []struct {
		err     error
		code    string
		retry   time.Duration
		message string
	}{
		{engine.ErrStopped, CodeStopping, time.Second, engine.ErrStopped.Error()},
		{engine.ErrOverloaded, CodeOverloaded, 200 * time.Millisecond, engine.ErrOverloaded.Error()},
		{fmt.Errorf("%w: disk on fire", engine.ErrStore), CodeStore, time.Second, engine.ErrStore.Error()},
		{errors.New("disk on fire"), CodeInternal, 0, "internal error"},
	} {
		m := ItemError(tt.err)
		if m.GetCode() != tt.code || m.GetRetryAfter().AsDuration() != tt.retry || m.GetMessage() != tt.message {
			t.Errorf("%v: the item's error is %v, want %s after %v: %q", tt.err, m, tt.code, tt.retry, tt.message)
		}
	}
}

// X5: the error of a call that was cut off after it had changed tasks says how many, beside all
// that it says otherwise.
func TestErrorOfACallThatHasChangedTasks(t *testing.T) {
	plain, after := status.Convert(Status(engine.ErrStopped)), status.Convert(After(600, engine.ErrStopped))
	info := detail.Of[*errdetails.ErrorInfo](after)
	if info.GetMetadata()["changed"] != "600" || info.GetMetadata()["code"] != CodeStopping || info.GetReason() != "COORDINATOR_STOPPING" {
		t.Errorf("ErrorInfo is %v, want that of a coordinator that stops, and 600 changed", info)
	}
	if after.Code() != plain.Code() || after.Message() != plain.Message() || detail.Of[*errdetails.RetryInfo](after) == nil {
		t.Errorf("%v, want the same as without changes: %v", after, plain)
	}
	if err := After(600, context.Canceled); status.Code(err) != codes.Canceled { // the caller has left
		t.Errorf("%v, want CANCELLED", err)
	}
}

// CodeOf reads only our own codes, not those of another domain, for example of a proxy.
func TestCodesOfOthersAreNotRead(t *testing.T) {
	st, err := status.New(codes.Unavailable, "no backend").WithDetails(RetryIn(time.Second),
		&errdetails.ErrorInfo{Domain: "proxy", Metadata: map[string]string{"code": "E.INTERNAL"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := CodeOf(st.Err()); got != "" {
		t.Errorf("the code is %q, want none", got)
	}
}

// X5: a refusal for too many failed attempts is one by a quota, like those of all other limits; a
// full disk is not.
func TestQuotaCodes(t *testing.T) {
	t.Attr("rules", "X5")
	for code, want := range map[string]bool{CodeQuotaAttempts: true, CodeQuotaTasks: true, CodeQuotaCalls: true, CodeDiskFull: false, "": false} {
		if IsQuotaCode(code) != want {
			t.Errorf("%q is the code of a quota: %v, want %v", code, !want, want)
		}
	}
}

// A caller is told which role a call requires, or that no role may make it.
func TestRoleErrorsNameTheRole(t *testing.T) {
	for err, want := range map[*RoleError]string{
		{What: "Backup", Has: auth.Worker, Asks: auth.Operator}: "Backup requires the role operator; the credential has the role worker",
		{What: "Backup", Has: auth.Worker}:                      "Backup is not allowed for any role",
	} {
		if got := err.Error(); got != want {
			t.Errorf("the message is %q, want %q", got, want)
		}
	}
}

// The message of an internal error does not contain its cause.
func TestInternalCausesStayInside(t *testing.T) {
	for _, err := range []error{fmt.Errorf("%w: /var/lib/secret", engine.ErrStore), &store.CommitError{Err: errors.New("/var/lib/secret")}, errors.New("/var/lib/secret")} {
		if msg := status.Convert(Status(err)).Message(); msg != "the store failed" && msg != "internal error" {
			t.Errorf("the message is %q, want one without the cause", msg)
		}
	}
}

// Status keeps nil and statuses as they are, and gives the errors of ended contexts their own
// codes.
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
