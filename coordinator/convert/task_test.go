package convert

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

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
		{lessorv1.FindingCode(0).Descriptor(), "FINDING_CODE_", int(lease.FoundStoreGone), findingName},
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
		0: "UNSPECIFIED", lease.FoundLeased: "LEASED", lease.FoundUnacknowledged: "UNACKNOWLEDGED",
		lease.FoundCancelling: "CANCELLING",
		lease.FoundRunAt:      "RUN_AT", lease.FoundBackoff: "BACKOFF", lease.FoundQueuePaused: "QUEUE_PAUSED",
		lease.FoundMaxInflight: "MAX_INFLIGHT", lease.FoundRateLimit: "RATE_LIMIT", lease.FoundConcurrencyKey: "CONCURRENCY_KEY",
		lease.FoundNoWorker: "NO_WORKER", lease.FoundNoWorkerForType: "NO_WORKER_FOR_TYPE",
		lease.FoundWorkersBusy: "WORKERS_BUSY",
		lease.FoundInLine:      "IN_LINE", lease.FoundCompleted: "COMPLETED", lease.FoundFailed: "FAILED",
		lease.FoundCancelled: "CANCELLED",
		lease.FoundTimeLimit: "TIME_LIMIT", lease.FoundLateResult: "LATE_RESULT",
		lease.FoundRequirements: "REQUIREMENTS", lease.FoundPinnedWorker: "PINNED_WORKER", lease.FoundAffinity: "AFFINITY",
		lease.FoundSingleFlight: "SINGLE_FLIGHT", lease.FoundDiskFull: "DISK_FULL", lease.FoundStoreGone: "STORE_GONE",
	}[lease.FindingCode(n)]
}

// eventName returns the name of an event type, which has no String method.
func eventName(n int) string {
	return map[lease.EventType]string{
		0: "UNSPECIFIED", lease.EventSubmitted: "SUBMITTED", lease.EventGranted: "GRANTED",
		lease.EventAcknowledged: "ACKNOWLEDGED",
		lease.EventStarted:      "STARTED", lease.EventCompleted: "COMPLETED", lease.EventFailed: "FAILED",
		lease.EventReleased:   "RELEASED",
		lease.EventLeaseEnded: "LEASE_ENDED", lease.EventCancelRequested: "CANCEL_REQUESTED", lease.EventRetried: "RETRIED",
		lease.EventReady: "READY", lease.EventEnded: "ENDED",
		lease.EventRefused: "REFUSED", lease.EventAdopted: "ADOPTED",
	}[lease.EventType(n)]
}

// T10: a task shows its newest 100 events, with those of its live lease, and the number of older
// events.
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
			History: make([]lease.Event, tt.ended), Dropped: tt.dropped,
			Lease: &lease.Lease{Events: make([]lease.Event, tt.live)},
		}
		events, missing := HistoryProto(task)
		if uint32(len(events)) != tt.shown || missing != tt.missing {
			t.Errorf("%+v: %d events are shown and %d counted as missing", tt, len(events), missing)
		}
	}
}

// A8: an answer has the expiry of a lease as a time left and as a wall-clock time; both are
// computed from the clocks at the time of the answer.
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
		t.Errorf("the answer about a lease that is not live has expires_at %v and expires_in %v, want none",
			r.ExpiresAt, r.ExpiresIn)
	}
	if r := StartResponse(now, &lease.Answer{ExpiresAt: 900}); r.GetExpiresIn().AsDuration() != 0 {
		t.Errorf("expires_in of a past expiry is %v, want 0", r.GetExpiresIn().AsDuration())
	}
}

