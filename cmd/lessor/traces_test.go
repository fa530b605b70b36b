package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// startReceiver is the command receiver: from then on, the commands of the script export their
// spans.
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

// writeSpans is the command spans FILE: it writes the spans that have parents, each after the names
// of its parents.
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

// Lost spans are logged at once, and then at most every 10 s, however many exports fail.
func TestLostSpansAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &lostSpans{log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 25 { // 0 s to 24 s
			l.Handle(errors.New("refused"))
			time.Sleep(time.Second)
		}
		if got := strings.Count(out.String(), "refused"); got != 3 {
			t.Errorf("there are %d lines in 25 s, want 3:\n%s", got, out.String())
		}
	})
}

// The second signal ends the export of the last spans, which otherwise may last some seconds if the
// receiver does not answer.
func TestSecondSignalEndsTheExport(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
	}))
	defer hanging.Close()
	defer close(release)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", hanging.URL)
	stopNow, second := context.WithCancel(t.Context())
	a := &app{ctx: t.Context(), stopNow: stopNow}
	var out strings.Builder
	spans, flush, err := a.traces("lessor", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := spans.Tracer("test").Start(t.Context(), "work")
	span.End()
	go func() {
		<-asked
		second()
	}()
	if flush(); stopNow.Err() == nil || !strings.Contains(out.String(), `error="context canceled"`) {
		t.Errorf("the export did not end with the second signal:\n%s", out.String())
	}
}
