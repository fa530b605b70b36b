package service_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// wholeSpec returns a spec with a value in each field, other ones if another is true; but the
// workspace and the key are always the same.
func wholeSpec(another bool) *lessorv1.TaskSpec {
	n, name, at := int64(1), "a", timestamppb.New(time.Now().Add(time.Hour))
	if another {
		n, name, at = 2, "b", timestamppb.New(at.AsTime().Add(time.Minute))
	}
	seconds := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
	return &lessorv1.TaskSpec{
		WorkspaceId: "w", IdempotencyKey: "k",
		Queue: name, Type: name, Payload: bytes.Repeat([]byte(name), 2000), RunId: name, TaskKey: name, AssetId: name,
		Priority: int32(n), RunAt: at, Deadline: timestamppb.New(at.AsTime().Add(time.Hour)),
		AttemptTimeout: seconds(n), StartTimeout: seconds(n),
		RetryPolicy: &lessorv1.RetryPolicy{
			MaxAttempts: uint32(n), MaxLosses: uint32(n), InitialBackoff: seconds(n), BackoffMultiplier: float64(n), MaxBackoff: seconds(60 + n),
			NonRetryableCategories: []lessorv1.ErrorCategory{lessorv1.ErrorCategory(n)},
		},
		HeartbeatInterval: seconds(n), HeartbeatTimeout: seconds(10 + n), CancelGrace: seconds(n), Retention: seconds(n),
		Labels: map[string]string{"secret": name}, ConcurrencyKey: name, ConcurrencyLimit: uint32(n), FairnessKey: name,
		Requirements: &lessorv1.Requirements{Runtimes: []string{name}, Resources: map[string]float64{"cpu": 1}},
		ResourceRefs: []*lessorv1.ResourceRef{{ResourceId: name, WorkerId: "w", Metadata: map[string]string{"m": "n"}}},
		Affinity:     &lessorv1.Affinity{Key: name},
		TraceMeta:    &lessorv1.TraceMeta{HostNodeId: name}, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333" + name + "-01",
	}
}

// T1: the refusal of another spec names the fields in which it differs from that of the task, but
// none of their values. It can name each field that the digest covers. A default that is written
// out is another spec, too, but has no name.
func TestRefusalNamesWhatDiffers(t *testing.T) {
	t.Attr("rules", "T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		base, other := wholeSpec(false), wholeSpec(true)
		first, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: base})
		if err != nil {
			t.Fatal(err)
		}
		refused := func(spec *lessorv1.TaskSpec, differs string) {
			t.Helper()
			_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
			want := `task.idempotency_key: "k" was already used by task ` + first.GetTask().GetTaskId() + " with a " + differs
			if st := status.Convert(err); st.Code() != codes.AlreadyExists || st.Message() != want {
				t.Errorf("%v %q, want %q", st.Code(), st.Message(), want)
			}
		}
		fields := base.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			switch f.Name() {
			case "workspace_id", "idempotency_key", "trace_meta", "traceparent":
				continue
			}
			if v := other.ProtoReflect(); !v.Has(f) || v.Get(f).Equal(base.ProtoReflect().Get(f)) {
				t.Errorf("wholeSpec has no other value for %s", f.Name())
			}
			if f.Name() != "retry_policy" { // of it, the parts are named
				refused(exchange(base, other, f), "spec that differs in "+string(f.Name()))
			}
		}
		parts := base.GetRetryPolicy().ProtoReflect().Descriptor().Fields()
		for i := range parts.Len() {
			changed := proto.CloneOf(base)
			changed.RetryPolicy = exchange(base.GetRetryPolicy(), other.GetRetryPolicy(), parts.Get(i))
			refused(changed, "spec that differs in retry_policy."+string(parts.Get(i).Name()))
		}
		refused(other, "spec that differs in queue, type, payload, run_id, task_key, asset_id, priority, run_at, deadline, attempt_timeout, "+
			"start_timeout, retry_policy.max_attempts, retry_policy.max_losses, retry_policy.initial_backoff, retry_policy.backoff_multiplier, "+
			"retry_policy.max_backoff, retry_policy.non_retryable_categories, heartbeat_interval, heartbeat_timeout, cancel_grace, labels, requirements, resource_refs, affinity, "+
			"concurrency_key, concurrency_limit, fairness_key, retention")
		longer := proto.CloneOf(base)
		longer.Payload = append(longer.Payload, 'x')
		refused(longer, "spec that differs in payload")
		noPolicy := proto.CloneOf(base)
		noPolicy.RetryPolicy, noPolicy.Type = nil, "other" // the queue's policy may be the one that the first task has
		refused(noPolicy, "spec that differs in type")
		written := proto.CloneOf(base)
		written.Affinity.Mode = lessorv1.AffinityMode_AFFINITY_MODE_PREFERRED
		refused(written, "different spec")
	})
}

// exchange returns a copy of a message with the field that another one has.
func exchange[M proto.Message](m, other M, f protoreflect.FieldDescriptor) M {
	changed := proto.CloneOf(m)
	changed.ProtoReflect().Set(f, other.ProtoReflect().Get(f))
	return changed
}

// T1: a batch and a stream name what differs as well, from a spec of the same frame too.
func TestRefusalsOfManyNameWhatDiffers(t *testing.T) {
	t.Attr("rules", "T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		spec := func(payload string) *lessorv1.TaskSpec {
			return &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k", Payload: []byte(payload)}
		}
		_, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec("a"), spec("b")}})
		wiretest.WantEqual(t, "batch", status.Convert(err).Message(),
			`tasks[1].idempotency_key: "k" is used by two specs of this batch that differ in payload`)
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{spec("a"), spec("b")}}); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		results := answer.GetResults()
		wiretest.WantEqual(t, "stream", results[1].GetError().GetMessage(),
			`idempotency_key: "k" was already used by task `+results[0].GetTaskId()+" with a spec that differs in payload")
	})
}
