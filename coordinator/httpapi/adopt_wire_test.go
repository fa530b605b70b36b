package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// H2, V15: a get shows the results that came too late, a list says only that there are some. An
// operator adopts one that the body names, or the newest; not while a worker holds the task, and
// not twice. The audit says who did it, and who tried.
func TestAdoptOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 V15")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		first := w.SubmitAndLease("", "q")
		adopt := func(body string) wiretest.HTTPResponse {
			return w.Send(http.MethodPost, "/v1/tasks/"+first.ID+":adopt", "", body)
		}
		shown := func(path string) []any {
			answer := w.Send(http.MethodGet, path, "", "")
			answer.Want(t, http.StatusOK)
			task, one := answer.Body["task"].(map[string]any)
			if !one {
				task = answer.Body["tasks"].([]any)[0].(map[string]any)
			}
			all, _ := task["discarded"].([]any)
			return all
		}
		if none := shown("/v1/tasks/" + first.ID); none != nil {
			t.Errorf("a task without late results shows %v", none)
		}
		adopt("").Want(t, http.StatusConflict, "code", "E.TASK.STATE", "taskId", first.ID, "taskState", "LEASED")

		// at the very moment of the expiry, the lease could ask before the task is ready again
		time.Sleep(lease.DefaultHeartbeatTimeout + time.Millisecond)
		second := w.Lease("", "q")
		w.PostCallback("completed", first.ID, first.Token, `{"attempt": 1, "outcome": "SUCCEEDED", "output": {"rows": 1},
			"artifacts": [{"resourceId": "r"}]}`).Want(t, http.StatusConflict, "reason", "SUPERSEDED")
		adopt("").Want(t, http.StatusConflict, "code", "E.TASK.STATE", "taskState", "LEASED")
		time.Sleep(lease.DefaultHeartbeatTimeout)
		w.PostCallback("completed", second.ID, second.Token,
			`{"attempt": 2, "outcome": "SUCCEEDED", "outputBase64": "AAE="}`).Want(t, http.StatusGone,
			"reason", "LEASE_EXPIRED")

		kept := shown("/v1/tasks/" + first.ID)
		if len(kept) != 2 {
			t.Fatalf("the results that came too late are %v, want 2", kept)
		}
		for i, want := range []map[string]any{
			{"attempt": 1.0, "reason": "SUPERSEDED", "output": map[string]any{"rows": 1.0}},
			{"attempt": 2.0, "reason": "LEASE_EXPIRED", "outputBase64": "AAE="},
		} {
			for field, value := range want {
				wiretest.WantEqual(t, field, fmt.Sprint(kept[i].(map[string]any)[field]), fmt.Sprint(value))
			}
		}
		if artifacts, _ := kept[0].(map[string]any)["artifacts"].([]any); len(artifacts) != 1 {
			t.Errorf("the first late result is %v, want it with its artifact", kept[0])
		}
		listed := shown("/v1/tasks?queue=q")
		if one := listed[0].(map[string]any); len(listed) != 2 || one["output"] != nil || one["artifacts"] != nil || one["sizeBytes"] == 0.0 {
			t.Errorf("a list shows the late result %v, want two, each with its size, and neither output nor artifacts", listed)
		}

		adopt(`{"attempt": 3}`).Want(t, http.StatusConflict, "code", "E.TASK.STATE")
		adopted := adopt(`{"attempt": 1, "requestId": "r"}`)
		adopted.Want(t, http.StatusOK)
		if task := adopted.Body["task"].(map[string]any); task["state"] != "COMPLETED" || task["adoptedAttempt"] != 1.0 || task["output"] != nil {
			t.Errorf("the adopted task is %s, want it COMPLETED with the result of attempt 1, which the answer leaves out", adopted.Text)
		}
		wiretest.WantEqual(t, "the output", string(r.Get(t, first.ID).GetOutput()), `{"rows":1}`)
		adopt("").Want(t, http.StatusConflict, "taskState", "COMPLETED")
		w.Send(http.MethodPost, "/v1/tasks/t0000200000000zzz:adopt", "", "").Want(t, http.StatusNotFound, "code",
			"E.TASK.NOT_FOUND")

		done := r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "AdoptResult", Outcome: "OK"})
		if len(done) != 1 || done[0].GetObject() != first.ID || done[0].GetRequestId() != "r" {
			t.Errorf("the audit has %v, want one AdoptResult of the task that was done", done)
		}
		refused := r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "AdoptResult", Outcome: "E.TASK.STATE"})
		if len(refused) == 0 {
			t.Error("the audit has no AdoptResult that was refused")
		}
	})
}

// V15: without an attempt the newest result is adopted.
func TestAdoptOverHTTPTakesTheNewest(t *testing.T) {
	t.Attr("rules", "H2 V15")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := w.SubmitTask("", "q")
		for attempt := range 2 {
			work := w.Lease("", "q")
			time.Sleep(lease.DefaultHeartbeatTimeout)
			w.PostCallback("completed", id, work.Token,
				fmt.Sprintf(`{"attempt": %d, "outcome": "SUCCEEDED", "output": %[1]d}`, attempt+1)).Want(t, http.StatusGone)
		}
		w.Send(http.MethodPost, "/v1/tasks/"+id+":adopt", "", "").Want(t, http.StatusOK)
		wiretest.WantEqual(t, "the output", string(r.Get(t, id).GetOutput()), "2")
	})
}
