package service_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/tracing"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// A sampled trace of a caller, and the same not sampled.
const (
	callerTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// traced returns a configuration with a tracer, and what gets its spans.
func traced(options ...sdktrace.TracerProviderOption) (coordinator.Config, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	options = append(options, sdktrace.WithSyncer(spans), sdktrace.WithIDGenerator(tracing.IDs{}))
	return coordinator.Config{TracerProvider: sdktrace.NewTracerProvider(options...)}, spans
}

// tree draws spans: each as its name after the names of its parents, from the caller's trace on,
// with the named attributes and an ! if it is an error.
func tree(spans *tracetest.InMemoryExporter, attributes ...attribute.Key) (all []string) {
	got := spans.GetSpans()
	names := map[string]string{"b7ad6b7169203331": "caller"}
	parents := map[string]string{}
	for _, s := range got {
		id := s.SpanContext.SpanID().String()
		names[id], parents[id] = s.Name, s.Parent.SpanID().String()
	}
	for _, s := range got {
		line := s.Name
		for at := s.SpanContext.SpanID().String(); names[parents[at]] != ""; at = parents[at] {
			line = names[parents[at]] + " > " + line
		}
		for _, key := range attributes {
			for _, a := range s.Attributes {
				if a.Key == key {
					line += " " + a.Value.String()
				}
			}
		}
		if s.Status.Code == codes.Error {
			line += " !"
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

func inTrace(ctx context.Context, trace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "traceparent", trace)
}

// One trace joins the submit, each attempt and its verdict, and the assignment names the span of
// its attempt. A lost attempt, one that failed, and a report that came too late are errors.
func TestTraceOfATask(t *testing.T) {
	cfg, spans := traced()
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		spec := &lessorv1.TaskSpec{
			Queue: "q", Type: "resize", HeartbeatTimeout: durationpb.New(time.Second),
			RetryPolicy: &lessorv1.RetryPolicy{InitialBackoff: durationpb.New(time.Second)},
		}
		if _, err := r.Tasks.SubmitTask(inTrace(t.Context(), callerTrace), &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
			t.Fatal(err)
		}
		lost := r.Lease(t)
		r.Start(t, lost)
		time.Sleep(2 * time.Second)
		failed := r.Lease(t)
		fail := &lessorv1.FailRequest{TaskId: failed.GetTask().GetTaskId(), LeaseId: failed.GetLeaseId(), Error: &lessorv1.TaskError{
			Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "no",
		}}
		if _, err := r.Workers.Fail(t.Context(), fail); err != nil {
			t.Fatal(err)
		}
		if got := r.Complete(t, lost, "late"); got.GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
			t.Fatalf("the late report got %v, want SUPERSEDED", got)
		}
		time.Sleep(2 * time.Second)
		last := r.Lease(t)
		r.Start(t, last)
		time.Sleep(time.Second / 2)
		r.Complete(t, last, "done")
		r.Stop()
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		task := "caller > lessor.v1.TaskService/SubmitTask > task resize"
		within := slices.DeleteFunc(tree(spans, "lessor.attempt", "lessor.report", "lessor.verdict", "lessor.reason",
			"lessor.state"),
			func(line string) bool { return !strings.HasPrefix(line, "caller") })
		want := []string{
			"caller > lessor.v1.TaskService/SubmitTask",
			task + " > attempt resize 1 CANCELLED LEASE_EXPIRED !",
			task + " > attempt resize 2 fail COMMITTED NONE !",
			task + " > attempt resize 3 complete COMMITTED NONE",
			task + " > refused resize 1 complete CANCELLED SUPERSEDED !",
			task + " COMPLETED",
		}
		slices.Sort(want)
		if !slices.Equal(within, want) {
			t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(within, "\n"), strings.Join(want, "\n"))
		}
		for _, s := range spans.GetSpans() {
			id := "-" + s.SpanContext.SpanID().String() + "-"
			if s.Name == "attempt resize" && !strings.Contains(lost.GetTraceparent()+failed.GetTraceparent()+last.GetTraceparent(), id) {
				t.Errorf("no assignment has the attempt's span %s as its traceparent", id)
			}
			if took := s.EndTime.Sub(s.StartTime); s.Name == "attempt resize" && s.Status.Code != codes.Error && took != time.Second/2 {
				t.Errorf("the last attempt lasted %v, want from its grant to its verdict, 500ms", took)
			}
			if took := s.EndTime.Sub(s.StartTime); s.Name == "task resize" && took != 4*time.Second+time.Second/2 {
				t.Errorf("the task lasted %v, want from its submit to its end, 4.5s", took)
			}
		}
	})
}

