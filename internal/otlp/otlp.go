// Package otlp exports spans over OTLP, as the standard environment variables of OpenTelemetry say. Those that it does not read itself, the SDK reads: headers,
// certificates, compression, timeouts, the sampler (OTEL_TRACES_SAMPLER) and the queue of spans (OTEL_BSP_...).
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

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

// NewProvider returns a provider that exports spans to Endpoint, nil if that is empty. service is the name of the service unless the environment has one.
// An error names the variable that is wrong. Spans that cannot be exported are dropped; whoever makes a span never waits.
func NewProvider(ctx context.Context, service, version string, ids trace.IDGenerator) (*trace.TracerProvider, error) {
	if Endpoint() == "" {
		return nil, nil
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about), trace.WithIDGenerator(ids)), nil
}

func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if kind := os.Getenv(varExporter); kind != "" && kind != "otlp" {
		return nil, fmt.Errorf("%s: is %q; otlp and none are allowed", varExporter, kind)
	}
	for _, name := range []string{varTracesEndpoint, varEndpoint} {
		if at := os.Getenv(name); at != "" {
			if u, err := url.Parse(at); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return nil, fmt.Errorf("%s: %q is not a URL such as http://localhost:4318", name, at)
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
