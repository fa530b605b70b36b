package lease

import (
	"bytes"
	"maps"
	"slices"
)

// differing names the fields in which a spec differs from that of a task with the same idempotency
// key, for the words of the refusal (T1). Both specs have their defaults by now. So it does not
// name a field of which one spec has written out the default, and none if that is all; and of the
// retry policy it looks only at what the new spec sets, because the queue may have set the rest. A
// heartbeat time that was derived from the other one is named with it.
func (s *step) differing(task *Task, spec *Spec) []string {
	old := task.Spec
	retry := spec.Retry.Or(old.Retry)
	var names []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"queue", spec.Queue == old.Queue},
		{"type", spec.Type == old.Type},
		{"payload", s.samePayload(task, spec)},
		{"run_id", spec.RunID == old.RunID},
		{"task_key", spec.TaskKey == old.TaskKey},
		{"asset_id", spec.AssetID == old.AssetID},
		{"priority", spec.Priority == old.Priority},
		{"run_at", spec.RunAt == old.RunAt},
		{"deadline", spec.Deadline == old.Deadline},
		{"attempt_timeout", spec.AttemptTimeout == old.AttemptTimeout},
		{"start_timeout", spec.StartTimeout == old.StartTimeout},
		{"retry_policy.max_attempts", retry.MaxAttempts == old.Retry.MaxAttempts},
		{"retry_policy.max_losses", retry.MaxLosses == old.Retry.MaxLosses},
		{"retry_policy.initial_backoff", retry.InitialBackoff == old.Retry.InitialBackoff},
		{"retry_policy.backoff_multiplier", retry.Multiplier == old.Retry.Multiplier},
		{"retry_policy.max_backoff", retry.MaxBackoff == old.Retry.MaxBackoff},
		{"retry_policy.non_retryable_categories", slices.Equal(retry.NonRetryable, old.Retry.NonRetryable)},
		{"heartbeat_interval", spec.HeartbeatInterval == old.HeartbeatInterval},
		{"heartbeat_timeout", spec.HeartbeatTimeout == old.HeartbeatTimeout},
		{"cancel_grace", spec.CancelGrace == old.CancelGrace},
		{"labels", maps.Equal(spec.Labels, old.Labels)},
		{"requirements", same(spec.Requirements, old.Requirements, Requirements.equal)},
		{"resource_refs", slices.EqualFunc(spec.ResourceRefs, old.ResourceRefs, ResourceRef.equal)},
		{"affinity", same(spec.Affinity, old.Affinity, func(a, b Affinity) bool { return a == b })},
		{"concurrency_key", spec.ConcurrencyKey == old.ConcurrencyKey},
		{"concurrency_limit", spec.ConcurrencyLimit == old.ConcurrencyLimit},
		{"fairness_key", spec.FairnessKey == old.FairnessKey},
		{"retention", spec.Retention == old.Retention},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return names
}

// samePayload reads a payload that is only on disk if it has as many bytes as the other one, so
// that nobody can make the coordinator read more than was sent to it.
func (s *step) samePayload(task *Task, spec *Spec) bool {
	old := task.Spec
	if spec.Size != old.Size {
		return false
	}
	if old.Payload == nil && old.Size > 0 {
		return bytes.Equal(spec.Payload, s.view.Payload(task.ID))
	}
	return bytes.Equal(spec.Payload, old.Payload)
}

func same[T any](a, b *T, equal func(a, b T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equal(*a, *b)
}

func (r Requirements) equal(other Requirements) bool {
	return slices.Equal(r.Runtimes, other.Runtimes) && slices.Equal(r.Features, other.Features) &&
		maps.Equal(r.Labels, other.Labels) && maps.Equal(r.Resources, other.Resources) && r.Package == other.Package
}

func (r ResourceRef) equal(other ResourceRef) bool {
	return r.ResourceID == other.ResourceID && r.Worker == other.Worker && r.Type == other.Type && r.Scope == other.Scope &&
		r.ExpiresAt == other.ExpiresAt && maps.Equal(r.Metadata, other.Metadata)
}
