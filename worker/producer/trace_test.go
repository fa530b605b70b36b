package producer_test

import (
	"testing"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/producer"
)

// A submit belongs to the trace of its own context, also where many share a frame, unless its spec
// names another trace.
func TestSubmitKeepsItsTrace(t *testing.T) {
	const named = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := map[string]string{}
	withTaskService(t, &answering{answer: func(req *lessorv1.SubmitStreamRequest) (all []*lessorv1.SubmitResult) {
		for _, spec := range req.GetTasks() {
			got[spec.GetTaskKey()] = spec.GetTraceparent()
			all = append(all, &lessorv1.SubmitResult{})
		}
		return all
	}}, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		span := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
			TraceFlags: trace.FlagsSampled,
		})
		inSpan := trace.ContextWithSpanContext(t.Context(), span)
		spec := &lessorv1.TaskSpec{Queue: "q", TaskKey: "in a span"}
		if _, err := p.Submit(inSpan, spec); err != nil {
			t.Fatal(err)
		}
		if spec.GetTraceparent() != "" {
			t.Error("Submit has changed the caller's spec")
		}
		if _, err := p.Submit(inSpan, &lessorv1.TaskSpec{Queue: "q", TaskKey: "named", Traceparent: named}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", TaskKey: "none"}); err != nil {
			t.Fatal(err)
		}
	})
	for key, want := range map[string]string{"in a span": "00-01000000000000000000000000000000-0200000000000000-01", "named": named, "none": ""} {
		if got[key] != want {
			t.Errorf("%s: the traceparent is %q, want %q", key, got[key], want)
		}
	}
}
