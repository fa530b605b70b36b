package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanReceiver takes in the spans of the commands of a script.
type spanReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	names map[string]string // "SERVICE: NAME", by span id
	spans []*tracev1.Span
}

// startReceiver is the command receiver: from then on, the commands of the script export their spans.
func startReceiver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: receiver")
	}
	r := &spanReceiver{names: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.receive))
	ts.Defer(r.Close)
	ts.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	*ts.Value("spans").(**spanReceiver) = r
}

func (r *spanReceiver) receive(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(req.Body)
	body := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(raw, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range body.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.names[string(s.GetSpanId())] = service + ": " + s.GetName()
				r.spans = append(r.spans, s)
			}
		}
	}
}

// writeSpans is the command spans FILE: it writes the spans that have parents, each after the names of its parents.
func writeSpans(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: spans FILE")
	}
	r := *ts.Value("spans").(**spanReceiver)
	r.mu.Lock()
	defer r.mu.Unlock()
	parents := map[string]string{}
	for _, s := range r.spans {
		parents[string(s.GetSpanId())] = string(s.GetParentSpanId())
	}
	var lines []string
	for id, line := range r.names {
		for at := parents[id]; r.names[at] != ""; at = parents[at] {
			line = r.names[at] + " > " + line
		}
		if parents[id] != "" {
			lines = append(lines, line+"\n")
		}
	}
	slices.Sort(lines)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o600))
}
