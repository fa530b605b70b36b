package httpapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// ask makes a request, and returns the answer and the request of the call that it became; nil if it
// became none.
func ask(method, target, body string) (*httptest.ResponseRecorder, proto.Message) {
	calls := &recordingCalls{}
	api, _, _ := newAPIWithDoor(Config{Calls: calls})
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w, calls.request
}

// H2: each parameter of a URL is in the call that the request becomes.
func TestEveryParameterIsPassedOn(t *testing.T) {
	t.Attr("rules", "H2")
	for _, c := range []struct {
		method, target, want string
		call                 proto.Message
	}{
		{http.MethodGet, "/v1/tasks", `filter {}`, &lessorv1.ListTasksRequest{}},
		{
			http.MethodGet, "/v1/tasks?workspaceId=w%20s&queue=q%2B&states=READY&states=CANCELLED&runId=r&type=t&labels=a%3D1%3D2&labels=b=&hostNodeId=h&concurrencyKey=c" +
				"&idempotencyKey=true&workerId=7&createdAfter=2026-01-01T00:00:00Z&createdBefore=2026-01-01T02:00:01.5%2B02:00" +
				"&finishedAfter=2026-01-01T00:00:02Z&finishedBefore=2026-01-01T00:00:03Z&reasons=START_TIMEOUT&reasons=HEARTBEAT_TIMEOUT&errorCategories=TIMEOUT&pageSize=3&pageToken=p&newestFirst=true",
			`filter { workspace_id: "w s" queue: "q+" states: [TASK_STATE_READY, TASK_STATE_CANCELLED] run_id: "r" type: "t" labels { key: "a" value: "1=2" }
				labels { key: "b" value: "" } host_node_id: "h" concurrency_key: "c" idempotency_key: "true" worker_id: "7"
				created_after { seconds: 1767225600 } created_before { seconds: 1767225601 nanos: 500000000 }
				finished_after { seconds: 1767225602 } finished_before { seconds: 1767225603 } reasons: [REASON_START_TIMEOUT, REASON_HEARTBEAT_TIMEOUT]
				error_categories: ERROR_CATEGORY_TIMEOUT } page_size: 3 page_token: "p"
				newest_first: true`,
			&lessorv1.ListTasksRequest{},
		},
		{http.MethodGet, "/v1/tasks?newestFirst=false", `filter {}`, &lessorv1.ListTasksRequest{}},
		{http.MethodGet, "/v1/tasks?createdAfter=0001-01-01T00:00:00Z", `filter { created_after { seconds: -62135596800 } }`, &lessorv1.ListTasksRequest{}},
		{http.MethodDelete, "/v1/tasks/t1", `task_id: "t1"`, &lessorv1.DeleteTaskRequest{}},
		{http.MethodDelete, "/v1/tasks/t1?force=true&requestId=r", `task_id: "t1" force: true request_id: "r"`, &lessorv1.DeleteTaskRequest{}},
		{http.MethodDelete, "/v1/tasks/t1?force=false", `task_id: "t1"`, &lessorv1.DeleteTaskRequest{}},
	} {
		w, got := ask(c.method, c.target, "")
		if err := prototext.Unmarshal([]byte(c.want), c.call); err != nil {
			t.Fatal(err)
		}
		if w.Code/100 != 2 || !proto.Equal(got, c.call) {
			t.Errorf("%s %s: %d, and the call is\n%v\nwant\n%v", c.method, c.target, w.Code, got, c.call)
		}
	}
}