// All ways to submit begin a trace, or go on with the one that is named: in the spec, or else in
// the header. A trace that is not sampled has no spans, and passes to the worker as it is.
func TestTraceOfSubmits(t *testing.T) {
	stream := func(ctx context.Context, t *testing.T, r *wiretest.Rig, spec *lessorv1.TaskSpec) {
		s, err := r.Tasks.SubmitStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// the first is refused
		if err := s.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{}, spec}}); err != nil {
			t.Fatal(err)
		}
		if res, err := s.Recv(); err != nil || res.GetResults()[1].GetTaskId() == "" {
			t.Fatalf("%v (%v), want a task", res, err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	unary := func(ctx context.Context, t *testing.T, r *wiretest.Rig, spec *lessorv1.TaskSpec) {
		if _, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
			t.Fatal(err)
		}
	}
	batch := func(ctx context.Context, t *testing.T, r *wiretest.Rig, spec *lessorv1.TaskSpec) {
		other := &lessorv1.TaskSpec{Queue: "other", Traceparent: unsampled}
		if _, err := r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec, other}}); err != nil {
			t.Fatal(err)
		}
	}
	overHTTP := func(_ context.Context, t *testing.T, r *wiretest.Rig, spec *lessorv1.TaskSpec) {
		req := httptest.NewRequest(http.MethodPost, "/v1/tasks",
			strings.NewReader(`{"queue": "q", "traceparent": "`+spec.GetTraceparent()+`"}`))
		w := httptest.NewRecorder()
		if r.HTTP.Handler.ServeHTTP(w, req); w.Code >= 300 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	const call = "lessor.v1.TaskService/SubmitTask"
	for name, c := range map[string]struct {
		submit       func(context.Context, *testing.T, *wiretest.Rig, *lessorv1.TaskSpec)
		header, spec string
		want         []string // of the submit and the task
		worker       string   // its traceparent; empty: that of the attempt
	}{
		"stream":                 {stream, "", "", []string{"submit q", "submit q > task q"}, ""},
		"stream, header":         {stream, callerTrace, "", []string{"caller > submit q", "caller > submit q > task q"}, ""},
		"stream, spec":           {stream, unsampled, callerTrace, []string{"caller > submit q", "caller > submit q > task q"}, ""},
		"stream, unsampled":      {stream, unsampled, "", nil, unsampled},
		"stream, unsampled spec": {stream, callerTrace, unsampled, nil, unsampled},
		"unary":                  {unary, "", "", []string{call, call + " > task q"}, ""},
		"unary, header":          {unary, callerTrace, "", []string{"caller > " + call, "caller > " + call + " > task q"}, ""},
		"unary, unsampled":       {unary, unsampled, "", nil, "00-0af7651916cd43dd8448eb211c80319c-*-00"},
		"batch":                  {batch, "", "", []string{"lessor.v1.TaskService/BatchSubmitTasks", "submit q", "submit q > task q"}, ""},
		"batch, header":          {batch, callerTrace, "", []string{"caller > lessor.v1.TaskService/BatchSubmitTasks", "caller > lessor.v1.TaskService/BatchSubmitTasks > task q"}, ""},
		"HTTP":                   {overHTTP, "", "", []string{"submit q", "submit q > task q"}, ""},
		"HTTP, spec":             {overHTTP, "", callerTrace, []string{"caller > submit q", "caller > submit q > task q"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, spans := traced()
			wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
				ctx := t.Context()
				if c.header != "" {
					ctx = inTrace(ctx, c.header)
				}
				c.submit(ctx, t, r, &lessorv1.TaskSpec{Queue: "q", Traceparent: c.spec})
				a := r.Lease(t)
				r.Complete(t, a, "")
				r.Stop()
				if err := <-r.Served; err != nil {
					t.Error(err)
				}
				var got []string
				attempt := ""
				for _, s := range spans.GetSpans() {
					if s.Name == "attempt q" {
						attempt = "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
					}
				}
				for _, line := range tree(spans) {
					if !strings.Contains(line, "attempt") && !strings.Contains(line, "WorkerService") {
						got = append(got, line)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("the spans are %q, want %q", got, c.want)
				}
				want := c.worker
				if want == "" {
					want = attempt
				}
				if before, after, some := strings.Cut(want, "*"); some {
					if !strings.HasPrefix(a.GetTraceparent(), before) || !strings.HasSuffix(a.GetTraceparent(), after) {
						t.Errorf("the worker's traceparent is %q, want %q", a.GetTraceparent(), want)
					}
				} else if a.GetTraceparent() != want {
					t.Errorf("the worker's traceparent is %q, want %q", a.GetTraceparent(), want)
				}
			})
		})
	}
}

