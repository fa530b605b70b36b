package words

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func TestNameOfAnEnumValue(t *testing.T) {
	for want, value := range map[string]protoreflect.Enum{
		"READY":            lessorv1.TaskState_TASK_STATE_READY,
		"LEASE_ENDED":      lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED,
		"NO_WORKER":        lessorv1.FindingCode_FINDING_CODE_NO_WORKER,
		"UNSPECIFIED":      lessorv1.Role_ROLE_UNSPECIFIED,
		"99":               lessorv1.Verdict(99),
		"COMMITTED":        lessorv1.Verdict_VERDICT_COMMITTED,
		"STICKY":           lessorv1.AffinityMode_AFFINITY_MODE_STICKY,
		"USER_CODE":        lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE,
		"DISPATCH_UNACKED": lessorv1.Reason_REASON_DISPATCH_UNACKED,
	} {
		if got := Name(value); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The age of the oldest READY task says where another one may be older.
func TestAgeOfTheOldestTask(t *testing.T) {
	age := durationpb.New(3 * time.Hour)
	for want, q := range map[string]*lessorv1.Queue{"": {OldestReadyAtLeast: true}, "3h": {OldestReady: age}, "≥3h": {OldestReady: age, OldestReadyAtLeast: true}} {
		if got := Oldest(q); got != want {
			t.Errorf("Oldest is %q, want %q", got, want)
		}
	}
}

// The value of an enum is found by its name in the protos, too, and in any case. What only has the
// prefix, or says nothing, is not found.
func TestValueOfAName(t *testing.T) {
	for name, want := range map[string]lessorv1.TaskState{
		"READY": lessorv1.TaskState_TASK_STATE_READY, "TASK_STATE_READY": lessorv1.TaskState_TASK_STATE_READY,
		"ready": lessorv1.TaskState_TASK_STATE_READY, "task_State_Ready": lessorv1.TaskState_TASK_STATE_READY,
		"": 0, "TASK_STATE_": 0, "UNSPECIFIED": 0, "TASK_STATE_UNSPECIFIED": 0, "TASK_STATE_TASK_STATE_READY": 0, "REASON_READY": 0,
	} {
		if got, ok := StateNamed(name); got != want || ok != (want != 0) {
			t.Errorf("the state %q is %v (%v), want %v", name, got, ok, want)
		}
	}
	for _, prefix := range []string{"", "REASON_"} {
		if got, ok := EndReasonNamed(prefix + "START_TIMEOUT"); got != lessorv1.Reason_REASON_START_TIMEOUT || !ok {
			t.Errorf("the reason %sSTART_TIMEOUT is %v (%v)", prefix, got, ok)
		}
		if got, ok := EndReasonNamed(prefix + "SUPERSEDED"); ok {
			t.Errorf("%v is no reason for which a task ends", got)
		}
	}
	for _, prefix := range []string{"", "ERROR_CATEGORY_"} {
		if got, ok := CategoryNamed(prefix + "TIMEOUT"); got != lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT || !ok {
			t.Errorf("the category %sTIMEOUT is %v (%v)", prefix, got, ok)
		}
	}
	for _, prefix := range []string{"", "AFFINITY_MODE_"} {
		if got, ok := AffinityModeNamed(prefix + "STICKY"); got != lessorv1.AffinityMode_AFFINITY_MODE_STICKY || !ok {
			t.Errorf("the mode %sSTICKY is %v (%v)", prefix, got, ok)
		}
	}
}

// A lease was not renewed since its grant, its start or the last heartbeat, whichever was the last.
// An acknowledgement renews nothing.
func TestTimeWithoutARenewal(t *testing.T) {
	at := func(seconds int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: seconds} }
	for want, story := range map[time.Duration]*lessorv1.LeaseStory{
		9 * time.Second: {GrantedAt: at(1), EndedAt: at(10)},
		8 * time.Second: {GrantedAt: at(2), AckedAt: at(5), EndedAt: at(10)},
		7 * time.Second: {GrantedAt: at(1), AckedAt: at(2), StartedAt: at(3), EndedAt: at(10)},
		4 * time.Second: {GrantedAt: at(1), AckedAt: at(2), StartedAt: at(3), HeartbeatAt: at(6), EndedAt: at(10)},
		5 * time.Second: {GrantedAt: at(1), AckedAt: at(2), StartedAt: at(5), HeartbeatAt: at(3), EndedAt: at(10)},
	} {
		if got := unrenewed(story); got != want {
			t.Errorf("%v: not renewed for %v, want %v", story, got, want)
		}
	}
}

// The error of a task in a list is that of its state. A task that ended at its attempt_timeout has
// the same reason as one whose deadline passed, and says which.
func TestErrorOfATaskInAListIsThatOfItsState(t *testing.T) {
	earlier := &lessorv1.TaskError{
		Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE,
		Message:  "encoder crashed\nat frame 7",
	}
	at := func(seconds int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: seconds} }
	late := func(deadline *timestamppb.Timestamp) *lessorv1.Task {
		return &lessorv1.Task{
			State: lessorv1.TaskState_TASK_STATE_FAILED, Reason: lessorv1.Reason_REASON_DEADLINE_EXCEEDED, FinishedAt: at(10),
			Error: &lessorv1.TaskError{Message: "attempt_timeout of 1s passed"}, Spec: &lessorv1.TaskSpec{Deadline: deadline},
		}
	}
	for want, tasks := range map[string][]*lessorv1.Task{
		"DEADLINE_EXCEEDED: attempt_timeout of 1s passed": {late(nil), late(at(11))}, "DEADLINE_EXCEEDED": {late(at(10)), late(at(9))},
	} {
		for _, task := range tasks {
			if got := Error(task); got != want {
				t.Errorf("%v: got %q, want %q", task, got, want)
			}
			if timedOut := want != "DEADLINE_EXCEEDED"; FailedByError(task) != timedOut {
				t.Errorf("%v: has failed by its error: %v", task, !timedOut)
			}
		}
	}
	stopped := &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED, Message: "stopped by a cancel"}
	for want, task := range map[string]*lessorv1.Task{
		"CANCELLED: its worker reported a cancel that nobody had asked for: stopped by a cancel": {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: stopped},
		"CANCELLED: its worker reported a cancel that nobody had asked for": {
			State: lessorv1.TaskState_TASK_STATE_FAILED, Error: &lessorv1.TaskError{Category: stopped.GetCategory()},
		},
		"TASK_CANCELLED":             {State: lessorv1.TaskState_TASK_STATE_CANCELLED, Reason: lessorv1.Reason_REASON_TASK_CANCELLED, Error: stopped},
		"":                           {State: lessorv1.TaskState_TASK_STATE_COMPLETED, Error: earlier},
		"USER_CODE: encoder crashed": {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: earlier},
		"DATA_QUALITY":               {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_DATA_QUALITY}},
		"HEARTBEAT_TIMEOUT":          {State: lessorv1.TaskState_TASK_STATE_FAILED, Error: earlier, Reason: lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT},
		"TASK_CANCELLED: wrong":      {State: lessorv1.TaskState_TASK_STATE_CANCELLED, Reason: lessorv1.Reason_REASON_TASK_CANCELLED, CancelReason: "wrong\ninput"},
	} {
		if got := Error(task); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A time limit is named if the coordinator knows which one it was.
func TestTimeLimitThatEndedALease(t *testing.T) {
	for want, detail := range map[string]string{
		"DEADLINE_EXCEEDED: attempt_timeout of 2s passed":           "attempt_timeout of 2s passed",
		"DEADLINE_EXCEEDED: attempt_timeout or the deadline passed": "",
	} {
		if got := Cause(&lessorv1.LeaseStory{Cause: lessorv1.Reason_REASON_DEADLINE_EXCEEDED, Detail: detail}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A lease that expired has the detail of the history as well: that the coordinator had stood still,
// for example.
func TestExpiredLeaseHasTheDetailOfTheHistory(t *testing.T) {
	at := func(seconds int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: seconds} }
	story := &lessorv1.LeaseStory{GrantedAt: at(1), EndedAt: at(10), Cause: lessorv1.Reason_REASON_LEASE_EXPIRED}
	for want, detail := range map[string]string{
		"LEASE_EXPIRED: its worker did not renew it for 9s":                          "",
		"LEASE_EXPIRED: its worker did not renew it for 9s: nothing after the grant": "nothing after the grant",
	} {
		story.Detail = detail
		if got := Cause(story); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Leases that a restored store ends have nothing to do with a flag of the coordinator.
func TestRecoveredLeaseNamesTheRestore(t *testing.T) {
	if got := Cause(&lessorv1.LeaseStory{Cause: lessorv1.Reason_REASON_COORDINATOR_RECOVERED}); !strings.Contains(got, "its store was restored") {
		t.Errorf("got %q, want that the store was restored", got)
	}
}

// An age has two units, so that 1m59s is not 1m, and is never more than the span.
func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 999 * time.Millisecond: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m",
		119*time.Second + 999*time.Millisecond: "1m59s", 2 * time.Minute: "2m", time.Hour - 1: "59m59s",
		time.Hour: "1h", time.Hour + 59*time.Second: "1h",
		2*time.Hour - 1: "1h59m", 48*time.Hour - 1: "47h59m", 48 * time.Hour: "2d", 72*time.Hour - 1: "2d23h",
		400 * 24 * time.Hour: "400d",
	} {
		if got := Age(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// The progress of a task that takes days is seen to move from its first hour on, and what is not
// done is never 100 %.
func TestPercent(t *testing.T) {
	for fraction, want := range map[float64]string{
		0: "0 %", 0.0002: "0.0 %", 0.004: "0.4 %", 0.0996: "10.0 %", 0.1: "10 %", 0.126: "13 %", 0.988: "99 %",
		0.996: "99 %", 1 - 1e-15: "99 %", 1: "100 %",
	} {
		if got := Percent(fraction); got != want {
			t.Errorf("%v: %q, want %q", fraction, got, want)
		}
	}
}

// While another attempt runs, or none, the last words of an attempt that is dead are not taken for
// those of the task.
func TestOfAttempt(t *testing.T) {
	held := func(attempt uint32) *lessorv1.LeaseInfo { return &lessorv1.LeaseInfo{Attempt: attempt} }
	by := func(attempt uint32) *lessorv1.Progress { return &lessorv1.Progress{Attempt: attempt} }
	const running, ready, failed = lessorv1.TaskState_TASK_STATE_RUNNING, lessorv1.TaskState_TASK_STATE_READY,
		lessorv1.TaskState_TASK_STATE_FAILED
	for name, c := range map[string]struct {
		task *lessorv1.Task
		want string
	}{
		"its own":                         {&lessorv1.Task{State: running, Attempt: 2, Lease: held(2), Progress: by(2)}, ""},
		"of the one before":               {&lessorv1.Task{State: running, Attempt: 2, Lease: held(2), Progress: by(1)}, "of attempt 1"},
		"nobody holds it":                 {&lessorv1.Task{State: ready, Attempt: 1, Progress: by(1)}, "of attempt 1"},
		"of the last one":                 {&lessorv1.Task{State: failed, Attempt: 3, Progress: by(3)}, ""},
		"of one before the last":          {&lessorv1.Task{State: failed, Attempt: 3, Progress: by(2)}, "of attempt 2"},
		"nothing was reported":            {&lessorv1.Task{State: ready, Attempt: 1}, ""},
		"the coordinator does not say it": {&lessorv1.Task{State: running, Attempt: 1, Lease: held(1), Progress: &lessorv1.Progress{Stage: "s"}}, ""},
	} {
		if got := OfAttempt(c.task); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A gauge is shown as it was reported: no digit is lost, and a person can read it.
func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 7: "7", 45000: "45000", 1 << 31: "2147483648", 1 << 53: "9007199254740992",
		-0.123456789: "-0.123456789", 97.25: "97.25",
		0.000001: "0.000001", 1e-7: "1e-07", 1e20: "100000000000000000000", -1e21: "-1e+21", math.Inf(1): "+Inf",
	} {
		if got := Number(value); got != want {
			t.Errorf("%g: %s, want %s", value, got, want)
		}
	}
}

// Two texts that look the same are not shown the same.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"mail": "mail", "": "", "日本 \U0001f469\u200d\U0001f680": "日本 \U0001f469\u200d\U0001f680",
		"ma\u200bil\ufeff": `ma\u200bil\ufeff`, "a\x1b[31m\x00\u0085": `a\x1b[31m\x00\u0085`, "\u202eliam\u2028": `\u202eliam\u2028`,
		"\u115f\u3164\u00ad": `\u115f\u3164\u00ad`, "a\U000e0061": `a\U000e0061`, "a\n\tb\r\a": "a\n\tb" + `\r\a`, "\\u200b?": "\\u200b?",
	} {
		if got := Visible(text, "\n\t"); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// Each state is either final or one of the open ones, and tasks with a lease are open.
func TestGroupsOfStates(t *testing.T) {
	for _, state := range States() {
		if open := slices.Contains(Open(), state); open == Final(state) {
			t.Errorf("%v is open: %v, and final: %v; want one of the two", state, open, Final(state))
		}
	}
	if got, want := namesOf(Open()), "SCHEDULED READY LEASED RUNNING CANCELLING"; got != want {
		t.Errorf("open are %s, want %s", got, want)
	}
	if got, want := namesOf(Held()), "LEASED RUNNING CANCELLING"; got != want {
		t.Errorf("tasks have a lease when they are %s, want %s", got, want)
	}
}

func namesOf(states []lessorv1.TaskState) string {
	var names []string
	for _, state := range states {
		names = append(names, Name(state))
	}
	return strings.Join(names, " ")
}
