package words

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// States returns the states that a task can have, in the order of a life.
func States() []lessorv1.TaskState { return valuesOf[lessorv1.TaskState](lessorv1.TaskState_name) }

// valuesOf returns the values of an enum that say something, in the order of their numbers.
func valuesOf[E ~int32](names map[int32]string) (all []E) {
	for number := range names {
		if number != 0 {
			all = append(all, E(number))
		}
	}
	slices.Sort(all)
	return all
}

// numberOf returns the number of the value of an enum that has a name, with or without the prefix
// of the enum and in any case; 0 if there is none.
func numberOf(values map[string]int32, prefix, name string) int32 {
	return values[prefix+strings.TrimPrefix(strings.ToUpper(name), prefix)]
}

// StateNamed returns the state with a name that Name returns, or with its name in the protos, in
// any case; ok is false if there is none.
func StateNamed(name string) (s lessorv1.TaskState, ok bool) {
	s = lessorv1.TaskState(numberOf(lessorv1.TaskState_value, "TASK_STATE_", name))
	return s, s != 0
}

// StateNames returns the names of the states, in the order of a life.
func StateNames() (names []string) {
	for _, state := range States() {
		names = append(names, Name(state))
	}
	return names
}

// endReasons are the reasons for which a task can end without an outcome: those of
// lease.Reason.EndsTasks, the likeliest first.
var endReasons = []lessorv1.Reason{
	lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT, lessorv1.Reason_REASON_START_TIMEOUT,
	lessorv1.Reason_REASON_DEADLINE_EXCEEDED,
	lessorv1.Reason_REASON_DISPATCH_UNAVAILABLE, lessorv1.Reason_REASON_RESOURCE_GONE,
	lessorv1.Reason_REASON_CANCEL_TIMEOUT,
	lessorv1.Reason_REASON_TASK_CANCELLED,
}

// EndReasonNamed is StateNamed for the reasons of EndReasonNames.
func EndReasonNamed(name string) (r lessorv1.Reason, ok bool) {
	r = lessorv1.Reason(numberOf(lessorv1.Reason_value, "REASON_", name))
	return r, slices.Contains(endReasons, r)
}

// EndReasonNames returns the names of the reasons for which a task can end without an outcome.
func EndReasonNames() (names []string) {
	for _, reason := range endReasons {
		names = append(names, Name(reason))
	}
	return names
}

// CategoryNamed is StateNamed for the categories of errors.
func CategoryNamed(name string) (c lessorv1.ErrorCategory, ok bool) {
	c = lessorv1.ErrorCategory(numberOf(lessorv1.ErrorCategory_value, "ERROR_CATEGORY_", name))
	return c, c != 0
}

// AffinityModeNamed is StateNamed for the modes of an affinity.
func AffinityModeNamed(name string) (m lessorv1.AffinityMode, ok bool) {
	m = lessorv1.AffinityMode(numberOf(lessorv1.AffinityMode_value, "AFFINITY_MODE_", name))
	return m, m != 0
}

// CategoryNames returns the names of the categories of errors.
func CategoryNames() (names []string) {
	for _, c := range valuesOf[lessorv1.ErrorCategory](lessorv1.ErrorCategory_name) {
		names = append(names, Name(c))
	}
	return names
}

// Final reports whether a state is final: COMPLETED, FAILED or CANCELLED.
func Final(s lessorv1.TaskState) bool {
	switch s {
	case lessorv1.TaskState_TASK_STATE_COMPLETED, lessorv1.TaskState_TASK_STATE_FAILED,
		lessorv1.TaskState_TASK_STATE_CANCELLED:
		return true
	default:
		return false
	}
}

// Open returns the states of tasks that have not ended, in the order of a life: all that are not
// final.
func Open() []lessorv1.TaskState { return slices.DeleteFunc(States(), Final) }

// Held returns the states in which a task has a lease, in the order of a life.
func Held() []lessorv1.TaskState {
	return []lessorv1.TaskState{
		lessorv1.TaskState_TASK_STATE_LEASED, lessorv1.TaskState_TASK_STATE_RUNNING,
		lessorv1.TaskState_TASK_STATE_CANCELLING,
	}
}

// Attempts says how often a task was tried, and how much of its budgets is used.
func Attempts(t *lessorv1.Task) string {
	policy := t.GetSpec().GetRetryPolicy()
	return fmt.Sprintf("%d in round %d; failures %d of %d, losses %d of %d",
		t.GetAttempt(), t.GetRound(), t.GetFailures(), policy.GetMaxAttempts(), t.GetLosses(), policy.GetMaxLosses())
}