// H2, S4: a parameter that is unknown, empty, in another case, of another type, or sent twice is
// refused, and named; no call is made. So are a body where the parameters are the fields, and
// parameters where the body has them: what is ignored would not do what was asked for.
func TestBadParameters(t *testing.T) {
	t.Attr("rules", "H2 S4")
	for _, c := range []struct{ method, target, body, field, says string }{
		{http.MethodGet, "/v1/tasks?tenant=x", "", "tenant", "is not a field of this request"},
		{http.MethodGet, "/v1/tasks?tenant=", "", "tenant", "is not a field of this request"},
		{http.MethodGet, "/v1/tasks?Queue=q", "", "Queue", "has the wrong case; the field is queue"},
		{http.MethodGet, "/v1/tasks?queue=", "", "queue", "must not be empty"},
		{http.MethodGet, "/v1/tasks?queue", "", "queue", "must not be empty"},
		{http.MethodGet, "/v1/tasks?states=READY&states=", "", "states", "must not be empty"},
		{http.MethodGet, "/v1/tasks?queue=a&queue=a", "", "queue", "is sent twice"},
		{http.MethodGet, "/v1/tasks?pageSize=1&pageSize=2", "", "pageSize", "is sent twice"},
		{http.MethodGet, "/v1/tasks?pageSize=many", "", "pageSize", "it must be a number"},
		{http.MethodGet, "/v1/tasks?pageSize=-1", "", "pageSize", "is -1; it must be a whole number from 1 to 1000, or 0 for the default"},
		{http.MethodGet, "/v1/tasks?pageSize=1,2", "", "pageSize", "it must be a number"},
		{http.MethodGet, "/v1/tasks?pageSize=4294967296", "", "pageSize", "is 4294967296; it must be a whole number from 1 to 1000, or 0 for the default"},
		{http.MethodGet, "/v1/tasks?states=READY,LEASED", "", "states[0]", "is not a state; they are SCHEDULED, READY"},
		{http.MethodGet, "/v1/tasks?states=READY&states=reedy", "", "states[1]", "is not a state"},
		{http.MethodGet, "/v1/tasks?states=TASK_STATE_SCHEDULED_SOON", "", "states[0]", `is \"TASK_STATE_SCHEDULED_SOON\", which`},
		{http.MethodGet, "/v1/tasks?states=" + strings.Repeat("é", 33), "", "states[0]", `is \"` + strings.Repeat("é", 32) + `...\", which`},
		{http.MethodGet, "/v1/tasks?states=" + strings.Repeat("é", 32), "", "states[0]", `is \"` + strings.Repeat("é", 32) + `\", which`},
		{http.MethodGet, "/v1/tasks?states=x" + strings.Repeat("é", 32), "", "states[0]", `is \"x` + strings.Repeat("é", 31) + `...\", which`},
		{http.MethodGet, "/v1/tasks?states=UNSPECIFIED", "", "states[0]", "is not a state"},
		{http.MethodGet, "/v1/tasks?labels=a", "", "labels[0]", "is written as key=value"},
		{http.MethodGet, "/v1/tasks?labels=a=1&labels=a=2", "", "labels[1]", "sent twice"},
		{http.MethodGet, "/v1/tasks?createdAfter=-1h", "", "createdAfter", "is not an RFC 3339 time"},
		{http.MethodGet, "/v1/tasks?createdAfter=null", "", "createdAfter", "is not an RFC 3339 time"},
		{http.MethodGet, "/v1/tasks?newestFirst=1", "", "newestFirst", "it must be a boolean"},
		{http.MethodGet, "/v1/tasks?newestFirst", "", "newestFirst", "must not be empty"},
		{http.MethodGet, "/v1/tasks?newestFirst=true&newestFirst=true", "", "newestFirst", "is sent twice"},
		{http.MethodGet, "/v1/tasks?newestfirst=true", "", "newestfirst", "has the wrong case; the field is newestFirst"},
		{http.MethodGet, "/v1/tasks?queue=%ff", "", "", "is not valid UTF-8"},
		{http.MethodGet, "/v1/tasks?queue=%zz", "", "", "cannot be read"},
		{http.MethodGet, "/v1/tasks?queue=a;pageSize=1", "", "", "cannot be read"},
		{http.MethodGet, "/v1/tasks?" + strings.Repeat("x", 100) + "=1", "", strings.Repeat("x", 64) + "...", "is not a field"},
		{http.MethodGet, "/v1/tasks?%22%7D,%7B%22=1", "", `"},{"`, "is not a field"},
		{http.MethodDelete, "/v1/tasks/t1?force=yes", "", "force", "it must be a boolean"},
		{http.MethodDelete, "/v1/tasks/t1?force=1", "", "force", "it must be a boolean"},
		{http.MethodDelete, "/v1/tasks/t1?force", "", "force", "must not be empty"},
		{http.MethodDelete, "/v1/tasks/t1?force=null", "", "force", "it must be a boolean"},
		{http.MethodDelete, "/v1/tasks/t1?forced=true", "", "forced", "is not a field"},
		{http.MethodDelete, "/v1/tasks/t1", `{"force": true}`, "", "a DELETE has no body"},
		{http.MethodGet, "/v1/tasks", `{"queue": "q"}`, "", "a GET has no body"},
		{http.MethodPost, "/v1/tasks?queue=q", `{"queue": "q"}`, "", "has its fields in the body"},
		{http.MethodPost, "/v1/tasks:batchSubmit?requestId=r", `{"tasks": [{"queue": "q"}]}`, "", "has its fields in the body"},
		{http.MethodPost, "/v1/tasks/t1:retry?deadline=2026-01-01T00:00:00Z", "", "", "has its fields in the body"},
		{http.MethodPost, "/v1/tasks/t1:cancel?reason=r", "", "", "has its fields in the body"},
		{http.MethodPost, "/v1/leases?waitMs=1", `{"workerId": "w", "queues": ["q"]}`, "", "has its fields in the body"},
	} {
		w, call := ask(c.method, c.target, c.body)
		answer := w.Body.String()
		if w.Code != http.StatusBadRequest || call != nil || !strings.Contains(answer, c.says) ||
			strings.Contains(answer, `"field":`) != (c.field != "") || c.field != "" && !strings.Contains(answer, `"field":`+string(quoted(c.field))) {
			t.Errorf("%s %s %s: %d %s, call %v; want 400 with the field %q that %s",
				c.method, c.target, c.body, w.Code, answer, call, c.field, c.says)
		}
	}
}

// FuzzQuery reads any query: it becomes a request, or a problem of a field, but no body that
// package json refuses.
func FuzzQuery(f *testing.F) {
	f.Add("queue=q&states=READY&states=FAILED&pageSize=1&createdAfter=2026-01-01T00:00:00Z")
	f.Add("pageSize=1e3&labels=%22&queue=%5C")
	f.Add("pageSize=-&pageSize=.")
	f.Add("%22=1&queue=a&queue=b")
	f.Add("=")
	a := &api{Config: Config{Logger: slog.New(slog.DiscardHandler)}}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/tasks", nil)
		r.URL.RawQuery = query
		if p := a.query(httptest.NewRecorder(), r, &listRequest{}); p != nil && p.body.Field == "" && strings.Contains(p.body.Message, "body") {
			t.Errorf("%q: %s", query, p.body.Message)
		}
	})
}
