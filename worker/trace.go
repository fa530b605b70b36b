package worker

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lessor-dev/lessor/internal/traceparent"
)

// startSpan returns the context for the handler. It carries on the trace of the task, if that has
// one. The span is nil if the trace is not sampled.
func (a *attempt) startSpan() (context.Context, trace.Span) {
	t := &a.task
	if t.Traceparent == "" {
		return a.ctx, nil
	}
	ctx := traceparent.With(a.ctx, t.Traceparent)
	if !traceparent.Sampled(t.Traceparent) {
		return ctx, nil
	}
	return a.w.tracer.Start(ctx, "execute "+cmp.Or(t.Type, t.Queue),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("lessor.task_id", t.ID), attribute.Int("lessor.attempt", int(t.Attempt)),
			attribute.String("lessor.worker", a.w.cfg.Name),
			attribute.String("lessor.queue", t.Queue), attribute.String("lessor.type", t.Type),
		))
}

// endSpan ends the span of a handler, which may be nil.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if err != nil {
		defer func() { // the methods of the error may panic; finish tells of it
			if recover() != nil {
				span.SetStatus(codes.Error, "the methods of the handler's error panic")
			}
		}()
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}
