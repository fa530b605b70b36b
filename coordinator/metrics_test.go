package coordinator_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// The gauges lessor_tasks count each task of all workspaces and queues in exactly one state, also
// after a restart. The counters of submitted and ended tasks begin at 0 at each start.
func TestTasksAreCounted(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		want := func(ready, parked, scheduled, leased int) {
			t.Helper()
			r.WantMetric(t, `lessor_tasks{state="READY"}`, ready)
			r.WantMetric(t, `lessor_tasks{state="PARKED"}`, parked)
			r.WantMetric(t, `lessor_tasks{state="SCHEDULED"}`, scheduled)
			r.WantMetric(t, `lessor_tasks{state="LEASED"}`, leased)
			r.WantMetric(t, "lessor_leases_live", leased)
		}
		keyed := func(s *lessorv1.TaskSpec) { s.ConcurrencyKey = "k" }
		want(0, 0, 0, 0)
		r.WantMetric(t, `lessor_tasks_ended_total{state="FAILED"}`, 0)
		r.Submit(t, keyed)
		a := r.Lease(t)
		r.Submit(t, keyed)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = "other", "far" })
		// a task is parked only when somebody asks for work
		asked := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}
		if _, err := r.Workers.Lease(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		later := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunAt = timestamppb.New(time.Now().Add(time.Hour)) })
		want(1, 1, 1, 1)

		r.Close(t)
		r = wiretest.New(t, st)
		want(1, 1, 1, 1)
		r.Complete(t, a, "")
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: later.GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		want(2, 0, 0, 0)
		r.WantMetric(t, "lessor_tasks_submitted_total", 0)
		r.Submit(t, nil)
		r.WantMetric(t, "lessor_tasks_submitted_total", 1)
		r.WantMetric(t, `lessor_tasks_ended_total{state="COMPLETED"}`, 1)
		r.WantMetric(t, `lessor_tasks_ended_total{state="CANCELLED"}`, 1)
		r.Close(t)
	})
}

// The wait of a task is measured from when it became READY. A lease of which nothing was heard
// interrupts it.
func TestWaitsAreMeasured(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunAt = timestamppb.New(time.Now().Add(time.Hour)) })
		time.Sleep(time.Hour + 100*time.Second)
		r.Lease(t) // nobody acknowledges it
		r.WantMetric(t, "lessor_wait_seconds_sum", 100)
		time.Sleep(time.Hour)
		r.Lease(t)
		r.WantMetric(t, "lessor_wait_seconds_count", 2)
		metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
		sum, err := strconv.ParseFloat(regexp.MustCompile(`lessor_wait_seconds_sum (\S+)`).FindStringSubmatch(metrics)[1], 64)
		if err != nil || sum <= 3700 || sum >= 3800 {
			t.Errorf("the waits add up to %v s (%v), want 100 s, and these and an hour without the first attempt", sum, err)
		}
	})
}

// Calls are counted by method and code, over gRPC and over HTTP, refused ones included. Only calls
// that are not streams are measured.
func TestCallsAreCounted(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.WantMetric(t, `lessor_calls_total{code="OK",method="SubmitTask"}`, 0)
		r.Submit(t, nil)
		if _, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{}); err == nil {
			t.Fatal("a task without a queue was accepted")
		}
		wiretest.GetPath(t, r, "/v1/tasks/t0000200000000001", http.StatusOK)
		wiretest.GetPath(t, r, "/v1/tasks/t0000200000000002", http.StatusNotFound)
		if err := r.TakeBackup(t); err != nil {
			t.Fatal(err)
		}
		r.WantMetric(t, `lessor_calls_total{code="OK",method="SubmitTask"}`, 1)
		r.WantMetric(t, `lessor_calls_total{code="InvalidArgument",method="SubmitTask"}`, 1)
		r.WantMetric(t, `lessor_call_seconds_count{method="SubmitTask"}`, 2)
		r.WantMetric(t, `lessor_calls_total{code="OK",method="GetTask"}`, 1)
		r.WantMetric(t, `lessor_calls_total{code="NotFound",method="GetTask"}`, 1)
		r.WantMetric(t, `lessor_calls_total{code="OK",method="Backup"}`, 1)
		if strings.Contains(wiretest.GetPath(t, r, "/metrics", http.StatusOK), `lessor_call_seconds_count{method="Backup"}`) {
			t.Error("the duration of a stream is measured")
		}
	})
}

