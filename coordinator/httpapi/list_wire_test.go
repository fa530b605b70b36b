package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// listed returns the task keys in a page of GET /v1/tasks, and the token of the next page.
func listed(w *wiretest.HTTPClient, token, query string) (keys, next string) {
	w.T.Helper()
	page := w.Send(http.MethodGet, "/v1/tasks?"+query, token, "")
	page.Want(w.T, http.StatusOK)
	var all []string
	tasks, _ := page.Body["tasks"].([]any)
	for _, task := range tasks {
		key, _ := task.(map[string]any)["spec"].(map[string]any)["taskKey"].(string)
		all = append(all, key)
	}
	next, _ = page.Body["nextPageToken"].(string)
	return strings.Join(all, " "), next
}

// H2: GET /v1/tasks has the tasks that all its parameters select, in pages, without payloads.
func TestListOverHTTP(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		wiretest.WantEqual(t, "the answer without tasks", w.Send(http.MethodGet, "/v1/tasks", "", "").Text, `{"tasks":[]}`+"\n")
		var middle string
		for _, name := range []string{"a", "b", "c", "d"} {
			task := r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.TaskKey, s.IdempotencyKey, s.Payload = name, "key-"+name, []byte(`"secret"`)
				s.Labels = map[string]string{
					"team": "red=1",
					"odd":  map[bool]string{true: "", false: "no"}[name == "a" || name == "c"],
				}
			})
			if name == "c" {
				middle = task.GetCreatedAt().AsTime().Format(time.RFC3339Nano)
			}
			time.Sleep(time.Second)
		}
		r.Complete(t, r.Lease(t), "")
		middle = url.QueryEscape(middle)
		for query, want := range map[string]string{
			"":                                           "a b c d",
			"states=COMPLETED":                           "a",
			"states=COMPLETED&states=READY":              "a b c d",
			"states=TASK_STATE_COMPLETED":                "a",
			"states=completed":                           "a",
			"reasons=REASON_START_TIMEOUT":               "",
			"errorCategories=ERROR_CATEGORY_TIMEOUT":     "",
			"states=READY&labels=odd=":                   "c",
			"labels=team=red=1&labels=odd=no":            "b d",
			"labels=team=red":                            "",
			"idempotencyKey=key-b":                       "b",
			"idempotencyKey=key-b&states=FAILED":         "",
			"workerId=w":                                 "a",
			"createdAfter=" + middle:                     "c d",
			"createdBefore=" + middle:                    "a b",
			"workspaceId=other":                          "",
			"queue=q&createdBefore=2200-01-01T00:00:00Z": "a b c d",
		} {
			if got, next := listed(w, "", query); got != want || next != "" {
				t.Errorf("the tasks of %q are %q, and the next page is %q; want %q", query, got, next, want)
			}
		}
		first, next := listed(w, "", "queue=q&pageSize=3")
		second, end := listed(w, "", "queue=q&pageSize=3&pageToken="+next)
		wiretest.WantEqual(t, "the pages", first+", "+second+", "+end, "a b c, d, ")
		w.Send(http.MethodGet, "/v1/tasks?pageToken="+next, "", "").Want(t, http.StatusBadRequest, "field", "pageToken")
		if text := w.Send(http.MethodGet, "/v1/tasks", "", "").Text; strings.Contains(text, "secret") {
			t.Errorf("the list has a payload: %s", text)
		}
		for query, field := range map[string]string{
			"pageSize=1001": "pageSize", "queue=" + wiretest.Text(257): "queue", "idempotencyKey=" + wiretest.Text(257): "idempotencyKey", "workerId=" + wiretest.Text(257): "workerId",
			"createdAfter=1970-01-01T00:00:00Z": "createdAfter", "createdBefore=1969-01-01T00:00:00Z": "createdBefore",
			"createdBefore=2026-01-01T00:00:00Z&createdAfter=2026-01-01T00:00:00Z": "createdBefore", "tenant=other": "tenant", "queue=": "queue",
		} {
			w.Send(http.MethodGet, "/v1/tasks?"+query, "", "").Want(t, http.StatusBadRequest, "code",
				"E.REQUEST.INVALID", "field", field, "verdict", nil)
		}
		w.Send(http.MethodGet, "/v1/tasks?createdBefore=2026-01-01T00:00:00Z&createdAfter=2026-01-01T00:00:00Z",
			"", "").Want(t, http.StatusBadRequest,
			"message", "createdBefore: is 2026-01-01T00:00:00Z; it must be later than createdAfter, 2026-01-01T00:00:00Z")
	})
}

