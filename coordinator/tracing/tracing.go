// Package tracing makes spans of what the engine has committed, so that a trace joins the submit,
// each attempt, the work and the verdict:
//
//	the producer's own span
//	└─ submit               until the task is durable; for a unary call over gRPC that call's own span
//	   └─ task              from the submit, or the retry of an operator, to the final state
//	      ├─ attempt        from the grant to the end of the lease: a verdict COMMITTED, or why the lease was lost
//	      │  └─ execute     made by the worker, which gets the attempt's span as traceparent of its assignment
//	      └─ refused        a report that came too late, with its verdict
//
// A span is made when it ends, from the history of the task. Nothing is kept for a span that has
// not ended: the ids of a task's span and of an attempt's span follow from the task and the lease,
// so that a worker can name its parent long before that exists, and a restart changes nothing. Only
// tasks whose stored traceparent has the flag "sampled" have spans, and others cost a look at it.
package tracing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/traceparent"
	"github.com/lessor-dev/lessor/lease"
)

// Tracer makes the spans. A nil Tracer makes none.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer, or nil if the provider is nil. The provider must take the ids of its spans
// from IDs.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer("github.com/lessor-dev/lessor/coordinator")}
}

// Submit begins the span of one submitted task, and puts it into the spec as its trace. Its parent
// is the trace of the spec, or else header, that of the call. If the call has a span itself, that
// takes its place, and Submit returns nil, as it does if there is to be no span. End ends the span.
func (t *Tracer) Submit(ctx context.Context, s *lease.Spec, header string) trace.Span {
	call := trace.SpanFromContext(ctx)
	if c := call.SpanContext(); s.Traceparent == "" && c.IsValid() && !c.IsRemote() &&
		(call.IsRecording() || header == "") {
		s.Traceparent = traceparent.Format(c)
		return nil
	}
	s.Traceparent = cmp.Or(s.Traceparent, header)
	if s.Traceparent != "" && !traceparent.Sampled(s.Traceparent) {
		return nil
	}
	_, span := t.tracer.Start(traceparent.With(ctx, s.Traceparent), "submit "+label(s),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("lessor.queue", s.Queue), attribute.String("lessor.type", s.Type)))
	if span.IsRecording() || s.Traceparent == "" {
		s.Traceparent = traceparent.Format(span.SpanContext())
	} else { // the sampler drops it here; that must not cut the trace of others
		s.Traceparent += unsampledHere
	}
	return span
}

// unsampledHere follows a stored trace context that is sampled, but not by this coordinator: it
// does not count as sampled then, also after a restart, and the worker's span is a child of the
// caller's. No caller can send it, because that is not valid.
const unsampledHere = "-"

// Submitted returns the trace context of a spec as it is to be shown.
func Submitted(s *lease.Spec) string { return strings.TrimSuffix(s.Traceparent, unsampledHere) }

// End ends a span of Submit, which may be nil, for the task that the submit has made or found.
func End(span trace.Span, task *lease.Task, err error) {
	switch {
	case span == nil:
		return
	case err != nil:
		span.SetStatus(codes.Error, "")
	case task != nil:
		span.SetAttributes(attribute.String("lessor.task_id", task.ID.String()))
	}
	span.End()
}

// Traceparent returns the trace context for the worker that has the lease of a task: the attempt's
// span, or what was submitted if that has none.
func (t *Tracer) Traceparent(task *lease.Task) string {
	c, ok := t.parse(task)
	if !ok {
		return Submitted(task.Spec)
	}
	return traceparent.Format(c.WithSpanID(attemptSpan(task, task.Lease.Attempt, task.Lease.Nonce)))
}

// parse returns the trace of a task that has spans.
func (t *Tracer) parse(task *lease.Task) (trace.SpanContext, bool) {
	if t == nil || task == nil || task.Spec == nil || !traceparent.Sampled(task.Spec.Traceparent) {
		return trace.SpanContext{}, false
	}
	return traceparent.Parse(task.Spec.Traceparent)
}

