package coordinator

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The enums of package lease have the numbers of the wire, so that a conversion is a cast (held by TestEnumsAreThoseOfTheWire).

// stamp is absent for no time.
func stamp(w lease.Wall) *timestamppb.Timestamp { return new(times).stamp(w) }

// stampAt is stamp for an instant of the serving clock.
func stampAt(now lease.Now, i lease.Instant) *timestamppb.Timestamp {
	return (&times{now: now}).stampAt(i)
}

// span is absent for 0.
func span(d time.Duration) *durationpb.Duration { return new(times).span(d) }

// left is the time from now to i, at least 0; absent for no time.
func left(now lease.Now, i lease.Instant) *durationpb.Duration { return (&times{now: now}).left(i) }

// taskProto shows a task as lists do: without payload, output, checkpoint and history.
func taskProto(now lease.Now, t *lease.Task) *lessorv1.Task {
	m := &lessorv1.Task{
		TaskId: t.ID.String(), TenantId: t.Tenant, Spec: specProto(t.Workspace, t.Spec),
		State: lessorv1.TaskState(t.State()), Reason: lessorv1.Reason(t.Reason),
		Round: t.Round, Attempt: t.Attempt(), Failures: t.Failures, Losses: t.Losses,
		Quarantined: t.State() == lease.Failed && t.Reason == lease.HeartbeatTimeout,
		CreatedAt:   stamp(t.CreatedAt), FinishedAt: stamp(t.FinishedAt), RetryAt: readyAt(now, t),
		Lease: leaseProto(now, t),
	}
	if t.Outcome != nil && t.Outcome.Kind == lease.KindAdopt {
		m.AdoptedAttempt = t.Outcome.Attempt
	}
	for i := range t.Discarded {
		m.Discarded = append(m.Discarded, discardedProto(&t.Discarded[i]))
	}
	m.Spec.Deadline = stamp(t.Deadline) // a retry may have set a later one
	if c := t.Cancel; c != nil {
		m.CancelReason, m.CancelRequestedAt = c.Reason, stamp(c.At)
	}
	return m
}

// showWork shows a task as its worker needs it, but for its id. What stands in the assignment itself, and what only the coordinator goes by, is left
// out: an assignment is made, sent and read once for each attempt, and these were half of it.
func showWork(m *assigned, at *times, t *lease.Task) {
	s := t.Spec
	m.task = lessorv1.Task{
		TenantId: t.Tenant, State: lessorv1.TaskState(t.State()), Spec: &m.spec,
		Round: t.Round, Attempt: t.Attempt(), Failures: t.Failures, Losses: t.Losses, CreatedAt: at.stamp(t.CreatedAt),
	}
	m.spec = lessorv1.TaskSpec{
		WorkspaceId: t.Workspace, Queue: s.Queue, Type: s.Type, RunId: s.RunID, TaskKey: s.TaskKey, AssetId: s.AssetID,
		IdempotencyKey: s.IdempotencyKey, Priority: s.Priority, Deadline: at.stamp(t.Deadline), AttemptTimeout: at.span(s.AttemptTimeout),
		Labels: s.Labels, ConcurrencyKey: s.ConcurrencyKey, FairnessKey: s.FairnessKey,
		Requirements: requirementsProto(s.Requirements), ResourceRefs: refsProto(s.ResourceRefs),
		Affinity: affinityProto(s.Affinity), TraceMeta: traceProto(s.Trace),
	}
}

// readyAt is when a SCHEDULED task becomes READY.
func readyAt(now lease.Now, t *lease.Task) *timestamppb.Timestamp {
	switch {
	case t.State() != lease.Scheduled:
		return nil
	case t.RetryAt != 0:
		return stampAt(now, t.RetryAt)
	}
	return stamp(t.RunAt)
}

func specProto(workspace string, s *lease.Spec) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		WorkspaceId: workspace, Queue: s.Queue, Type: s.Type, RunId: s.RunID, TaskKey: s.TaskKey, AssetId: s.AssetID,
		IdempotencyKey: s.IdempotencyKey, Priority: s.Priority, RunAt: stamp(s.RunAt), Deadline: stamp(s.Deadline),
		AttemptTimeout: span(s.AttemptTimeout), StartTimeout: span(s.StartTimeout), RetryPolicy: retryPolicyProto(&s.Retry),
		HeartbeatInterval: span(s.HeartbeatInterval), HeartbeatTimeout: span(s.HeartbeatTimeout),
		CancelGrace: span(s.CancelGrace), Labels: s.Labels, Retention: span(s.Retention),
		ConcurrencyKey: s.ConcurrencyKey, ConcurrencyLimit: s.ConcurrencyLimit, FairnessKey: s.FairnessKey,
		Requirements: requirementsProto(s.Requirements), ResourceRefs: refsProto(s.ResourceRefs),
		Affinity: affinityProto(s.Affinity), TraceMeta: traceProto(s.Trace),
	}
}

