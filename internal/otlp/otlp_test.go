package otlp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/tracing"
	"github.com/lessor-dev/lessor/internal/otlp"
)

// receiver takes spans in.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func newReceiver() *receiver {
	return &receiver{got: make(chan *collector.ExportTraceServiceRequest, 1)}
}

// Export implements collector.TraceServiceServer.
func (r *receiver) Export(
	_ context.Context, req *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.got <- req
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(req.Body)
	body := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(raw, body)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	r.got <- body
}

// clear removes the variables that the environment of the test may have.
func clear(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

// A span arrives by either protocol, with the name and the version of the service.
func TestExport(t *testing.T) {
	clear(t)
	r := newReceiver()
	overHTTP := httptest.NewServer(r)
	defer overHTTP.Close()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC := grpc.NewServer()
	collector.RegisterTraceServiceServer(overGRPC, r)
	go func() { _ = overGRPC.Serve(lis) }()
	defer overGRPC.Stop()
	for protocol, endpoint := range map[string]string{"": overHTTP.URL, "http/protobuf": overHTTP.URL, "grpc": "http://" + lis.Addr().String()} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
		p, err := otlp.NewProvider(t.Context(), "lessor", "v1", tracing.IDs{})
		if err != nil {
			t.Fatal(err)
		}
		_, span := p.Tracer("test").Start(t.Context(), "work", trace.WithNewRoot())
		span.End()
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := (<-r.got).GetResourceSpans()[0]
		about := map[string]string{}
		for _, a := range got.GetResource().GetAttributes() {
			about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		if about["service.name"] != "lessor" || about["service.version"] != "v1" || got.GetScopeSpans()[0].GetSpans()[0].GetName() != "work" {
			t.Errorf("%s: got %v", protocol, got)
		}
	}
}

// Without an endpoint, or where the environment says so, there is no provider. A value that cannot
// be used is an error that names the variable, and shows no credential.
func TestEnvironment(t *testing.T) {
	const at = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for env, want := range map[string]string{ // "": none; +: a provider; else part of the error
		"": "",
		at: "+",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://x/traces":                         "+",
		at + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                                      "+",
		at + " OTEL_TRACES_EXPORTER=otlp":                                             "+",
		at + " OTEL_TRACES_EXPORTER=none":                                             "",
		at + " OTEL_SDK_DISABLED=true":                                                "",
		at + " OTEL_TRACES_EXPORTER=console":                                          `OTEL_TRACES_EXPORTER: is "console"; otlp and none are allowed`,
		at + " OTEL_EXPORTER_OTLP_PROTOCOL=http/json":                                 `OTEL_EXPORTER_OTLP_PROTOCOL: is "http/json"; http/protobuf and grpc are allowed`,
		at + " OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=x OTEL_EXPORTER_OTLP_PROTOCOL=grpc": "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318":                                  "OTEL_EXPORTER_OTLP_ENDPOINT: is not a URL",
		"OTEL_EXPORTER_OTLP_ENDPOINT=https://ann:secret@host:port":                    "OTEL_EXPORTER_OTLP_ENDPOINT: is not a URL",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https//ann:secret@host":                   "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: is not a URL",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=ftp://localhost":                          "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		at + " OTEL_TRACES_SAMPLER=1%":                                                "unsupported sampler: 1%",
		at + " OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=x":            "sampler argument",
		at + " OTEL_EXPORTER_OTLP_HEADERS=secret":                                     "parse headers: missing '=",
		at + " OTEL_EXPORTER_OTLP_CERTIFICATE=/none":                                  "/none",
		at + " OTEL_RESOURCE_ATTRIBUTES=novalue":                                      "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Run(env, func(t *testing.T) {
			clear(t)
			for _, v := range strings.Fields(env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			p, err := otlp.NewProvider(t.Context(), "lessor", "v1", tracing.IDs{})
			if p != nil {
				defer func() { _ = p.Shutdown(t.Context()) }()
			}
			switch {
			case want == "" && (p != nil || err != nil), want == "+" && (p == nil || err != nil):
				t.Errorf("got a provider: %v, %v, want %q", p != nil, err, want)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the error %q has a credential", err)
			case len(want) > 1 && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("the error is %v, want %q", err, want)
			}
		})
	}
}