// Changed makes the spans that have ended with a committed change of a task; before is nil for a
// new task, after for one that was deleted.
func (t *Tracer) Changed(before, after *lease.Task) {
	task := cmp.Or(after, before)
	parent, ok := t.parse(task)
	if !ok {
		return
	}
	own := parent.WithSpanID(taskSpan(task))
	t.attemptEnded(own, before, after)
	t.refused(own, before, after)
	if !over(before) && (after == nil || over(after)) {
		t.taskEnded(parent, before, after)
	}
}

func over(t *lease.Task) bool { return t != nil && t.State().Final() }

// taskEnded makes the span of a task's round.
func (t *Tracer) taskEnded(parent trace.SpanContext, before, after *lease.Task) {
	task := cmp.Or(after, before)
	events := task.Events()
	begin := task.CreatedAt
	for _, e := range events {
		if e.Type == lease.EventRetried {
			begin = e.At
		}
	}
	span := t.start(parent, taskSpan(task), "task ", begin, task)
	span.SetAttributes(attribute.Int("lessor.attempts", int(task.Attempt())),
		attribute.Int("lessor.failures", int(task.Failures)), attribute.Int("lessor.losses", int(task.Losses)))
	for _, e := range events {
		if e.At >= begin {
			span.AddEvent(eventName(e.Type), trace.WithTimestamp(e.At.Time()),
				trace.WithAttributes(attribute.Int("lessor.attempt", int(e.Attempt))))
		}
	}
	if after == nil {
		span.SetAttributes(attribute.Bool("lessor.deleted", true))
		span.End()
		return
	}
	span.SetAttributes(attribute.String("lessor.state", after.Rest.String()))
	if after.Reason != lease.NoReason {
		span.SetAttributes(attribute.String("lessor.reason", after.Reason.String()))
	}
	if after.Rest == lease.Failed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(after.FinishedAt.Time()))
}

// attemptEnded makes the span of an attempt, if the change has ended one. No attempt begins and
// ends in one change but one that had no time to be told to a worker, and then only the last of two
// is seen.
func (t *Tracer) attemptEnded(parent trace.SpanContext, before, after *lease.Task) {
	var ended lease.Ended
	switch {
	case after != nil && after.Last.Attempt != 0 && (before == nil || before.Last.Attempt != after.Last.Attempt):
		ended = after.Last
	case after == nil && before.Lease != nil:
		l := before.Lease
		ended = lease.Ended{
			Attempt: l.Attempt, Cause: lease.Revoked, Nonce: l.Nonce, Worker: l.Worker,
			GrantedAt: l.GrantedAt, AckedAt: l.AckedAt, StartedAt: l.StartedAt,
		}
	default:
		return
	}
	task := cmp.Or(after, before)
	span := t.start(parent, attemptSpan(task, ended.Attempt, ended.Nonce), "attempt ", ended.GrantedAt, task)
	span.SetAttributes(attribute.Int("lessor.attempt", int(ended.Attempt)),
		attribute.String("lessor.worker", ended.Worker))
	if ended.AckedAt != 0 {
		span.AddEvent(eventName(lease.EventAcknowledged), trace.WithTimestamp(ended.AckedAt.Time()))
	}
	if ended.StartedAt != 0 {
		span.AddEvent(eventName(lease.EventStarted), trace.WithTimestamp(ended.StartedAt.Time()))
	}
	verdict, reason := lease.VerdictCommitted, lease.None
	if ended.Cause != lease.Reported {
		verdict, reason = lease.VerdictCancelled, ended.Cause
		span.SetStatus(codes.Error, ended.Cause.String())
	} else if kind := reportOf(after, ended.Attempt); kind != 0 {
		span.SetAttributes(attribute.String("lessor.report", kind.String()))
		if kind == lease.KindFail {
			span.SetStatus(codes.Error, "")
		}
	}
	span.SetAttributes(attribute.String("lessor.verdict", verdict.String()),
		attribute.String("lessor.reason", reason.String()))
	if ended.At == 0 {
		span.End()
		return
	}
	span.End(trace.WithTimestamp(ended.At.Time()))
}

