package httpapi

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// verdict has the methods that the responses to all reports, Start and Heartbeat included, share.
type verdict interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetDetail() string
	GetTaskState() lessorv1.TaskState
	GetCurrentAttempt() uint32
	GetServerTime() *timestamppb.Timestamp
}

// committed holds the first fields of the body of every 200 answer to a callback.
type committed struct {
	Acknowledged bool    `json:"acknowledged"`
	Verdict      string  `json:"verdict"`
	Reason       string  `json:"reason"`
	TaskState    string  `json:"taskState"`
	ServerTime   instant `json:"serverTime"`
}

func committedOf(v verdict) committed {
	return committed{
		Acknowledged: true,
		Verdict:      verdictName(v),
		Reason:       reasonName(v),
		TaskState:    stateName(v.GetTaskState()),
		ServerTime:   instantOf(v.GetServerTime()),
	}
}

// renewal has the further methods that the responses to Start and Heartbeat share.
type renewal interface {
	verdict
	GetShouldCancel() bool
	GetCancelReason() string
	GetExpiresAt() *timestamppb.Timestamp
	GetExpiresIn() *durationpb.Duration
	GetCancelGraceLeft() *durationpb.Duration
	GetTaskToken() string
	GetTokenExpiresAt() *timestamppb.Timestamp
}

// alive is the body of the 200 answer to a Start or Heartbeat.
type alive struct {
	committed
	ShouldCancel      bool    `json:"shouldCancel"`
	CancelReason      string  `json:"cancelReason,omitempty"`
	CancelGraceLeftMs *millis `json:"cancelGraceLeftMs,omitempty"` // may be 0
	ExpiresAt         instant `json:"expiresAt"`
	ExpiresInMs       millis  `json:"expiresInMs"`
	TaskToken         string  `json:"taskToken"`
	TokenExpiresAt    instant `json:"tokenExpiresAt"`
}

func aliveOf(v renewal) alive {
	a := alive{
		committed:      committedOf(v),
		ShouldCancel:   v.GetShouldCancel(),
		CancelReason:   v.GetCancelReason(),
		ExpiresAt:      instantOf(v.GetExpiresAt()),
		ExpiresInMs:    millisOf(v.GetExpiresIn()),
		TaskToken:      v.GetTaskToken(),
		TokenExpiresAt: instantOf(v.GetTokenExpiresAt()),
	}
	if left := v.GetCancelGraceLeft(); left != nil {
		a.CancelGraceLeftMs = new(millisOf(left))
	}
	return a
}

// refused returns the answer to a report that is not COMMITTED, by the table of H2, and nil for one
// that is.
func refused(v verdict, attempt uint32) *problem {
	if v.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
		return nil
	}
	p := newProblem(kindOf(v.GetReason()), "", v.GetDetail())
	p.logged = true
	p.judged(verdictName(v), reasonName(v))
	p.body.TaskState, p.body.ServerTime = stateName(v.GetTaskState()), instantOf(v.GetServerTime())
	if c, ok := v.(interface{ GetCancelReason() string }); ok {
		p.body.CancelReason = c.GetCancelReason()
	}
	switch p.body.Error {
	case kindTerminal.word:
		p.body.State = contractState(v.GetTaskState())
	case kindMismatch.word:
		p.body.ExpectedAttempt, p.body.ReceivedAttempt = v.GetCurrentAttempt(), attempt
	case kindInvalid.word, kindTooLarge.word:
		p.named()
	}
	return p
}

// Kinds of verdicts that are not COMMITTED.
var (
	kindTerminal = kind{http.StatusConflict, "task_already_terminal"}
	kindMismatch = kind{http.StatusConflict, "attempt_mismatch"}
	kindExpired  = kind{http.StatusGone, "task_expired"}
)

// kindOf implements the table of H2.
func kindOf(reason lessorv1.Reason) kind {
	switch reason {
	case lessorv1.Reason_REASON_TASK_CANCELLED, lessorv1.Reason_REASON_ALREADY_REPORTED,
		lessorv1.Reason_REASON_DUPLICATE_REPORT:
		return kindTerminal
	case lessorv1.Reason_REASON_SUPERSEDED:
		return kindMismatch
	case lessorv1.Reason_REASON_RESULT_TOO_LARGE:
		return kindTooLarge
	case lessorv1.Reason_REASON_INVALID_REQUEST, lessorv1.Reason_REASON_UNKNOWN_TASK,
		lessorv1.Reason_REASON_INVALID_LEASE:
		return kindInvalid
	}
	return kindExpired
}

// verdictCodes are the codes of verdicts that are errors of the worker, by reason.
var verdictCodes = map[string]string{
	"INVALID_REQUEST":  codeInvalid,
	"UNKNOWN_TASK":     codeInvalid,
	"INVALID_LEASE":    codeInvalid,
	"RESULT_TOO_LARGE": codeTooLarge,
	"DUPLICATE_REPORT": codeDuplicate,
}

// judged sets the verdict of a problem.
func (p *problem) judged(verdict, reason string) {
	p.body.Verdict, p.body.Reason = &verdict, reason
	p.body.Code = verdictCodes[reason]
}

// named takes the field name from the beginning of the detail, and converts it to the name in this
// API.
func (p *problem) named() {
	field, rest, ok := strings.Cut(p.body.Message, ": ")
	if ok && !strings.Contains(field, " ") {
		p.violated(field, rest)
	}
}

// rejected turns a problem into the verdict REJECTED on a malformed report (V1). A body that did
// not arrive completely is not a report.
func rejected(p *problem, said lease.Kind) *problem {
	if p.status != kindInvalid.status || p == errBroken {
		return p
	}
	judged := *p // a copy, because some problems are shared
	judged.judged("REJECTED", "INVALID_REQUEST")
	judged.said = said
	return &judged
}

// wrong returns what is wrong with a report: an error about one field, or about the whole body.
func (p *problem) wrong() *lease.FieldError {
	if p.body.Field == "" {
		return &lease.FieldError{Field: "body", Problem: strings.TrimPrefix(p.body.Message, "the body ")}
	}
	return &lease.FieldError{Field: p.body.Field, Problem: strings.TrimPrefix(p.body.Message, p.body.Field+": ")}
}

func verdictName(v verdict) string { return enum(v.GetVerdict(), "VERDICT_") }
func reasonName(v verdict) string  { return enum(v.GetReason(), "REASON_") }

func stateName(s lessorv1.TaskState) string { return enum(s, "TASK_STATE_") }

// contractState returns a state in the words of the worker contract, which says SUCCEEDED for
// COMPLETED.
func contractState(s lessorv1.TaskState) string {
	if s == lessorv1.TaskState_TASK_STATE_COMPLETED {
		return outcomeSucceeded
	}
	return stateName(s)
}