func retryPolicyProto(p *lease.RetryPolicy) *lessorv1.RetryPolicy {
	m := &lessorv1.RetryPolicy{
		MaxAttempts: p.MaxAttempts, MaxLosses: p.MaxLosses, InitialBackoff: span(p.InitialBackoff),
		BackoffMultiplier: p.Multiplier, MaxBackoff: span(p.MaxBackoff),
	}
	for _, c := range p.NonRetryable {
		m.NonRetryableCategories = append(m.NonRetryableCategories, lessorv1.ErrorCategory(c))
	}
	return m
}

func leaseProto(now lease.Now, t *lease.Task) *lessorv1.LeaseInfo {
	l := t.Lease
	if l == nil {
		return nil
	}
	return &lessorv1.LeaseInfo{
		Attempt: l.Attempt, WorkerId: l.Worker, SessionId: l.Session, FencingToken: lease.FencingToken(l.Epoch, l.Attempt),
		GrantedAt: stamp(l.GrantedAt), AckedAt: stamp(l.AckedAt), StartedAt: stamp(l.StartedAt), HeartbeatAt: stamp(l.HeartbeatAt),
		ExpiresAt: stampAt(now, t.ExpiresAt(now)),
	}
}

// discardedProto shows a kept result without what it holds.
func discardedProto(d *lease.Discarded) *lessorv1.DiscardedResult {
	return &lessorv1.DiscardedResult{
		Attempt: d.Attempt, WorkerId: d.Worker, At: stamp(d.At), Reason: lessorv1.Reason(d.Reason), SizeBytes: int64(d.Size),
	}
}

func eventProto(e *lease.Event) *lessorv1.HistoryEvent {
	m := &lessorv1.HistoryEvent{
		Sequence: e.Seq, Type: lessorv1.HistoryEventType(e.Type), At: stamp(e.At), Attempt: e.Attempt, Actor: e.Actor,
		Reason: lessorv1.Reason(e.Reason), Detail: e.Detail, TaskState: lessorv1.TaskState(e.State),
	}
	if e.Type == lease.EventRefused {
		m.RefusedKind, m.RefusedVerdict = lessorv1.RefusedKind(e.Kind), lessorv1.Verdict(e.Reason.Verdict())
	}
	return m
}

// historyProto returns the newest events and how many there were before (T10).
func historyProto(t *lease.Task) ([]*lessorv1.HistoryEvent, uint32) {
	events := t.Events()
	over := max(len(events)-lease.MaxHistory, 0) // those of a live lease are kept beside the others
	all := make([]*lessorv1.HistoryEvent, len(events)-over)
	for i := range all {
		all[i] = eventProto(&events[over+i])
	}
	return all, missing(t) + uint32(over)
}

// missing is how many events a task no longer keeps: what fell off, and then the submit is gone too (see lease.Task.Events).
func missing(t *lease.Task) uint32 {
	if t.Dropped == 0 {
		return 0
	}
	return t.Dropped + 1
}

func errorProto(f *lease.Failure) *lessorv1.TaskError {
	return &lessorv1.TaskError{
		Category: lessorv1.ErrorCategory(f.Category), Message: f.Message, StackTrace: f.Stack,
		Retryable: f.Retryable, RetryAfter: span(f.RetryAfter),
	}
}

func artifactsProto(all []lease.Artifact) []*lessorv1.Artifact {
	out := make([]*lessorv1.Artifact, len(all))
	for i, a := range all {
		out[i] = &lessorv1.Artifact{
			ResourceId: a.ResourceID, WorkerId: a.WorkerID, Type: a.Type, SizeBytes: a.SizeBytes,
			ExpiresAt: stamp(a.ExpiresAt), Inline: a.Inline, Metadata: a.Metadata,
		}
	}
	return out
}