// H2, T9: a retry opens a new round of a task that has ended, and needs no body.
func TestRetryOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = []byte(`1`) }).GetTaskId()
		w.Send(http.MethodPost, "/v1/tasks/"+id+":retry", "", "").Want(t, http.StatusConflict, "code", "E.TASK.STATE",
			"taskId", id, "taskState", "READY")
		for _, body := range []string{"", `{"deadline": "2100-01-01T00:00:00Z", "requestId": "r"}`} {
			w.Send(http.MethodPost, "/v1/tasks/"+id+":cancel", "", "").Want(t, http.StatusOK)
			done := w.Send(http.MethodPost, "/v1/tasks/"+id+":retry", "", body)
			done.Want(t, http.StatusOK)
			task, _ := done.Body["task"].(map[string]any)
			if task["state"] != "READY" || task["taskId"] != id || task["spec"].(map[string]any)["payload"] != nil {
				t.Errorf("the retried task is %s, want %s, READY, without its payload", done.Text, id)
			}
		}
		if task := r.Get(t, id); task.GetRound() != 3 || task.GetSpec().GetDeadline().GetSeconds() != 4102444800 {
			t.Errorf("the task is %v, want round 3 with the new deadline", task)
		}
		w.Send(http.MethodPost, "/v1/tasks/t0000200000000zzz:retry", "", "").Want(t, http.StatusNotFound, "code",
			"E.TASK.NOT_FOUND")
	})
}

// H2, T9: a delete removes a task, but one that a worker holds only by force.
func TestDeleteOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		waiting := r.Submit(t, nil).GetTaskId()
		w.Send(http.MethodDelete, "/v1/tasks/"+waiting, "", `{"force": true}`).Want(t, http.StatusBadRequest, "code",
			"E.REQUEST.INVALID")
		if gone := w.Send(http.MethodDelete, "/v1/tasks/"+waiting, "", ""); gone.StatusCode != http.StatusNoContent || gone.Text != "" {
			t.Errorf("the delete got %d %q, want 204 without a body", gone.StatusCode, gone.Text)
		}
		w.Send(http.MethodDelete, "/v1/tasks/"+waiting, "", "").Want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		work := w.SubmitAndLease("", "q")
		w.Send(http.MethodDelete, "/v1/tasks/"+work.ID, "", "").Want(t, http.StatusConflict, "code", "E.TASK.STATE",
			"taskState", "LEASED")
		w.Send(http.MethodDelete, "/v1/tasks/"+work.ID+"?force=false", "", "").Want(t, http.StatusConflict)
		w.Send(http.MethodDelete, "/v1/tasks/"+work.ID+"?force=true&requestId=r", "", "").Want(t, http.StatusNoContent)
		w.PostCallback("heartbeat", work.ID, work.Token, `{"attempt": 1}`).Want(t, http.StatusGone, "reason", "TASK_GONE")
	})
}

// H2, T1: a batch makes all its tasks or none. The answer has a result for each, also for one that
// existed.
func TestBatchSubmitOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		const batch = `{"tasks": [{"queue": "q", "taskKey": "a", "payload": {"n": 1}, "idempotencyKey": "k"}, {"queue": "r", "taskKey": "b", "runAt": "2100-01-01T00:00:00Z"}],
			"requestId": "x"}`
		results := func(body string) []any {
			made := w.Send(http.MethodPost, "/v1/tasks:batchSubmit", "", body)
			made.Want(t, http.StatusOK)
			all, _ := made.Body["results"].([]any)
			return all
		}
		first := results(batch)
		second := results(batch)
		a, again := first[0].(map[string]any), second[0].(map[string]any)
		b := first[1].(map[string]any)
		if len(first) != 2 || a["created"] != true || a["state"] != "READY" || b["created"] != true || b["state"] != "SCHEDULED" {
			t.Errorf("the results are %v, want two new tasks, READY and SCHEDULED", first)
		}
		if again["created"] != false || again["taskId"] != a["taskId"] {
			t.Errorf("the results of the repeat are %v, want the task of the key", second)
		}
		if task := r.Get(t, a["taskId"].(string)); string(task.GetSpec().GetPayload()) != `{"n":1}` {
			t.Errorf("the payload is %s, want it as it was sent", task.GetSpec().GetPayload())
		}
		w.Send(http.MethodPost, "/v1/tasks:batchSubmit",
			"", `{"tasks": [{"queue": "new"}, {"queue": "other", "idempotencyKey": "k"}]}`).Want(t, http.StatusConflict,
			"code", "E.TASK.EXISTS", "field", "tasks[1].idempotencyKey", "taskId", a["taskId"])
		w.Send(http.MethodPost, "/v1/tasks:batchSubmit",
			"", `{"tasks": [{"queue": "new"}, {"queue": "new", "priority": 1e9}]}`).Want(t, http.StatusBadRequest,
			"field", "tasks[1].priority")
		got, _ := listed(w, "", "queue=new")
		wiretest.WantEqual(t, "what a refused batch has made", got, "")
	})
}
