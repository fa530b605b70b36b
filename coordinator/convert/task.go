package convert

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/tracing"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The enums of package lease have the same numbers as those of the wire, so a conversion is a cast
// (TestEnumsHaveTheNumbersOfTheProtos checks this).

// Stamp returns the timestamp of w, or nil if w is 0.
func Stamp(w lease.Wall) *timestamppb.Timestamp { return new(Times).Stamp(w) }

// stampAt is Stamp for an instant of the serving clock.
func stampAt(now lease.Now, i lease.Instant) *timestamppb.Timestamp {
	return (&Times{Now: now}).StampAt(i)
}

// Span returns the duration message for d, or nil if d is 0.
func Span(d time.Duration) *durationpb.Duration { return new(Times).Span(d) }

// left returns the time from now to i, at least 0, or nil if i is 0.
func left(now lease.Now, i lease.Instant) *durationpb.Duration { return (&Times{Now: now}).Left(i) }

// TaskProto returns a task as it is listed: without payload, output, checkpoint and history.
func TaskProto(now lease.Now, t *lease.Task) *lessorv1.Task {
	m := &lessorv1.Task{
		TaskId:      t.ID.String(),
		TenantId:    t.Tenant,
		Spec:        specProto(t.Workspace, t.Spec),
		State:       lessorv1.TaskState(t.State()),
		Reason:      lessorv1.Reason(t.Reason),
		Round:       t.Round,
		Attempt:     t.Attempt(),
		Failures:    t.Failures,
		Losses:      t.Losses,
		Quarantined: t.State() == lease.Failed && t.Reason == lease.HeartbeatTimeout,
		CreatedAt:   Stamp(t.CreatedAt),
		FinishedAt:  Stamp(t.FinishedAt),
		RetryAt:     readyAt(now, t),
		Lease:       leaseProto(now, t),
	}
	if t.Outcome != nil && t.Outcome.Kind == lease.KindAdopt {
		m.AdoptedAttempt = t.Outcome.Attempt
	}
	for i := range t.Discarded {
		m.Discarded = append(m.Discarded, discardedProto(&t.Discarded[i]))
	}
	m.Spec.Deadline = Stamp(t.Deadline) // a retry may have set a later one
	if c := t.Cancel; c != nil {
		m.CancelReason, m.CancelRequestedAt = c.Reason, Stamp(c.At)
	}
	return m
}

// readyAt returns the time at which a SCHEDULED task becomes READY, or nil for other tasks.
func readyAt(now lease.Now, t *lease.Task) *timestamppb.Timestamp {
	switch {
	case t.State() != lease.Scheduled:
		return nil
	case t.RetryAt != 0:
		return stampAt(now, t.RetryAt)
	}
	return Stamp(t.RunAt)
}

func specProto(workspace string, s *lease.Spec) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		WorkspaceId:       workspace,
		Queue:             s.Queue,
		Type:              s.Type,
		RunId:             s.RunID,
		TaskKey:           s.TaskKey,
		AssetId:           s.AssetID,
		IdempotencyKey:    s.IdempotencyKey,
		Priority:          s.Priority,
		RunAt:             Stamp(s.RunAt),
		Deadline:          Stamp(s.Deadline),
		AttemptTimeout:    Span(s.AttemptTimeout),
		StartTimeout:      Span(s.StartTimeout),
		RetryPolicy:       RetryPolicyProto(&s.Retry),
		HeartbeatInterval: Span(s.HeartbeatInterval),
		HeartbeatTimeout:  Span(s.HeartbeatTimeout),
		CancelGrace:       Span(s.CancelGrace),
		Labels:            s.Labels,
		Retention:         Span(s.Retention),
		ConcurrencyKey:    s.ConcurrencyKey,
		ConcurrencyLimit:  s.ConcurrencyLimit,
		FairnessKey:       s.FairnessKey,
		Requirements:      requirementsProto(s.Requirements),
		ResourceRefs:      refsProto(s.ResourceRefs),
		Affinity:          affinityProto(s.Affinity),
		TraceMeta:         traceProto(s.Trace),
		Traceparent:       tracing.Submitted(s),
	}
}

