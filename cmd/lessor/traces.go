package main

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lessor-dev/lessor/coordinator/tracing"
	"github.com/lessor-dev/lessor/internal/otlp"
	"github.com/lessor-dev/lessor/internal/traceparent"
)

// flushTraces is how long a process that ends waits for its last spans to be exported.
const flushTraces = 5 * time.Second

// traces returns the provider of spans, nil if the environment asks for none (package otlp), and a
// function that exports the last spans, or gives up with the second signal. service is the name of
// this service.
func (a *app) traces(service string, log *slog.Logger) (trace.TracerProvider, func(), error) {
	p, err := otlp.NewProvider(context.Background(), service, buildVersion(), tracing.IDs{})
	if err != nil {
		return nil, nil, fail(exitUsage, "the variables are those of OpenTelemetry", "%v", err)
	}
	if p == nil {
		return nil, func() {}, nil
	}
	otel.SetErrorHandler(&lostSpans{log: log})
	log.Info("spans are exported", "to", withoutPassword(otlp.Endpoint()))
	return p, func() {
		ctx, cancel := context.WithTimeout(a.stopNow, flushTraces)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			log.Warn("the last spans could not be exported, and are lost", "error", err)
		}
	}, nil
}

// lostSpans logs that spans are lost, at most once in lostEvery: under load there are hundreds of
// failed exports a second.
type lostSpans struct {
	log  *slog.Logger
	mu   sync.Mutex
	last time.Time
}

const lostEvery = 10 * time.Second

// Handle implements otel.ErrorHandler.
func (l *lostSpans) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.last.IsZero() || now.Sub(l.last) >= lostEvery {
		l.last = now
		l.log.Warn("spans could not be exported, and are lost", "error", err)
	}
}

func withoutPassword(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

// inTrace puts each call into the trace that the environment names, which a command has if it runs
// as a task.
func inTrace(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	if s := os.Getenv("TRACEPARENT"); s != "" {
		if _, ok := traceparent.Parse(s); ok {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", s)
		}
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}