// Error says in one line why a task has not succeeded, beginning with the category of an error. If
// it ended for a reason of its own, the error of its last failed attempt is an older matter.
func Error(t *lessorv1.Task) string {
	var text string
	if e := t.GetError(); e != nil {
		text = strings.TrimSuffix(Name(e.GetCategory())+": "+ErrorMessage(t), ": ")
	}
	switch {
	case t.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED:
		text = ""
	case t.GetReason() != lessorv1.Reason_REASON_UNSPECIFIED:
		text = Name(t.GetReason())
		switch {
		case t.GetCancelReason() != "":
			text += ": " + t.GetCancelReason()
		case attemptTimedOut(t):
			text += ": " + t.GetError().GetMessage()
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// attemptTimedOut reports whether a task has failed because its last attempt took too long, and not
// because its deadline passed: the reason is the same.
func attemptTimedOut(t *lessorv1.Task) bool {
	return t.GetReason() == lessorv1.Reason_REASON_DEADLINE_EXCEEDED && t.GetError() != nil &&
		(t.GetSpec().GetDeadline() == nil || t.GetFinishedAt().AsTime().Before(t.GetSpec().GetDeadline().AsTime()))
}

// FailedByError reports whether the error of the last failed attempt is why the task has failed. An
// attempt that took too long has an error, and the task a reason as well.
func FailedByError(t *lessorv1.Task) bool {
	return t.GetState() == lessorv1.TaskState_TASK_STATE_FAILED &&
		(t.GetReason() == lessorv1.Reason_REASON_UNSPECIFIED || attemptTimedOut(t))
}

// ErrorMessage returns the message of the error of the last failed attempt. If the task has failed
// by the report of a cancel, nobody had cancelled it, or it would be CANCELLED: the message, which
// is that of the worker, may claim otherwise.
func ErrorMessage(t *lessorv1.Task) string {
	text := t.GetError().GetMessage()
	if FailedByError(t) && t.GetError().GetCategory() == lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED {
		text = strings.TrimSuffix("its worker reported a cancel that nobody had asked for: "+text, ": ")
	}
	return text
}

// ErrorLabel names the error of the last failed attempt, which is that of the task only if the task
// has failed by it.
func ErrorLabel(t *lessorv1.Task) string {
	if FailedByError(t) {
		return "error"
	}
	return "last error"
}

// OfAttempt says of which attempt the progress and the output of a task are, if that could be
// mistaken: "" if it holds the lease, or was the last one of a task that has ended.
func OfAttempt(t *lessorv1.Task) string {
	reported := t.GetProgress().GetAttempt()
	switch {
	case reported == 0, t.GetLease() != nil && reported == t.GetLease().GetAttempt(),
		Final(t.GetState()) && reported == t.GetAttempt():
		return ""
	}
	return fmt.Sprintf("of attempt %d", reported)
}

// tenths is the fraction below which a percentage has a decimal: the progress of a long task is
// seen to move.
const tenths = 0.1

// Percent returns a fraction from 0 to 1 as a percentage, which is 100 only of all: who sees it
// takes the work for done.
func Percent(fraction float64) string {
	switch {
	case fraction > 0 && fraction < tenths:
		return fmt.Sprintf("%.1f %%", fraction*100)
	case fraction > 0.99 && fraction < 1:
		return "99 %"
	}
	return fmt.Sprintf("%.0f %%", fraction*100)
}

// Number returns the value of a gauge with all its digits, which an exponent shortens only where
// they are very many.
func Number(value float64) string {
	format := byte('f')
	if size := math.Abs(value); size != 0 && size < 1e-6 || size >= 1e21 {
		format = 'g'
	}
	return strconv.FormatFloat(value, format, -1, 64)
}

// Artifact says what a result is and where it lies.
func Artifact(a *lessorv1.Artifact) string {
	text := fmt.Sprintf("%s, %s", a.GetResourceId(), Bytes(uint64(a.GetSizeBytes())))
	if a.GetWorkerId() != "" {
		text += ", at worker " + a.GetWorkerId()
	}
	if path := a.GetMetadata()["path"]; path != "" {
		text += ", " + path
	}
	return text
}

// Event returns the name of an event; for a refusal also the kind of the refused report.
func Event(e *lessorv1.HistoryEvent) string {
	name := Name(e.GetType())
	if e.GetRefusedKind() != lessorv1.RefusedKind_REFUSED_KIND_UNSPECIFIED {
		name += " " + Name(e.GetRefusedKind())
	}
	return name
}

// Why returns the reason and the detail of an event, if it has them.
func Why(e *lessorv1.HistoryEvent) string {
	var parts []string
	if v := e.GetRefusedVerdict(); v != lessorv1.Verdict_VERDICT_UNSPECIFIED {
		parts = append(parts, Name(v))
	}
	if r := e.GetReason(); r != lessorv1.Reason_REASON_UNSPECIFIED && r != lessorv1.Reason_REASON_NONE {
		parts = append(parts, Name(r))
	}
	// The detail of a grant is the id of the session, of which people have no use.
	if d := e.GetDetail(); d != "" && e.GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED {
		parts = append(parts, d)
	}
	return strings.Join(parts, ": ")
}
