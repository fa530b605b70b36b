package coordinator_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// /metrics/queues has the numbers of each queue of the workspaces in the query, of the default one
// if there is none.
func TestMetricsOfQueues(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.ConcurrencyKey = "mail", "k" })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.ConcurrencyKey = "mail", "k" })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "mail" })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "mail" })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.RunAt = "mail", timestamppb.New(time.Now().Add(time.Hour)) })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = "other", `a "b"` })
		if _, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"mail"}, MaxTasks: 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Admin.UpdateQueue(t.Context(), &lessorv1.UpdateQueueRequest{Name: "mail", Paused: new(true)}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{"mail", "mail", `a "b"`} {
			workspace := map[bool]string{true: "default", false: "other"}[queue == "mail"]
			gone := r.Submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = workspace, queue })
			if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: gone.GetTaskId()}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(9 * time.Second)
		mail := []string{
			`lessor_queue_tasks{queue="mail",state="READY",workspace="default"} 1`,
			`lessor_queue_tasks{queue="mail",state="PARKED",workspace="default"} 1`,
			`lessor_queue_tasks{queue="mail",state="SCHEDULED",workspace="default"} 1`,
			`lessor_queue_tasks{queue="mail",state="LEASED",workspace="default"} 2`,
			`lessor_queue_kept_tasks{queue="mail",state="COMPLETED",workspace="default"} 0`,
			`lessor_queue_kept_tasks{queue="mail",state="FAILED",workspace="default"} 0`,
			`lessor_queue_kept_tasks{queue="mail",state="CANCELLED",workspace="default"} 2`,
			`lessor_queue_oldest_ready_seconds{queue="mail",workspace="default"} 9`,
			`lessor_queue_paused{queue="mail",workspace="default"} 1`,
			`lessor_queue_oldest_blocker_seconds{queue="mail",workspace="default"} 9`,
			`lessor_queue_takers{queue="mail",workspace="default"} 0`, `lessor_queues_left_out 0`,
		}
		other := []string{
			`lessor_queue_tasks{queue="a \"b\"",state="READY",workspace="other"} 1`,
			`lessor_queue_kept_tasks{queue="a \"b\"",state="CANCELLED",workspace="other"} 1`,
			`lessor_queue_oldest_blocker_seconds{queue="a \"b\"",workspace="other"} 0`,
			`lessor_queue_takers{queue="a \"b\"",workspace="other"} 0`,
		}
		for query, want := range map[string][2][]string{ // what is shown, and what is not
			"":                      {mail, other},
			"?workspace_id=other":   {other, mail[:1]},
			"?workspace_id=nowhere": {mail[len(mail)-1:], slices.Concat(mail[:1], other)},
			"?workspace_id=other&workspace_id=default&workspace_id=&workspace_id=other": {slices.Concat(mail, other), nil},
		} {
			text := "\n" + wiretest.GetPath(t, r, "/metrics/queues"+query, http.StatusOK)
			for _, line := range want[0] {
				if strings.Count(text, "\n"+line+"\n") != 1 {
					t.Errorf("with the query %q, %s is not there once:\n%s", query, line, text)
				}
			}
			for _, line := range want[1] {
				if strings.Contains(text, line) {
					t.Errorf("with the query %q, %s is there", query, line)
				}
			}
		}
	})
}

// Whoever sees only the metrics reads there that the age of the oldest READY task may be too low.
func TestOldestReadySaysThatItMayBeTooLow(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		for path, name := range map[string]string{"/metrics": "lessor_oldest_ready_seconds", "/metrics/queues": "lessor_queue_oldest_ready_seconds"} {
			_, help, _ := strings.Cut(wiretest.GetPath(t, r, path, http.StatusOK), "# HELP "+name+" ")
			if help, _, _ = strings.Cut(help, "\n"); !strings.HasSuffix(help, "If there are many lines of tasks, not all are looked at, and it may be too low.") {
				t.Errorf("HELP of %s is %q", name, help)
			}
		}
	})
}

// One scrape shows a limited number of queues, and says if there are more. Bad requests are refused
// like others.
func TestMetricsOfManyQueues(t *testing.T) {
	defer func(most int) { *coordinator.MostMeasured = most }(*coordinator.MostMeasured)
	*coordinator.MostMeasured = 2
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, name := range []string{"a", "b", "c"} {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = name })
		}
		text := wiretest.GetPath(t, r, "/metrics/queues", http.StatusOK)
		if n := strings.Count(text, "\nlessor_queue_paused{"); n != 2 || !strings.Contains(text, "\nlessor_queues_left_out 1\n") {
			t.Errorf("%d queues are shown, want 2 and that there are more:\n%s", n, text)
		}
		for query, field := range map[string]string{
			"?workspace_id=" + strings.Repeat("w", 300): "workspace_id: ", "?" + strings.Repeat("workspace_id=a&", coordinator.MostWorkspaces+1): "workspace_id: ",
		} {
			if text := wiretest.GetPath(t, r, "/metrics/queues"+query, http.StatusBadRequest); !strings.HasPrefix(text, field) {
				t.Errorf("the refusal is %q, want one of %s", text, field)
			}
		}
	})
}

// X1: who reads the metrics of queues sees those of the own tenant.
func TestMetricsOfQueuesOfATenant(t *testing.T) {
	t.Attr("rules", "X1")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		for _, tenant := range []string{"acme", "globex"} {
			token, _ := r.Issue(t, tenant, auth.Producer)
			if _, err := r.Tasks.SubmitTask(wiretest.WithToken(t.Context(), token), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "of-" + tenant}}); err != nil {
				t.Fatal(err)
			}
		}
		token, _ := r.Issue(t, "acme", auth.Viewer)
		w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/queues", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		r.HTTP.Handler.ServeHTTP(w, req)
		if text := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(text, "of-acme") || strings.Contains(text, "globex") {
			t.Errorf("status %d, want the queues of acme alone:\n%s", w.Code, text)
		}
	})
}
