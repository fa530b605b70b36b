package httpapi

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/httpstatus"
	"github.com/lessor-dev/lessor/lease"
)

// Error codes of the API itself. Codes of the calls are passed on unchanged. docs/errors.md has the
// table.
const (
	codeInvalid   = "E.REQUEST.INVALID"
	codeTooLarge  = "E.REQUEST.TOO_LARGE"
	codeNoRoute   = "E.REQUEST.NO_ROUTE"
	codeForbidden = "E.AUTH.FORBIDDEN"
	codeDuplicate = "E.RESULT.DUPLICATE"
	codeTimeout   = "E.TIMEOUT"
	codeInternal  = "E.INTERNAL"

	codesOfQuotas = "E.QUOTA."
)

// problem is an error answer.
type problem struct {
	status int
	body   problemBody
	logged bool // the failed call has logged the problem already
	atDoor bool // the caller was not admitted

	said lease.Kind // the kind of the report, if it is REJECTED for its form; else 0
}

// problemBody is the body of every error answer. Verdict is null if nothing was decided about the
// report.
type problemBody struct {
	Error           string  `json:"error"`
	Code            string  `json:"code,omitempty"`
	Message         string  `json:"message"`
	Field           string  `json:"field,omitempty"`
	Verdict         *string `json:"verdict"`
	Reason          string  `json:"reason"`
	State           string  `json:"state,omitempty"`
	TaskState       string  `json:"taskState,omitempty"`
	CancelReason    string  `json:"cancelReason,omitempty"`
	ExpectedAttempt uint32  `json:"expectedAttempt,omitempty"`
	ReceivedAttempt uint32  `json:"receivedAttempt,omitempty"`
	RetryAfterMs    int64   `json:"retryAfterMs,omitempty"`
	// TaskID is, in a conflict, the task that has the idempotency key, or the wrong state.
	TaskID     string  `json:"taskId,omitempty"`
	ServerTime instant `json:"serverTime,omitzero"`
}

// kind is one kind of problem: its HTTP status and its name for programs.
type kind struct {
	status int
	word   string
}

// Kinds of problems that are no verdict.
var (
	kindInvalid     = kind{http.StatusBadRequest, "invalid_request"}
	kindUnknown     = kind{http.StatusUnauthorized, "unauthorized"}
	kindForbidden   = kind{http.StatusForbidden, "forbidden"}
	kindNotFound    = kind{http.StatusNotFound, "not_found"}
	kindNoMethod    = kind{http.StatusMethodNotAllowed, "method_not_allowed"}
	kindTimeout     = kind{http.StatusRequestTimeout, "request_timeout"}
	kindConflict    = kind{http.StatusConflict, "conflict"}
	kindTooMany     = kind{http.StatusTooManyRequests, "too_many_requests"}
	kindTooLarge    = kind{http.StatusRequestEntityTooLarge, "too_large"}
	kindUnavailable = kind{http.StatusServiceUnavailable, "unavailable"}
	kindInternal    = kind{http.StatusInternalServerError, "internal"}
)

// kinds are those of the errors of calls, by HTTP status.
var kinds = map[int]kind{
	kindInvalid.status:     kindInvalid,
	kindUnknown.status:     kindUnknown,
	kindForbidden.status:   kindForbidden,
	kindNotFound.status:    kindNotFound,
	kindConflict.status:    kindConflict,
	kindTooMany.status:     kindTooMany,
	kindUnavailable.status: kindUnavailable,
	kindInternal.status:    kindInternal,
}

// Problems without a field.
var (
	errNoRoute     = newProblem(kindNotFound, codeNoRoute, "there is no such route; /openapi.json lists all routes")
	errNoMethod    = newProblem(kindNoMethod, codeNoRoute, "the route does not support this method")
	errCrossOrigin = newProblem(kindForbidden, codeForbidden, "requests from web pages of another origin are refused")
	errOtherHost   = newProblem(kindForbidden, codeForbidden,
		"the Host header names another machine; use 127.0.0.1 or localhost, or start the coordinator with --callback-url")
	errBroken    = newProblem(kindInvalid, codeInvalid, "the body cannot be read")
	errSlow      = newProblem(kindTimeout, codeTimeout, "the body did not arrive in time")
	errOtherTask = newProblem(kindForbidden, codeForbidden, "the task token is for another task")
)

