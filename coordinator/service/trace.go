package service

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/lessor-dev/lessor/coordinator/tracing"
	"github.com/lessor-dev/lessor/internal/traceparent"
	"github.com/lessor-dev/lessor/lease"
)

// traceHeader returns the W3C trace context in the header of a call, or "" if there is none or it
// is malformed. A malformed trace header is ignored, as the W3C recommendation asks, so it never
// causes the refusal of a submit.
func traceHeader(ctx context.Context) string {
	v := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(v) != 1 {
		return ""
	}
	if _, ok := traceparent.Parse(v[0]); !ok {
		return ""
	}
	return v[0]
}

// submitSpans are the spans of submitted tasks, in the order of their specs; none without a tracer.
type submitSpans struct {
	tracer *tracing.Tracer
	ctx    context.Context //nolint:containedctx // of the call
	header string          // trace of the call
	all    []trace.Span
}

// submitSpans returns the spans of a call that submits n tasks. If the call belongs to no trace,
// each of several tasks begins a trace of its own.
func (sh *shared) submitSpans(ctx context.Context, n int) submitSpans {
	s := submitSpans{tracer: sh.Assigner.Tracer, ctx: ctx, header: traceHeader(ctx)}
	if s.tracer != nil && n > 1 && s.header == "" {
		s.ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	return s
}

// begin gives the next spec the trace of the call if it has none of its own, and begins the span of
// its submit.
func (s *submitSpans) begin(spec *lease.Spec) {
	if s.tracer != nil {
		s.all = append(s.all, s.tracer.Submit(s.ctx, spec, s.header))
		return
	}
	spec.Traceparent = cmp.Or(spec.Traceparent, s.header)
}

// end ends the span of spec i, for the task that the submit has made or found, or with the error.
func (s submitSpans) end(i int, task *lease.Task, err error) {
	if s.tracer != nil {
		tracing.End(s.all[i], task, err)
	}
}
