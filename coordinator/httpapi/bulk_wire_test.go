package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// bulkPath is the path of the request that does something to many tasks: cancel, retry or delete.
func bulkPath(verb string) string { return "/v1/tasks:batch" + strings.ToUpper(verb[:1]) + verb[1:] }

// wantChanged makes a request to change many tasks, and checks its counts.
func wantChanged(w *wiretest.HTTPClient, verb, token, body string, changed, skipped int) {
	w.T.Helper()
	got := w.Send(http.MethodPost, bulkPath(verb), token, body)
	got.Named(body).Want(w.T, http.StatusOK, "changed", float64(changed), "skipped", float64(skipped), "nextPageToken", "")
}

// H2, T9: cancel, retry and delete by a filter change what BatchCancelTasks and the others change,
// and count it in the same way. A label may have any key.
func TestBulkOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		held := r.Lease(t)
		for i := range 6 {
			r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.RunId, s.TaskKey, s.IdempotencyKey = []string{"r1", "r2"}[i%2], fmt.Sprint(i), fmt.Sprint("key-", i)
				s.Labels = map[string]string{"team=x": []string{"red=1", ""}[i/3]}
			})
		}
		keys := func(query, want string) {
			t.Helper()
			got, _ := listed(w, "", query)
			wiretest.WantEqual(t, "the tasks of "+query, got, want)
		}
		wantChanged(w, "cancel", "", `{"filter": {"runId": "r1", "labels": {"team=x": "red=1"}}, "reason": "why not", "requestId": "r"}`, 2, 0)
		keys("states=CANCELLED", "0 2")
		wantChanged(w, "cancel", "", `{"filter": {"runId": "r1"}}`, 1, 2)
		wantChanged(w, "retry", "", `{"filter": {"labels": {"team=x": ""}}, "deadline": "2100-01-01T00:00:00Z"}`, 1, 2)
		keys("states=CANCELLED", "0 2")
		wantChanged(w, "cancel", "", `{"filter": {"queue": "other"}}`, 0, 0)
		wantChanged(w, "cancel", "", `{"filter": {"workspaceId": "other"}, "all": true}`, 0, 0)
		wantChanged(w, "cancel", "", `{"filter": {"states": ["READY", "LEASED"], "createdBefore": "2200-01-01T00:00:00Z"}}`, 5, 0)
		wantChanged(w, "delete", "", `{"filter": {"idempotencyKey": "key-3"}}`, 1, 0)
		wantChanged(w, "delete", "", `{"all": true, "filter": {"runId": "r2"}}`, 2, 0)
		wantChanged(w, "delete", "", `{"all": true, "force": null}`, 3, 1)
		if task := r.Get(t, held.GetTask().GetTaskId()); task.GetCancelReason() != "" || task.GetState() != lessorv1.TaskState_TASK_STATE_CANCELLING {
			t.Errorf("the task that is held is %v, want CANCELLING", task)
		}
		wantChanged(w, "delete", "", `{"all": true, "force": true}`, 1, 0)
		w.Callback("heartbeat", held, "").Want(t, http.StatusGone, "reason", "TASK_GONE")
	})
}