func newProblem(k kind, code, message string) *problem {
	return &problem{status: k.status, body: problemBody{
		Error:   k.word,
		Code:    code,
		Message: message,
		Reason:  detail.Reason(code),
	}}
}

// invalid returns the problem of a request with an invalid field.
func invalid(field, format string, args ...any) *problem {
	p := newProblem(kindInvalid, codeInvalid, fmt.Sprintf(format, args...))
	if p.body.Field = field; field != "" {
		p.body.Message = field + ": " + p.body.Message
	}
	return p
}

// under returns the problem with a prefix before the path of its field.
func (p *problem) under(prefix string) *problem {
	moved := *p
	moved.body.Field, moved.body.Message = prefix+"."+p.body.Field, prefix+"."+p.body.Message
	return &moved
}

// freeForm matches the rest of a path below a field whose JSON is the caller's own.
var freeForm = regexp.MustCompile(`((?:^|\.)(?:payload|output|partialProgress|checkpoint|metadata|labels|resources|metrics))[.[].*`)

// withoutContent returns the message for the log: names within a payload or the like are content,
// which no log has (X4).
func (p *problem) withoutContent() string {
	rest, ok := strings.CutPrefix(p.body.Message, p.body.Field)
	if !ok {
		return p.body.Message
	}
	return freeForm.ReplaceAllString(p.body.Field, "$1") + rest
}

// failed converts the error status of a call to a problem. The reason, field and wait are in the
// details of the status (S4).
func failed(err error) *problem {
	st := status.Convert(err)
	p := newProblem(kinds[httpstatus.Of(st.Code())], codeInternal, st.Message())
	p.logged = true
	if info := detail.Of[*errdetails.ErrorInfo](st); info != nil {
		p.explained(info)
	}
	if path, what := detail.Field(st); path != "" {
		p.violated(path, what)
	}
	p.retryAfter(detail.Of[*errdetails.RetryInfo](st).GetRetryDelay())
	return p
}

// retryAfter sets the wait, rounded up, because a repeat that comes too early is refused.
func (p *problem) retryAfter(wait *durationpb.Duration) {
	p.body.RetryAfterMs = (wait.AsDuration() + time.Millisecond - 1).Milliseconds()
}

// explained adds the code of the status, and what it says for programs. The status becomes 503 if
// the coordinator itself lacks a resource, such as disk space. It stays 429 if the caller has used
// up its own limit.
func (p *problem) explained(info *errdetails.ErrorInfo) {
	about := info.GetMetadata()
	p.body.Code, p.body.Reason, p.body.TaskID, p.body.TaskState = about["code"], info.GetReason(),
		about["task_id"], about["state"]
	if p.status == kindTooMany.status &&
		(strings.HasPrefix(p.body.Code, "E.COORDINATOR.") || strings.HasPrefix(p.body.Code, "E.STORE.")) {
		p.status, p.body.Error = kindUnavailable.status, kindUnavailable.word
	}
}

// violated sets the field of the problem. It and other fields that the description mentions get the
// names that they have in the JSON request, and durations the unit.
func (p *problem) violated(field, description string) {
	p.body.Field = jsonPath(field)
	if strings.HasSuffix(p.body.Field, "Ms") {
		description = inMillis(description)
	}
	p.body.Message = p.body.Field + ": " + jsonNames(description)
}

// fromDoor returns the problem as that of a caller who was not admitted. No call has logged such a
// problem.
func (p *problem) fromDoor() *problem {
	told := *p // a copy, because some problems are shared
	told.logged, told.atDoor = false, true
	return &told
}

// level returns the level of the problem's log line. Problems that anybody can cause at any rate
// must not fill the log.
func (p *problem) level() slog.Level {
	switch {
	case p == errNoRoute, p == errNoMethod, p == errCrossOrigin, p == errOtherHost,
		strings.HasPrefix(p.body.Code, codesOfQuotas):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (p *problem) write(w http.ResponseWriter) {
	if p.body.RetryAfterMs > 0 { // rounded up to whole seconds, so that a client does not repeat too early
		wait := time.Duration(p.body.RetryAfterMs) * time.Millisecond
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, p.status, &p.body)
}