// A task is shown with everything that its record holds, in each state.
func TestTaskShowsAllFields(t *testing.T) {
	now := lease.Now{Serving: 1_000, Wall: 5_000}
	id := lease.TaskID{Space: 1, Seq: 9}
	spec := &lease.Spec{Queue: "q", RunAt: 10, Deadline: 20}
	shown := func(m *lessorv1.Task) *lessorv1.Task {
		m.TaskId, m.Spec = id.String(), specProto("w", spec)
		m.Spec.Deadline = m.GetFinishedAt() // each of these tasks has got a deadline other than that of its spec
		return m
	}
	ended := lease.Task{
		ID: id, Tenant: "t", Workspace: "w", Spec: spec, Round: 2, Attempts: 7, Failures: 3, Losses: 4, CreatedAt: 5,
		FinishedAt: 6, Deadline: 6,
		Rest: lease.Failed, Reason: lease.HeartbeatTimeout,
	}
	late, discarded, scheduled := ended, ended, ended
	late.Reason = lease.DeadlineExceeded
	discarded.Rest, discarded.Reason, discarded.Outcome = lease.Completed, 0, &lease.Committed{Kind: lease.KindAdopt, Attempt: 5}
	discarded.Discarded = []lease.Discarded{{Attempt: 6, Nonce: 7, Worker: "v", At: 8, Reason: lease.LeaseExpired, Size: 9}}
	reported := discarded
	reported.Discarded, reported.Outcome = nil, &lease.Committed{Kind: lease.KindComplete, Attempt: 5}
	scheduled.Rest, scheduled.Reason, scheduled.FinishedAt, scheduled.Deadline, scheduled.RunAt = lease.Scheduled, 0, 0, 0, 11
	backoff, ready, running := scheduled, scheduled, scheduled
	backoff.RetryAt = 1_100
	ready.Rest = lease.Ready
	running.Rest, running.Cancel = lease.Ready, &lease.CancelRequest{Reason: "why", By: "op", At: 12}
	running.Lease = &lease.Lease{
		Epoch: 3, Attempt: 8, Worker: "v", Session: "s", GrantedAt: 13, AckedAt: 14, StartedAt: 15, HeartbeatAt: 16,
		ExpiresAt: 1_200,
	}
	for name, tt := range map[string]struct {
		task *lease.Task
		want *lessorv1.Task
	}{
		"quarantined": {&ended, &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_FAILED, Reason: lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT, Quarantined: true, FinishedAt: Stamp(6)}},
		"failed":      {&late, &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_FAILED, Reason: lessorv1.Reason_REASON_DEADLINE_EXCEEDED, FinishedAt: Stamp(6)}},
		"adopted": {&discarded, &lessorv1.Task{
			State: lessorv1.TaskState_TASK_STATE_COMPLETED, FinishedAt: Stamp(6), AdoptedAttempt: 5,
			Discarded: []*lessorv1.DiscardedResult{{
				Attempt: 6, WorkerId: "v", At: Stamp(8),
				Reason: lessorv1.Reason_REASON_LEASE_EXPIRED, SizeBytes: 9,
			}},
		}},
		"completed": {&reported, &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_COMPLETED, FinishedAt: Stamp(6)}},
		"scheduled": {&scheduled, &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_SCHEDULED, RetryAt: Stamp(11)}},
		"backoff":   {&backoff, &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_SCHEDULED, RetryAt: Stamp(5_100)}},
		"ready":     {&ready, &lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_READY}},
		"cancelling": {&running, &lessorv1.Task{
			State: lessorv1.TaskState_TASK_STATE_CANCELLING, CancelReason: "why", CancelRequestedAt: Stamp(12), Attempt: 8,
			Lease: &lessorv1.LeaseInfo{
				Attempt: 8, WorkerId: "v", SessionId: "s", FencingToken: lease.FencingToken(3, 8),
				GrantedAt: Stamp(13), AckedAt: Stamp(14), StartedAt: Stamp(15), HeartbeatAt: Stamp(16), ExpiresAt: Stamp(5_200),
			},
		}},
	} {
		want := shown(tt.want)
		want.TenantId, want.Round, want.Failures, want.Losses, want.CreatedAt = "t", 2, 3, 4, Stamp(5)
		want.Attempt = cmp.Or(want.GetAttempt(), 7)
		if got := TaskProto(now, tt.task); !proto.Equal(got, want) {
			t.Errorf("%s: the task is shown as\n%v, want\n%v", name, got, want)
		}
	}
}

// An event, the error of an attempt, and feedback are shown with all their fields.
func TestPartsOfATaskShowAllFields(t *testing.T) {
	no := false
	event := lease.Event{
		Seq: 1, Type: lease.EventRefused, At: 2, Attempt: 3, Actor: "a", Reason: lease.LeaseExpired, Detail: "d",
		State: lease.Running, Kind: lease.KindFail,
	}
	shown := &lessorv1.HistoryEvent{
		Sequence: 1, Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_REFUSED, At: Stamp(2), Attempt: 3, Actor: "a",
		Reason: lessorv1.Reason_REASON_LEASE_EXPIRED, Detail: "d", TaskState: lessorv1.TaskState_TASK_STATE_RUNNING,
		RefusedKind: lessorv1.RefusedKind_REFUSED_KIND_FAIL, RefusedVerdict: lessorv1.Verdict(lease.LeaseExpired.Verdict()),
	}
	ended, shownEnded := event, proto.CloneOf(shown)
	ended.Type, shownEnded.Type = lease.EventLeaseEnded, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED
	shownEnded.RefusedKind, shownEnded.RefusedVerdict = 0, 0
	chunks := ChunksProto([]lease.Chunk{
		{Channel: "out", Index: 1, MIMEType: "text/plain", Text: "x", Metadata: map[string]string{"k": "v"}},
		{Channel: "img", Index: 2, MIMEType: "image/png", Data: []byte("y")},
	})
	for _, tt := range []struct{ got, want proto.Message }{
		{EventProto(&event), shown},
		{EventProto(&ended), shownEnded},
		{
			ErrorProto(&lease.Failure{
				Category: lease.Timeout, Message: "m", Stack: "s", Retryable: &no,
				RetryAfter: time.Second,
			}),
			&lessorv1.TaskError{
				Category: lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT, Message: "m", StackTrace: "s", Retryable: &no,
				RetryAfter: durationpb.New(time.Second),
			},
		},
		// as an older build has stored a failure without a category
		{ErrorProto(&lease.Failure{Message: "m"}), &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "m"}},
		{
			ProgressProto(&lease.Feedback{
				Attempt: 1, Fraction: 0.5, Stage: "s", Message: "m",
				Metrics: map[string]float64{"k": 1},
			}),
			&lessorv1.Progress{Attempt: 1, Fraction: 0.5, Stage: "s", Message: "m", Metrics: map[string]float64{"k": 1}},
		},
		{chunks[0], &lessorv1.FeedbackChunk{
			Channel: "out", Index: 1, MimeType: "text/plain", Metadata: map[string]string{"k": "v"},
			Body: &lessorv1.FeedbackChunk_Text{Text: "x"},
		}},
		{chunks[1], &lessorv1.FeedbackChunk{Channel: "img", Index: 2, MimeType: "image/png", Body: &lessorv1.FeedbackChunk_Data{Data: []byte("y")}}},
	} {
		if !proto.Equal(tt.got, tt.want) {
			t.Errorf("shown as %v, want %v", tt.got, tt.want)
		}
	}
}
