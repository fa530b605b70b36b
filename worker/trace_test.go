package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

// A handler for a task whose trace is sampled runs in a span, whose parent is what the assignment
// names. Its error, or its panic, is the span's. The context of a handler carries the trace on also
// if it is not sampled.
func TestHandlerSpan(t *testing.T) {
	const (
		sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	)
	for name, c := range map[string]struct {
		traceparent string
		err         error
		panics      bool
		spans       int
	}{
		"no trace":                      {"", nil, false, 0},
		"unsampled":                     {unsampled, nil, false, 0},
		"sampled":                       {sampled, nil, false, 1},
		"sampled, error":                {sampled, worker.Permanent(errors.New("broken")), false, 1},
		"sampled, an error that panics": {sampled, panickingError{}, false, 1},
		"sampled, panics":               {sampled, nil, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spans := tracetest.NewInMemoryExporter()
				lc := workertest.Start(t)
				w := lc.Worker("q", worker.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
				var inside trace.SpanContext
				w.Handle("resize", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					inside = trace.SpanContextFromContext(ctx)
					time.Sleep(time.Second)
					if ctx.Done() == nil {
						t.Error("the context of the handler cannot end")
					}
					if c.panics {
						panic("broken")
					}
					return nil, c.err
				})
				defer lc.Run(w)()
				lc.Do(&lessorv1.TaskSpec{
					Queue: "q", Type: "resize", Traceparent: c.traceparent,
					RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1},
				})
				got := spans.GetSpans()
				if len(got) != c.spans {
					t.Fatalf("there are %d spans, want %d", len(got), c.spans)
				}
				if inside.IsValid() != (c.traceparent != "") || c.traceparent != "" && inside.TraceID().String() != c.traceparent[3:35] {
					t.Errorf("the handler's trace is %v, want that of %q", inside.TraceID(), c.traceparent)
				}
				for _, s := range got {
					if s.Name != "execute resize" || s.Parent.SpanID().String() != sampled[36:52] || s.SpanContext.SpanID() != inside.SpanID() || s.EndTime.Sub(s.StartTime) != time.Second {
						t.Errorf("the span is %s, %v, of %v, for %v", s.Name, s.SpanContext, s.Parent, s.EndTime.Sub(s.StartTime))
					}
					if failed := s.Status.Code == codes.Error; failed != (c.panics || c.err != nil) {
						t.Errorf("the span has the status %v", s.Status)
					}
				}
			})
		})
	}
}