// T9, S4: a body that is not what its caller meant changes nothing, and the answer names what is
// wrong: no body, no condition, a misspelled or misplaced one, and one that is empty, null or of
// another type, as from a variable that is not set. It would select more tasks than it should.
func TestBulkOverHTTPSelectsNoMoreThanMeant(t *testing.T) {
	t.Attr("rules", "S4 T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		waiting, over := r.Submit(t, nil).GetTaskId(), r.Cancelled(t, 1, 0)[0]
		show := func() string { return r.Get(t, waiting).String() + r.Get(t, over).String() }
		before := show()
		const whole = "has no condition and would select every task of the workspace; set all to do that"
		for _, verb := range []string{"cancel", "retry", "delete"} {
			refused := func(query, body, field, says string) {
				t.Helper()
				got := w.Send(http.MethodPost, bulkPath(verb)+query, "", body).Named(body)
				got.Want(t, http.StatusBadRequest, "code", refusal.CodeInvalid, "field", field, "verdict", nil)
				if message, _ := got.Body["message"].(string); !strings.Contains(message, says) || field != "" && !strings.HasPrefix(message, field+": ") {
					t.Errorf("%s %s: %q, want that %s %s", verb, body, message, field, says)
				}
			}
			refused("", ``, "", "ends before its JSON object is complete")
			refused("", `{}`, "filter", whole)
			refused("", `{"filter": {}}`, "filter", whole)
			refused("", `{"filter": null, "all": false}`, "filter", whole)
			refused("", `{"filter": {"workspaceId": "default"}, "all": null}`, "filter", whole)
			refused("", `{"all": "true"}`, "all", "must be a boolean")
			refused("", `{"filter": ["q"]}`, "filter", "must be an object")
			refused("", `{"queue": "q"}`, "queue", "is not a field")
			refused("", `{"all": true, "filters": {"queue": "none"}}`, "filters", "is not a field")
			refused("", `{"all": true, "Filter": {"queue": "none"}}`, "Filter", "has the wrong case")
			refused("", `{"filter": {"queue": "q", "run": "none"}}`, "filter.run", "is not a field")
			refused("", `{"filter": {"queue": "q", "RunId": "none"}}`, "filter.RunId", "has the wrong case")
			refused("", `{"filter": {"queue": "none"}, "filter": {"queue": "q"}}`, "filter", "is sent twice")
			refused("", `{"filter": {"queue": "none", "queue": "q"}}`, "filter.queue", "is sent twice")
			for _, name := range []string{
				"workspaceId", "states", "runId", "type", "labels", "hostNodeId", "concurrencyKey", "idempotencyKey", "workerId", "createdAfter", "createdBefore",
				"finishedAfter", "finishedBefore", "reasons", "errorCategories",
			} {
				refused("", `{"filter": {"queue": "q", "`+name+`": null}}`,
					"filter."+name, "must not be empty or null; leave it out")
				switch name {
				case "states", "reasons", "errorCategories":
					refused("", `{"filter": {"queue": "q", "`+name+`": [ ]}}`,
						"filter."+name, "must not be empty or null; leave it out")
				case "labels":
					refused("", `{"filter": {"queue": "q", "labels": { }}}`,
						"filter.labels", "must not be empty or null; leave it out")
				case "createdAfter", "createdBefore", "finishedAfter", "finishedBefore":
					refused("", `{"filter": {"queue": "q", "`+name+`": ""}}`, "filter."+name, "is not an RFC 3339 time")
				default:
					refused("", `{"filter": {"queue": "q", "`+name+`": ""}}`,
						"filter."+name, "must not be empty or null; leave it out")
				}
			}
			refused("", `{"all": true, "filter": {"queue": ""}}`, "filter.queue", "must not be empty")
			refused("", `{"filter": {"queue": "q", "states": [""]}}`, "filter.states[0]", "is not a state")
			refused("", `{"filter": {"queue": "q", "reasons": ["LEASE_EXPIRED"]}}`,
				"filter.reasons[0]", "for which no task ends; the reasons are HEARTBEAT_TIMEOUT")
			refused("", `{"filter": {"queue": "q", "errorCategories": ["FATAL"]}}`,
				"filter.errorCategories[0]", "is not a known category; they are USER_CODE")
			refused("", `{"filter": {"queue": "q", "errorCategories": [""]}}`,
				"filter.errorCategories[0]", "is not a known category")
			refused("", `{"filter": {"queue": "q", "states": ["READY", null]}}`, "filter.states[1]", "is null")
			refused("", `{"filter": {"queue": "q", "states": "READY"}}`, "filter.states", "must be an array")
			refused("", `{"filter": {"queue": "q", "labels": {"team": null}}}`, "filter.labels.team", "is null")
			refused("", `{"filter": {"queue": "q", "labels": ["team=red"]}}`, "filter.labels", "must be an object")
			refused("", `{"filter": {"createdAfter": "1970-01-01T00:00:00Z"}}`,
				"filter.createdAfter", "leave it out for no limit")
			refused("", `{"filter": {"createdAfter": "2026-01-02T00:00:00Z", "createdBefore": "2026-01-01T00:00:00Z"}}`,
				"filter.createdBefore", "later than createdAfter")
			refused("", `{"filter": {"queue": "`+wiretest.Text(257)+`"}}`, "filter.queue", "256")
			refused("", `{"filter": {"queue": "q"}, "pageToken": "p"}`, "pageToken", "")
			refused("?queue=none", `{"filter": {"queue": "q"}}`, "", "has its fields in the body")
			other := map[string]string{"cancel": "force", "retry": "reason", "delete": "deadline"}[verb]
			refused("", `{"filter": {"queue": "q"}, "`+other+`": null}`, other, "is not a field")
		}
		w.Send(http.MethodPost, "/v1/tasks:batchRetry", "", `{"all": true, "deadline": "1999-01-01T00:00:00Z"}`).Want(t,
			http.StatusBadRequest, "field", "deadline")
		w.Send(http.MethodPost, "/v1/tasks:batchCancel",
			"", `{"all": true, "reason": "`+wiretest.Text(1025)+`"}`).Want(t, http.StatusBadRequest, "field", "reason")
		w.Send(http.MethodGet, "/v1/tasks:batchCancel", "", "").Want(t, http.StatusMethodNotAllowed)
		w.Send(http.MethodPost, "/v1/tasks/:cancel", "", "").Want(t, http.StatusBadRequest, "field", "taskId")
		if after := show(); after != before {
			t.Errorf("refused requests changed the tasks from\n%s\nto\n%s", before, after)
		}
	})
}

