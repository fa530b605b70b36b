package coordinator

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// The gauges lessor_tasks count each task of all workspaces and queues in exactly one state, also after a restart. The counters of submitted and ended
// tasks begin at 0 at each start.
func TestTasksAreCounted(t *testing.T) {
	st := memstore.New()
	serve(t, st, func(t *testing.T, r *rig) {
		want := func(ready, parked, scheduled, leased int) {
			t.Helper()
			r.wantMetric(t, `lessor_tasks{state="READY"}`, ready)
			r.wantMetric(t, `lessor_tasks{state="PARKED"}`, parked)
			r.wantMetric(t, `lessor_tasks{state="SCHEDULED"}`, scheduled)
			r.wantMetric(t, `lessor_tasks{state="LEASED"}`, leased)
			r.wantMetric(t, "lessor_leases_live", leased)
		}
		keyed := func(s *lessorv1.TaskSpec) { s.ConcurrencyKey = "k" }
		want(0, 0, 0, 0)
		r.wantMetric(t, `lessor_tasks_ended_total{state="FAILED"}`, 0)
		r.submit(t, keyed)
		a := r.lease(t)
		r.submit(t, keyed)
		r.submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = "other", "far" })
		asked := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}} // a task is parked only when somebody asks for work
		if _, err := r.workers.Lease(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		later := r.submit(t, func(s *lessorv1.TaskSpec) { s.RunAt = timestamppb.New(time.Now().Add(time.Hour)) })
		want(1, 1, 1, 1)

		r.close(t)
		r = newRig(t, st)
		want(1, 1, 1, 1)
		r.complete(t, a, "")
		if _, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: later.GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		want(2, 0, 0, 0)
		r.wantMetric(t, "lessor_tasks_submitted_total", 0)
		r.submit(t, nil)
		r.wantMetric(t, "lessor_tasks_submitted_total", 1)
		r.wantMetric(t, `lessor_tasks_ended_total{state="COMPLETED"}`, 1)
		r.wantMetric(t, `lessor_tasks_ended_total{state="CANCELLED"}`, 1)
		r.close(t)
	})
}

// Every metric that docs/metrics.md describes is served once it has something to count.
func TestMetricsAreServed(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, nil, func(t *testing.T, r *rig) {
		r.submit(t, nil)
		r.complete(t, r.lease(t), "")
		getPath(t, r, "/metrics", http.StatusOK) // counts itself when it has been answered
		served := getPath(t, r, "/metrics", http.StatusOK)
		rows := regexp.MustCompile("(?m)^\\| `(lessor_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
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

// The metrics say when the certificate expires that the next connection gets, so that a renewal that fails is noticed in time.
func TestExpiryOfTheCertificate(t *testing.T) {
	until := func(unix int64) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: time.Unix(unix, 0)}}}}
	}
	newest := until(2000)
	again := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return newest, nil }}
	wantExpiry := func(t *testing.T, r *rig, want string) {
		t.Helper()
		if metrics := getPath(t, r, "/metrics", http.StatusOK); !strings.Contains(metrics, "\nlessor_certificate_expiry_timestamp_seconds "+want+"\n") {
			t.Errorf("the metrics do not have the expiry %s", want)
		}
	}
	serveWith(t, nil, Config{}, func(t *testing.T, r *rig) { wantExpiry(t, r, "NaN") })
	serveWith(t, nil, Config{TLS: until(1000)}, func(t *testing.T, r *rig) { wantExpiry(t, r, "1000") })
	serveWith(t, nil, Config{TLS: again}, func(t *testing.T, r *rig) {
		wantExpiry(t, r, "2000")
		newest = until(3000)
		wantExpiry(t, r, "3000")
	})
}