// The metrics say when the client of a backup has confirmed it, and when one last failed, on the
// way or at its client, also after a restart. A client that is killed confirms nothing.
func TestTimesOfBackups(t *testing.T) {
	st := memstore.New()
	confirm := func(t *testing.T, r *wiretest.Rig, id, problem string) {
		t.Helper()
		if err := r.ConfirmBackup(t, id, problem); err != nil {
			t.Error(err)
		}
	}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		id := r.BackUp(t)
		synctest.Wait()
		r.WantMetric(t, "lessor_backup_last_success_timestamp_seconds", 0)
		confirm(t, r, id, "")
		taken := time.Now()
		time.Sleep(time.Minute)
		confirm(t, r, id, "") // a repeat
		confirm(t, r, id, "no space left")
		wantTimestamp(t, r, "lessor_backup_last_success_timestamp_seconds", taken)
		r.WantMetric(t, "lessor_backup_last_failure_timestamp_seconds", 0)
		wiretest.WantContains(t, "the log", r.Log.String(), `"msg":"a backup was taken"`)
		old, id := id, r.BackUp(t)
		for _, unknown := range []string{old, "other"} {
			if err := r.ConfirmBackup(t, unknown, ""); status.Code(err) != codes.NotFound || refusal.CodeOf(err) != refusal.CodeNoBackup {
				t.Errorf("ConfirmBackup of another backup than the last: %v, want NOT_FOUND and %s", err, refusal.CodeNoBackup)
			}
		}
		confirm(t, r, id, "no space left")
		wantTimestamp(t, r, "lessor_backup_last_success_timestamp_seconds", taken)
		wantTimestamp(t, r, "lessor_backup_last_failure_timestamp_seconds", time.Now())
		wiretest.WantContains(t, "the log", r.Log.String(), `"msg":"a backup failed at its client"`)
		wiretest.WantContains(t, "the log", r.Log.String(), `"problem":"no space left"`)
	})
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of the fake clock
	for range 2 {
		wiretest.Serve(t, wiretest.ShortStore{Store: st}, func(t *testing.T, r *wiretest.Rig) {
			wantTimestamp(t, r, "lessor_backup_last_success_timestamp_seconds", began)
			time.Sleep(time.Minute)
			if err := r.TakeBackup(t); err == nil {
				t.Fatal("the backup succeeded")
			}
			wantTimestamp(t, r, "lessor_backup_last_success_timestamp_seconds", began)
			wantTimestamp(t, r, "lessor_backup_last_failure_timestamp_seconds", began.Add(time.Minute))
			wiretest.WantContains(t, "the log", r.Log.String(), `"msg":"a backup failed"`)
		})
	}
}

// wantTimestamp checks a metric that is a time.
func wantTimestamp(t *testing.T, r *wiretest.Rig, name string, want time.Time) {
	t.Helper()
	line := "\n" + name + " " + strconv.FormatFloat(float64(want.UnixNano())/1e9, 'g', -1, 64) + "\n"
	if !strings.Contains(wiretest.GetPath(t, r, "/metrics", http.StatusOK), line) {
		t.Errorf("the metrics lack %q", line)
	}
}

// Refused credentials are counted by what is wrong with them, on gRPC and HTTP. A caller with a
// good credential of a wrong role is none of them.
func TestRefusedCredentialsAreCounted(t *testing.T) {
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		viewer, _ := r.Issue(t, "acme", auth.Viewer)
		get := func(path, token string) string {
			w := httptest.NewRecorder()
			asked := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			if token != "" {
				asked.Header.Set("Authorization", "Bearer "+token)
			}
			r.HTTP.Handler.ServeHTTP(w, asked)
			return w.Body.String()
		}
		want := func(reason string, n int) {
			t.Helper()
			if line := fmt.Sprintf("\nlessor_credentials_refused_total{reason=%q} %d\n", reason, n); !strings.Contains(get("/metrics", viewer), line) {
				t.Errorf("the metrics lack %q", line)
			}
		}
		for _, p := range auth.Problems() {
			want(string(p), 0)
		}
		for _, ctx := range []context.Context{t.Context(), wiretest.WithToken(t.Context(), "secret"), wiretest.WithToken(t.Context(), viewer)} {
			if err := r.Invoke(ctx, lessorv1.WorkerService_Lease_FullMethodName); err == nil {
				t.Fatal("the call was let in")
			}
		}
		get("/metrics", "")
		get("/v1/tasks/t0000200000000001", "")
		w := httptest.NewRecorder()
		r.HTTP.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost,
			"/v1/tasks/t0000200000000001/started", strings.NewReader("{}")))
		want("missing", 3)
		want("malformed", 1)
		want("task_token", 1)
		want("expired", 0)
	})
}

// Every metric that docs/metrics.md describes is served once it has something to count, except
// those of a standby.
func TestMetricsAreServed(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		r.Complete(t, r.Lease(t), "")
		wiretest.GetPath(t, r, "/metrics", http.StatusOK) // counts itself when it has been answered
		served := wiretest.GetPath(t, r, "/metrics", http.StatusOK) + wiretest.GetPath(t, r, "/metrics/queues", http.StatusOK)
		ours, _, _ := strings.Cut(string(page), "\n## Of a standby\n")
		rows := regexp.MustCompile("(?m)^\\| `(lessor_[a-z_]+)`").FindAllStringSubmatch(ours, -1)
		for _, row := range rows {
			if !strings.Contains(served, "\n# TYPE "+row[1]+" ") {
				t.Errorf("%s is not served", row[1])
			}
		}
		if len(rows) < 10 {
			t.Errorf("docs/metrics.md has %d metrics, want at least 10", len(rows))
		}
	})
}

// The metrics say when the certificate expires that the next connection gets, so that a renewal
// that fails is noticed in time.
func TestExpiryOfTheCertificate(t *testing.T) {
	until := func(unix int64) *tls.Config {
		return &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: time.Unix(unix, 0)}}},
		}
	}
	newest := until(2000)
	again := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return newest, nil },
	}
	wantExpiry := func(t *testing.T, r *wiretest.Rig, want string) {
		t.Helper()
		if metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK); !strings.Contains(metrics, "\nlessor_certificate_expiry_timestamp_seconds "+want+"\n") {
			t.Errorf("the metrics do not have the expiry %s", want)
		}
	}
	wiretest.ServeWith(t, nil, coordinator.Config{}, func(t *testing.T, r *wiretest.Rig) { wantExpiry(t, r, "NaN") })
	wiretest.ServeWith(t, nil, coordinator.Config{TLS: until(1000)},
		func(t *testing.T, r *wiretest.Rig) { wantExpiry(t, r, "1000") })
	wiretest.ServeWith(t, nil, coordinator.Config{TLS: again}, func(t *testing.T, r *wiretest.Rig) {
		wantExpiry(t, r, "2000")
		newest = until(3000)
		wantExpiry(t, r, "3000")
	})
}