// H2, T9: one request does a part of the work, and the token in its answer leads on, with the same
// filter only. However slow the disk is, the answer arrives.
func TestBulkOverHTTPGoesOn(t *testing.T) {
	t.Attr("rules", "H2 T9")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		specs := make([]*lessorv1.TaskSpec, 1000)
		for i := range specs {
			specs[i] = &lessorv1.TaskSpec{Queue: "q"}
		}
		for range 11 {
			if _, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		st.SetHook(func(context.Context, *store.Batch, func()) error { time.Sleep(900 * time.Millisecond); return nil })
		begun := time.Now()
		first := w.Send(http.MethodPost, "/v1/tasks:batchCancel", "", `{"filter": {"queue": "q"}}`)
		first.Want(t, http.StatusOK, "changed", 10_000.0, "skipped", 0.0)
		if took := time.Since(begun); took < 40*time.Second {
			t.Errorf("the request took %v, want more than an answer may usually take", took)
		}
		st.SetHook(nil)
		token, _ := first.Body["nextPageToken"].(string)
		for _, body := range []string{`"filter": {"queue": "q", "type": "t"}`, `"all": true`} {
			w.Send(http.MethodPost, "/v1/tasks:batchCancel", "", `{"pageToken": "`+token+`", `+body+`}`).Want(t,
				http.StatusBadRequest, "field", "pageToken")
		}
		w.Send(http.MethodPost, "/v1/tasks:batchRetry", "",
			`{"pageToken": "`+token+`", "filter": {"queue": "q"}}`).Want(t, http.StatusBadRequest, "field", "pageToken")
		wantChanged(w, "cancel", "", `{"pageToken": "`+token+`", "filter": {"queue": "q"}}`, 1000, 0)
	})
}

// X2, X4: a request to change many tasks changes only those of the caller's tenant, and leaves an
// entry in its audit.
func TestBulkOverHTTPStaysInItsTenant(t *testing.T) {
	t.Attr("rules", "X2 X4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		mine, _ := r.Issue(t, "acme", auth.Operator)
		theirs, _ := r.Issue(t, "other", auth.Operator)
		for _, token := range []string{mine, theirs} {
			w.SubmitTask(token, "q")
		}
		for _, verb := range []string{"cancel", "retry", "delete"} {
			wantChanged(w, verb, mine, `{"all": true, "requestId": "`+verb+`"}`, 1, 0)
		}
		if left := w.Send(http.MethodGet, "/v1/tasks", theirs, ""); !strings.Contains(left.Text, `"state":"READY"`) {
			t.Errorf("the tasks of another tenant are %s, want one that is READY", left.Text)
		}
		var got []string
		for _, e := range r.AuditEvents(wiretest.WithToken(t.Context(), mine), t, wiretest.WholeAudit()) {
			if e.GetAction() != "CreateToken" {
				got = append(got, fmt.Sprint(e.GetAction(), " ", e.GetRequestId(), ": ", e.GetDetail()))
			}
		}
		wiretest.WantEqual(t, "the audit", strings.Join(got, "\n"), strings.Join([]string{
			"BatchCancelTasks cancel: all:true", "BatchRetryTasks retry: all:true", "BatchDeleteTasks delete: all:true",
		}, "\n"))
	})
}