// reportOf returns what kind of report ended an attempt; 0 if the history does not say.
func reportOf(task *lease.Task, attempt uint32) lease.Kind {
	kinds := map[lease.EventType]lease.Kind{
		lease.EventCompleted: lease.KindComplete, lease.EventFailed: lease.KindFail,
		lease.EventReleased: lease.KindRelease,
	}
	for _, e := range slices.Backward(task.History) {
		if kind := kinds[e.Type]; kind != 0 && e.Attempt == attempt {
			return kind
		}
	}
	return 0
}

// refused makes a span of each report that the change has refused.
func (t *Tracer) refused(parent trace.SpanContext, before, after *lease.Task) {
	if before == nil || after == nil || after.LastSeq() == before.LastSeq() {
		return
	}
	for _, e := range after.Events() {
		if e.Type != lease.EventRefused || e.Seq <= before.LastSeq() {
			continue
		}
		span := t.start(parent, trace.SpanID{}, "refused ", e.At, after)
		span.SetAttributes(attribute.Int("lessor.attempt", int(e.Attempt)),
			attribute.String("lessor.worker", e.Actor), attribute.String("lessor.report", e.Kind.String()),
			attribute.String("lessor.verdict", e.Reason.Verdict().String()),
			attribute.String("lessor.reason", e.Reason.String()))
		span.SetStatus(codes.Error, e.Reason.String())
		span.End(trace.WithTimestamp(e.At.Time()))
	}
}

// start begins a span of a task; its id is random if id is zero.
func (t *Tracer) start(
	parent trace.SpanContext, id trace.SpanID, what string, at lease.Wall, task *lease.Task,
) trace.Span {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
	if id.IsValid() {
		ctx = context.WithValue(ctx, idKey{}, id)
	}
	s := task.Spec
	attributes := []attribute.KeyValue{
		attribute.String("lessor.task_id", task.ID.String()), attribute.String("lessor.tenant", task.Tenant),
		attribute.String("lessor.workspace", task.Workspace),
		attribute.String("lessor.queue", s.Queue), attribute.String("lessor.type", s.Type),
	}
	if s.RunID != "" {
		attributes = append(attributes, attribute.String("lessor.run_id", s.RunID))
	}
	_, span := t.tracer.Start(ctx, what+label(s), trace.WithTimestamp(at.Time()), trace.WithAttributes(attributes...))
	return span
}

// label names a task in the names of its spans.
func label(s *lease.Spec) string { return cmp.Or(s.Type, s.Queue) }

func eventName(e lease.EventType) string {
	return strings.TrimPrefix(lessorv1.HistoryEventType(e).String(), "HISTORY_EVENT_TYPE_")
}

// taskSpan returns the id of the span of a task's round.
func taskSpan(t *lease.Task) trace.SpanID { return derive("task", t.ID, uint64(t.Round)) }

// attemptSpan returns the id of the span of an attempt.
func attemptSpan(t *lease.Task, attempt uint32, nonce uint64) trace.SpanID {
	return derive("attempt", t.ID, uint64(attempt), nonce)
}

// derive hashes what names a span. Ids need to be unique only within a trace.
func derive(kind string, id lease.TaskID, words ...uint64) trace.SpanID {
	raw := append([]byte(kind), id.String()...)
	for _, w := range words {
		raw = binary.BigEndian.AppendUint64(raw, w)
	}
	sum := sha256.Sum256(raw)
	return trace.SpanID(sum[:len(trace.SpanID{})])
}

type idKey struct{}

// IDs generates the ids of spans: those that follow from a task or a lease, and random ones for all
// others. It is an IDGenerator of the OpenTelemetry SDK.
type IDs struct{}

// NewIDs returns the ids of a span that begins a trace.
func (i IDs) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, i.NewSpanID(ctx, id)
}

// NewSpanID returns the id of a span within a trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if known, ok := ctx.Value(idKey{}).(trace.SpanID); ok {
		return known
	}
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