// A coordinator that samples nothing makes no spans, and does not cut the trace of a producer and a
// worker that do: the worker's span is a child of the caller's. That was decided with the submit:
// it is so after a start with another sampler, too.
func TestTraceOfOthersPasses(t *testing.T) {
	st := memstore.New()
	for _, sampler := range []sdktrace.Sampler{sdktrace.NeverSample(), sdktrace.AlwaysSample()} {
		cfg, spans := traced(sdktrace.WithSampler(sampler))
		wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) {
			if sampler == sdktrace.NeverSample() {
				spec := &lessorv1.TaskSpec{Queue: "q"}
				if _, err := r.Tasks.SubmitTask(inTrace(t.Context(), callerTrace), &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if task := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Traceparent = callerTrace }); task.GetSpec().GetTraceparent() != callerTrace {
						t.Errorf("the task has the traceparent %q, want the caller's, %q",
							task.GetSpec().GetTraceparent(), callerTrace)
					}
				}
			}
			for range 2 {
				a := r.Lease(t)
				if got := a.GetTraceparent(); got != callerTrace {
					t.Errorf("%s: the worker's traceparent is %q, want the caller's, %q", sampler.Description(), got, callerTrace)
				}
				r.Complete(t, a, "")
			}
			for _, s := range tree(spans) {
				if strings.Contains(s, " q") {
					t.Errorf("%s: there is a span of a task: %s", sampler.Description(), s)
				}
			}
		})
	}
}

// A restart between the grant and the verdict changes nothing: the ids of spans follow from the
// task and the lease.
func TestTraceSurvivesARestart(t *testing.T) {
	cfg, spans := traced()
	st := memstore.New()
	var a *lessorv1.Assignment
	wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Traceparent = callerTrace })
		a = r.Lease(t)
	})
	wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) { r.Complete(t, a, "") })
	for _, s := range spans.GetSpans() {
		if s.Name == "attempt q" && strings.Contains(a.GetTraceparent(), s.SpanContext.SpanID().String()) {
			return
		}
	}
	t.Errorf("the spans are %v, want one that is %s", tree(spans), a.GetTraceparent())
}

// A task that is deleted ends its spans; another round of a task has a span of its own.
func TestTraceOfDeletedAndRetriedTasks(t *testing.T) {
	cfg, spans := traced()
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		deleted := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Traceparent = callerTrace })
		r.Lease(t)
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: deleted.GetTaskId(), Force: true}); err != nil {
			t.Fatal(err)
		}
		retried := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Traceparent = callerTrace })
		for range 2 {
			if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: retried.GetTaskId()}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: retried.GetTaskId()}); err != nil {
				t.Fatal(err)
			}
		}
		r.Stop()
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		var got []string
		ids := map[string]bool{}
		for _, s := range spans.GetSpans() {
			if strings.HasPrefix(s.Name, "task") {
				ids[s.SpanContext.SpanID().String()] = true
			}
		}
		for _, line := range tree(spans, "lessor.deleted", "lessor.state", "lessor.verdict", "lessor.reason") {
			if strings.Contains(line, "task q") {
				got = append(got, line)
			}
		}
		want := []string{
			"caller > submit q > task q > attempt q CANCELLED REVOKED !", "caller > submit q > task q CANCELLED TASK_CANCELLED",
			"caller > submit q > task q CANCELLED TASK_CANCELLED",
			"caller > submit q > task q true",
		}
		if !slices.Equal(got, want) || len(ids) != 3 {
			t.Errorf("the spans are %q with %d ids, want %q with 3", got, len(ids), want)
		}
	})
}

// The span of a FAILED task is an error, and that of the next round begins with the RetryTask. A
// submit that is refused has a span that is an error.
func TestTraceOfFailures(t *testing.T) {
	cfg, spans := traced()
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		submitted := r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.Traceparent, s.RunId, s.RetryPolicy = callerTrace, "run", &lessorv1.RetryPolicy{MaxAttempts: 1}
		})
		a := r.Lease(t)
		fail := &lessorv1.FailRequest{TaskId: submitted.GetTaskId(), LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{
			Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "secret",
		}}
		if _, err := r.Workers.Fail(t.Context(), fail); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, err := r.Tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: submitted.GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r.Complete(t, r.Lease(t), "")
		again := &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k", Traceparent: callerTrace}
		if _, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: again}); err != nil {
			t.Fatal(err)
		}
		again.Payload = []byte("other")
		if _, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: again}); err == nil {
			t.Fatal("a key with another payload was taken")
		}
		r.Stop()
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		var got []string
		for _, line := range tree(spans, "lessor.run_id", "lessor.state") {
			if strings.HasPrefix(line, "caller") && !strings.Contains(line, "attempt") {
				got = append(got, line)
			}
		}
		want := []string{
			"caller > submit q", "caller > submit q !", "caller > submit q", "caller > submit q > task q run COMPLETED", "caller > submit q > task q run FAILED !",
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the spans are %q, want %q", got, want)
		}
		for _, s := range spans.GetSpans() {
			if took := s.EndTime.Sub(s.StartTime); s.Name == "task q" && s.Status.Code != codes.Error && took != time.Second {
				t.Errorf("the second round lasted %v, want from the RetryTask to its end, 1s", took)
			}
		}
	})
}
