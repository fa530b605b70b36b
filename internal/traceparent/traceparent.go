// Package traceparent reads and writes the W3C trace context, by which spans of several programs
// join one trace.
package traceparent

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Parse reads a trace context of version 00: version, trace id, parent id and flags in lower-case
// hexadecimal digits, neither id zero.
func Parse(s string) (trace.SpanContext, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 4 || parts[0] != "00" || len(parts[3]) != 2 || strings.Trim(parts[3], "0123456789abcdef") != "" {
		return trace.SpanContext{}, false
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return trace.SpanContext{}, false
	}
	spanID, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return trace.SpanContext{}, false
	}
	var flags trace.TraceFlags
	if Sampled(s) {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    traceID,
		SpanID:     spanID,
		TraceFlags: flags,
		Remote:     true,
	}), true
}

// Sampled reports whether a valid trace context asks for spans. It costs next to nothing.
func Sampled(s string) bool {
	return s != "" && strings.IndexByte("13579bdf", s[len(s)-1]) >= 0
}

// Format writes a trace context; "" if it is not valid.
func Format(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}

// Of returns the trace context of the span in ctx; "" if there is none.
func Of(ctx context.Context) string { return Format(trace.SpanContextFromContext(ctx)) }

// With returns a context whose spans are children of s; ctx itself if s is not valid.
func With(ctx context.Context, s string) context.Context {
	if c, ok := Parse(s); ok {
		return trace.ContextWithRemoteSpanContext(ctx, c)
	}
	return ctx
}
