package convert

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Casts convert enums between package lease and the protos, so equal names must have equal numbers.
func TestEnumsHaveTheNumbersOfTheProtos(t *testing.T) {
	for _, tt := range []struct {
		wire   protoreflect.EnumDescriptor
		prefix string
		last   int
		name   func(int) string
	}{
		{lessorv1.TaskState(0).Descriptor(), "TASK_STATE_", int(lease.Cancelled), func(n int) string { return lease.State(n).String() }},
		{lessorv1.Verdict(0).Descriptor(), "VERDICT_", int(lease.VerdictRejected), func(n int) string { return lease.Verdict(n).String() }},
		{lessorv1.Reason(0).Descriptor(), "REASON_", int(lease.ResourceGone), func(n int) string { return lease.Reason(n).String() }},
		{lessorv1.ErrorCategory(0).Descriptor(), "ERROR_CATEGORY_", int(lease.CategoryCancelled), func(n int) string { return lease.Category(n).String() }},
		{lessorv1.HistoryEventType(0).Descriptor(), "HISTORY_EVENT_TYPE_", int(lease.EventAdopted), eventName},
		{lessorv1.ReportKind(0).Descriptor(), "REPORT_KIND_", int(lease.KindRelease), func(n int) string { return strings.ToUpper(lease.Kind(n).String()) }},
		{lessorv1.RefusedKind(0).Descriptor(), "REFUSED_KIND_", int(lease.KindHeartbeat), func(n int) string { return strings.ToUpper(lease.Kind(n).String()) }},
		{lessorv1.AffinityMode(0).Descriptor(), "AFFINITY_MODE_", int(lease.Preferred), func(n int) string { return [...]string{"UNSPECIFIED", "STICKY", "PREFERRED"}[n] }},
		{lessorv1.FindingCode(0).Descriptor(), "FINDING_CODE_", int(lease.FoundSingleFlight), findingName},
	} {
		if got := tt.wire.Values().Len(); got != tt.last+1 {
			t.Errorf("%s has %d values in the proto and %d in package lease", tt.wire.Name(), got, tt.last+1)
		}
		for n := range tt.last + 1 {
			v := tt.wire.Values().ByNumber(protoreflect.EnumNumber(n))
			if v == nil || string(v.Name()) != tt.prefix+tt.name(n) {
				t.Errorf("%s: number %d is %v in the proto and %s in package lease", tt.wire.Name(), n, v, tt.name(n))
			}
		}
	}
}

// findingName returns the name of a finding code, which has no String method.
func findingName(n int) string {
	return map[lease.FindingCode]string{
		0: "UNSPECIFIED", lease.FoundLeased: "LEASED", lease.FoundUnacknowledged: "UNACKNOWLEDGED", lease.FoundCancelling: "CANCELLING",
		lease.FoundRunAt: "RUN_AT", lease.FoundBackoff: "BACKOFF", lease.FoundQueuePaused: "QUEUE_PAUSED",
		lease.FoundMaxInflight: "MAX_INFLIGHT", lease.FoundRateLimit: "RATE_LIMIT", lease.FoundConcurrencyKey: "CONCURRENCY_KEY",
		lease.FoundNoWorker: "NO_WORKER", lease.FoundNoWorkerForType: "NO_WORKER_FOR_TYPE", lease.FoundWorkersBusy: "WORKERS_BUSY",
		lease.FoundInLine: "IN_LINE", lease.FoundCompleted: "COMPLETED", lease.FoundFailed: "FAILED", lease.FoundCancelled: "CANCELLED",
		lease.FoundTimeLimit: "TIME_LIMIT", lease.FoundLateResult: "LATE_RESULT",
		lease.FoundRequirements: "REQUIREMENTS", lease.FoundPinnedWorker: "PINNED_WORKER", lease.FoundAffinity: "AFFINITY",
		lease.FoundSingleFlight: "SINGLE_FLIGHT",
	}[lease.FindingCode(n)]
}

// eventName returns the name of an event type, which has no String method.
func eventName(n int) string {
	return map[lease.EventType]string{
		0: "UNSPECIFIED", lease.EventSubmitted: "SUBMITTED", lease.EventGranted: "GRANTED", lease.EventAcknowledged: "ACKNOWLEDGED",
		lease.EventStarted: "STARTED", lease.EventCompleted: "COMPLETED", lease.EventFailed: "FAILED", lease.EventReleased: "RELEASED",
		lease.EventLeaseEnded: "LEASE_ENDED", lease.EventCancelRequested: "CANCEL_REQUESTED", lease.EventRetried: "RETRIED",
		lease.EventReady: "READY", lease.EventEnded: "ENDED",
		lease.EventRefused: "REFUSED", lease.EventAdopted: "ADOPTED",
	}[lease.EventType(n)]
}

// T10: a task shows its newest 100 events, with those of its live lease, and the number of older events.
func TestHistoryHasAHundredEvents(t *testing.T) {
	t.Attr("rules", "T10")
	for _, tt := range []struct {
		dropped        uint32
		ended, live    int
		shown, missing uint32
	}{
		{0, 97, 2, 100, 0}, // the event SUBMITTED is the 100th
		{0, 98, 2, 100, 1},
		{5, 100, 0, 100, 6},
		{5, 100, 3, 100, 9},
	} {
		task := &lease.Task{
			History: make([]lease.Event, tt.ended), Dropped: tt.dropped, Lease: &lease.Lease{Events: make([]lease.Event, tt.live)},
		}
		events, missing := HistoryProto(task)
		if uint32(len(events)) != tt.shown || missing != tt.missing {
			t.Errorf("%+v: %d events are shown and %d counted as missing", tt, len(events), missing)
		}
	}
}

// A8: an answer has the expiry of a lease as a time left and as a wall-clock time; both are computed from the clocks at the time of the answer.
func TestExpiryIsShownOnBothClocks(t *testing.T) {
	t.Attr("rules", "A8")
	now := lease.Now{Serving: 1_000, Wall: 5_000}
	r := StartResponse(now, &lease.Answer{ExpiresAt: 1_700})
	if got := r.GetExpiresIn().AsDuration(); got != 700 {
		t.Errorf("expires_in is %v, want 700 ns", got)
	}
	if got := lease.WallOf(r.GetExpiresAt().AsTime()); got != 5_700 {
		t.Errorf("expires_at is %d, want 5700", got)
	}
	if r := StartResponse(now, &lease.Answer{}); r.ExpiresAt != nil || r.ExpiresIn != nil {
		t.Errorf("the answer about a lease that is not live has expires_at %v and expires_in %v, want none", r.ExpiresAt, r.ExpiresIn)
	}
	if r := StartResponse(now, &lease.Answer{ExpiresAt: 900}); r.GetExpiresIn().AsDuration() != 0 {
		t.Errorf("expires_in of a past expiry is %v, want 0", r.GetExpiresIn().AsDuration())
	}
}
