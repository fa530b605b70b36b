package convert

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A verdict tells the same in all of its forms: a form has each field of the answer for which it
// has a place.
func TestVerdictIsCompleteInEachForm(t *testing.T) {
	now := lease.Now{Serving: 1_000, Wall: 5_000}
	answer := &lease.Answer{
		Verdict: lease.VerdictCancelled, Reason: lease.HeartbeatTimeout, State: lease.Running, Replayed: true,
		CurrentAttempt: 3, Detail: "d",
		ShouldCancel: true, CancelReason: "c", ExpiresAt: lease.Instant(3 * time.Hour),
		CancelBy: lease.Instant(time.Hour), RetryAt: 9_000,
		Holding: lease.Holding{Tenant: "t", Workspace: "w", Run: "r", Ticket: lease.Ticket{Epoch: 1, Attempt: 2, Nonce: 4}},
	}
	for v, i := reflect.ValueOf(*answer), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the test does not set the field %s, so that it does not check it", v.Type().Field(i).Name)
		}
	}
	tokens := Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}
	token, ends := tokens.Issue(now, answer.Holding, "", answer.ExpiresAt)
	want := &lessorv1.ReportVerdict{
		Verdict: lessorv1.Verdict_VERDICT_CANCELLED, Reason: lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT,
		TaskState: lessorv1.TaskState_TASK_STATE_RUNNING,
		Replayed:  true, CurrentAttempt: 3, Detail: "d", ShouldCancel: true, CancelReason: "c",
		ExpiresAt: Stamp(now.WallAt(answer.ExpiresAt)), ExpiresIn: Span(3*time.Hour - 1_000), RetryAt: Stamp(9_000),
		ServerTime:      Stamp(5_000),
		CancelGraceLeft: Span(time.Hour - 1_000), TaskToken: token, TokenExpiresAt: Stamp(now.WallAt(ends)),
	}
	// The writers of these two leave the time to their frame.
	item, ack := &lessorv1.ReportVerdict{}, &lessorv1.LeaseAck{}
	tokens.ReportVerdict(item, &Times{Now: now}, answer)
	tokens.LeaseAck(ack, &Times{Now: now}, answer)
	item.ServerTime, ack.ServerTime = want.GetServerTime(), want.GetServerTime()
	for _, m := range []proto.Message{
		item, ack, tokens.StartResponse(now, answer), tokens.HeartbeatResponse(now, answer),
		CompleteResponse(now, answer), FailResponse(now, answer), ReleaseResponse(now, answer),
	} {
		form := m.ProtoReflect()
		for fields, i := form.Descriptor().Fields(), 0; i < fields.Len(); i++ {
			f := fields.Get(i)
			place := want.ProtoReflect().Descriptor().Fields().ByName(f.Name())
			if got, want := valueOf(form, f), valueOf(want.ProtoReflect(), place); !got.Equal(want) {
				t.Errorf("%s: %s is %v, want %v", form.Descriptor().Name(), f.Name(), got, want)
			}
		}
	}
}

// valueOf returns the value of a field; it is not valid if the field is not set.
func valueOf(m protoreflect.Message, f protoreflect.FieldDescriptor) (v protoreflect.Value) {
	if m.Has(f) {
		v = m.Get(f)
	}
	return v
}

// Only the holder of a live lease gets a task token.
func TestVerdictOnAnEndedLeaseHasNoToken(t *testing.T) {
	tokens := Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}
	item := &lessorv1.ReportVerdict{}
	tokens.ReportVerdict(item, new(Times), &lease.Answer{})
	if item.GetTaskToken() != "" || item.TokenExpiresAt != nil {
		t.Errorf("the verdict has a token that ends at %v, want none", item.TokenExpiresAt)
	}
}
