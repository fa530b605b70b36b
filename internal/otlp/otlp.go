// Package otlp exports spans over OTLP, as the standard environment variables of OpenTelemetry say.
// Those that it does not read itself, the SDK reads: headers, certificates, compression, timeouts,
// the sampler (OTEL_TRACES_SAMPLER) and the queue of spans (OTEL_BSP_...).
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// The variables that say whether and how spans are exported.
const (
	varEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	varTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	varProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	varTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	varExporter       = "OTEL_TRACES_EXPORTER"
	varDisabled       = "OTEL_SDK_DISABLED"
)

// Endpoint returns where spans go: the value of the variable, "" if none are exported.
func Endpoint() string {
	if strings.EqualFold(os.Getenv(varDisabled), "true") || os.Getenv(varExporter) == "none" {
		return ""
	}
	return cmp.Or(os.Getenv(varTracesEndpoint), os.Getenv(varEndpoint))
}

// NewProvider returns a provider that exports spans to Endpoint, nil if that is empty. service is
// the name of the service unless the environment has one. An error names the variable that is
// wrong. Spans that cannot be exported are dropped; whoever makes a span never waits.
func NewProvider(ctx context.Context, service, version string, ids trace.IDGenerator) (*trace.TracerProvider, error) {
	if Endpoint() == "" {
		return nil, nil
	}
	wrong := &complaints{}
	otel.SetErrorHandler(wrong)
	otel.SetLogger(logr.New(wrong))
	defer otel.SetLogger(logr.Discard())
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service),
		attribute.String("service.version", version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about), trace.WithIDGenerator(ids))
	if err := wrong.err(); err != nil {
		return nil, errors.Join(fmt.Errorf("a variable OTEL_... cannot be used: %w", err), p.Shutdown(ctx))
	}
	return p, nil
}

// complaints are what OpenTelemetry says of the environment: by itself it prints that, and goes on
// with its defaults, such as to sample everything. What it says beside the error is left out,
// because that is the value of the variable, which may be a credential.
type complaints struct {
	mu  sync.Mutex
	all []error
}

func (c *complaints) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.all...)
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

// Error implements logr.LogSink, as the other methods do, which ignore all that is no error.
func (c *complaints) Error(err error, what string, _ ...any) {
	c.Handle(fmt.Errorf("%s: %w", what, err))
}
func (c *complaints) Init(logr.RuntimeInfo)          {}
func (c *complaints) Enabled(int) bool               { return false }
func (c *complaints) Info(int, string, ...any)       {}
func (c *complaints) WithValues(...any) logr.LogSink { return c }
func (c *complaints) WithName(string) logr.LogSink   { return c }

func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if kind := os.Getenv(varExporter); kind != "" && kind != "otlp" {
		return nil, fmt.Errorf("%s: is %q; otlp and none are allowed", varExporter, kind)
	}
	for _, name := range []string{varTracesEndpoint, varEndpoint} {
		if at := os.Getenv(name); at != "" {
			if u, err := url.Parse(at); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				// the value may have a password
				return nil, fmt.Errorf("%s: is not a URL such as http://localhost:4318", name)
			}
		}
	}
	name := varTracesProtocol
	if os.Getenv(name) == "" {
		name = varProtocol
	}
	switch protocol := os.Getenv(name); protocol {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("%s: is %q; http/protobuf and grpc are allowed", name, protocol)
	}
}