// RetryPolicyProto converts a retry policy.
func RetryPolicyProto(p *lease.RetryPolicy) *lessorv1.RetryPolicy {
	m := &lessorv1.RetryPolicy{
		MaxAttempts: p.MaxAttempts, MaxLosses: p.MaxLosses, InitialBackoff: Span(p.InitialBackoff),
		BackoffMultiplier: p.Multiplier, MaxBackoff: Span(p.MaxBackoff),
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
		Attempt:      l.Attempt,
		WorkerId:     l.Worker,
		SessionId:    l.Session,
		FencingToken: lease.FencingToken(l.Epoch, l.Attempt),
		GrantedAt:    Stamp(l.GrantedAt),
		AckedAt:      Stamp(l.AckedAt),
		StartedAt:    Stamp(l.StartedAt),
		HeartbeatAt:  Stamp(l.HeartbeatAt),
		ExpiresAt:    stampAt(now, t.ExpiresAt(now)),
	}
}

// discardedProto describes a kept result, without its content.
func discardedProto(d *lease.Discarded) *lessorv1.DiscardedResult {
	return &lessorv1.DiscardedResult{
		Attempt:   d.Attempt,
		WorkerId:  d.Worker,
		At:        Stamp(d.At),
		Reason:    lessorv1.Reason(d.Reason),
		SizeBytes: int64(d.Size),
	}
}

// EventProto converts one event of a history.
func EventProto(e *lease.Event) *lessorv1.HistoryEvent {
	m := &lessorv1.HistoryEvent{
		Sequence: e.Seq, Type: lessorv1.HistoryEventType(e.Type), At: Stamp(e.At), Attempt: e.Attempt, Actor: e.Actor,
		Reason: lessorv1.Reason(e.Reason), Detail: e.Detail, TaskState: lessorv1.TaskState(e.State),
	}
	if e.Type == lease.EventRefused {
		m.RefusedKind, m.RefusedVerdict = lessorv1.RefusedKind(e.Kind), lessorv1.Verdict(e.Reason.Verdict())
	}
	return m
}

// HistoryProto returns the newest events and how many there were before (T10).
func HistoryProto(t *lease.Task) ([]*lessorv1.HistoryEvent, uint32) {
	events := t.Events()
	// the submit comes in addition to MaxHistory, since it is not stored; see lease.Task.Events
	over := max(len(events)-lease.MaxHistory, 0)
	all := make([]*lessorv1.HistoryEvent, len(events)-over)
	for i := range all {
		all[i] = EventProto(&events[over+i])
	}
	return all, MissingEvents(t) + uint32(over)
}

// MissingEvents returns how many events a task no longer keeps: the dropped ones and, if there are
// any, the submit too (see lease.Task.Events).
func MissingEvents(t *lease.Task) uint32 {
	if t.Dropped == 0 {
		return 0
	}
	return t.Dropped + 1
}

// ErrorProto converts the failure of an attempt. An older build has stored that a failure has no
// category, which means USER_CODE.
func ErrorProto(f *lease.Failure) *lessorv1.TaskError {
	return &lessorv1.TaskError{
		Category: lessorv1.ErrorCategory(cmp.Or(f.Category, lease.UserCode)), Message: f.Message, StackTrace: f.Stack,
		Retryable: f.Retryable, RetryAfter: Span(f.RetryAfter),
	}
}

// ArtifactsProto converts the artifacts of a result.
func ArtifactsProto(all []lease.Artifact) []*lessorv1.Artifact {
	out := make([]*lessorv1.Artifact, len(all))
	for i, a := range all {
		out[i] = &lessorv1.Artifact{
			ResourceId: a.ResourceID, WorkerId: a.WorkerID, Type: a.Type, SizeBytes: a.SizeBytes,
			ExpiresAt: Stamp(a.ExpiresAt), Inline: a.Inline, Metadata: a.Metadata,
		}
	}
	return out
}
