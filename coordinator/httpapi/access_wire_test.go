package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/httpapi"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
)

// routeRequests has a good request for each route. ID stands for the id of a task.
var routeRequests = map[string]struct{ path, body string }{
	"POST /v1/tasks/{task_id}/started":   {"/v1/tasks/ID/started", `{"attempt": 1}`},
	"POST /v1/tasks/{task_id}/heartbeat": {"/v1/tasks/ID/heartbeat", `{"attempt": 1}`},
	"POST /v1/tasks/{task_id}/completed": {"/v1/tasks/ID/completed", `{"attempt": 1, "outcome": "SUCCEEDED"}`},
	"POST /v1/leases":                    {"/v1/leases", `{"workerId": "w", "queues": ["idle"]}`},
	"POST /v1/tasks":                     {"/v1/tasks", `{"queue": "more"}`},
	"GET /v1/tasks/{task_id}":            {"/v1/tasks/ID?waitMs=1", ""},
	"POST /v1/tasks:batchSubmit":         {"/v1/tasks:batchSubmit", `{"tasks": [{"queue": "more"}]}`},
	"POST /v1/tasks:batchCancel":         {"/v1/tasks:batchCancel", `{"filter": {"queue": "more"}}`},
	"POST /v1/tasks:batchRetry":          {"/v1/tasks:batchRetry", `{"filter": {"queue": "more"}}`},
	"POST /v1/tasks:batchDelete":         {"/v1/tasks:batchDelete", `{"filter": {"queue": "more"}}`},
	"GET /v1/tasks":                      {"/v1/tasks?queue=more", ""},
	"DELETE /v1/tasks/{task_id}":         {"/v1/tasks/ID?force=true", ""},
	"POST /v1/tasks/{task_id}:cancel":    {"/v1/tasks/ID:cancel", ""},
	"POST /v1/tasks/{task_id}:retry":     {"/v1/tasks/ID:retry", ""},
	"POST /v1/tasks/{task_id}:adopt":     {"/v1/tasks/ID:adopt", ""},
	"GET /v1/tasks/{task_id}/events":     {"/v1/tasks/ID/events", ""},
	"GET /openapi.json":                  {"/openapi.json", ""},
}

// callRoute sends the request of a route. token may be empty.
func callRoute(w *wiretest.HTTPClient, route, token, id string) wiretest.HTTPResponse {
	w.T.Helper()
	method, _, _ := strings.Cut(route, " ")
	return w.Send(method, strings.ReplaceAll(routeRequests[route].path, "ID", id), token, routeRequests[route].body)
}

// X2: routeRequests has a request for each route, and docs/security.md has a rule for each.
func TestEveryRouteHasARequestAndARule(t *testing.T) {
	t.Attr("rules", "X2")
	routes := httpapi.Routes()
	if asked := slices.Sorted(maps.Keys(routeRequests)); !slices.Equal(routes, asked) {
		t.Errorf("routes %q\nroutes with a request %q", routes, asked)
	}
	if ruled := slices.Sorted(maps.Keys(wiretest.ReadAccessRules(t).Routes())); !slices.Equal(routes, ruled) {
		t.Errorf("routes %q\nroutes with a rule %q", routes, ruled)
	}
}

// X1, X2, H1: this test tries each route with each credential. A route accepts only a valid
// credential of a role that may make the call; a callback accepts only the task token. Any other
// request gets the same refusal whatever its body is, and changes nothing.
func TestWhoMayCallEachRoute(t *testing.T) {
	t.Attr("rules", "X1 X2 H1")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		w, rules := r.Web(t), wiretest.ReadAccessRules(t)
		expired, _ := r.Issue(t, "acme", auth.Operator)
		time.Sleep(time.Hour)
		operator, _ := r.Issue(t, "acme", auth.Operator)
		revoked, revokedID := r.Issue(t, "acme", auth.Operator)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), "acme", revokedID, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		work := w.SubmitAndLease(operator, "q")
		show := func() string { return w.Send(http.MethodGet, "/v1/tasks/"+work.ID, operator, "").Text }
		before := show()
		wantRefused := func(route, token, what string, status int, code string) {
			t.Helper()
			method, _, _ := strings.Cut(route, " ")
			for _, body := range []string{routeRequests[route].body, `{"attempt`} {
				w.Send(method, strings.ReplaceAll(routeRequests[route].path, "ID", work.ID), token,
					body).Named(what).Want(t, status, "code", code, "verdict", nil)
			}
		}
		bad := map[string]string{
			"none": "", "no token": "secret", "expired": expired, "revoked": revoked,
			"forged": operator[:len(operator)-4] + "AAAA",
		}
		for route, rule := range rules.Routes() {
			if rule.Everyone {
				callRoute(w, route, "", work.ID).Want(t, http.StatusOK)
				continue
			}
			for what, token := range bad {
				wantRefused(route, token, what, http.StatusUnauthorized, refusal.CodeToken)
			}
			if rule.Holder {
				wantRefused(route, operator, "a credential", http.StatusUnauthorized, refusal.CodeToken)
				continue
			}
			wantRefused(route, work.Token, "a task token", http.StatusUnauthorized, refusal.CodeToken)
			for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
				if !rules.May(role, rule) {
					token, _ := r.Issue(t, "acme", role)
					wantRefused(route, token, role.String(), http.StatusForbidden, refusal.CodeForbidden)
				}
			}
		}
		if after := show(); after != before {
			t.Errorf("refused requests changed the task from\n%s\nto\n%s", before, after)
		}
		wantAllowed(t, r, w)
		log := r.Log.String()
		if !strings.Contains(log, `"msg":"request refused","type":"POST /v1/leases","peer.address":"bufconn","status":401,"code":"E.AUTH.INVALID_TOKEN","error":"the credential has expired"`) {
			t.Errorf("the log does not have the address of the refused caller and the reason: %s", log)
		}
	})
}

// wantAllowed checks that each route accepts the credentials that its rule names.
func wantAllowed(t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient) {
	t.Helper()
	rules := wiretest.ReadAccessRules(t)
	operator, _ := r.Issue(t, "acme", auth.Operator)
	late := w.SubmitAndLease(operator, "late")
	time.Sleep(lease.DefaultHeartbeatTimeout) // before other leases, which would end as well
	w.PostCallback("completed", late.ID, late.Token, `{"attempt": 1, "outcome": "SUCCEEDED"}`).Want(t, http.StatusGone)
	for route, rule := range rules.Routes() {
		for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
			if !rules.May(role, rule) {
				continue
			}
			id := w.SubmitTask(operator, "q-"+role.String())
			token, _ := r.Issue(t, "acme", role)
			switch {
			case strings.HasSuffix(route, "adopt"):
				id = late.ID
			case strings.HasSuffix(route, "events"), strings.HasSuffix(route, "retry"):
				// the stream ends when the task does
				callRoute(w, "POST /v1/tasks/{task_id}:cancel", operator, id).Want(t, http.StatusOK)
			}
			if a := callRoute(w, route, token, id); a.StatusCode >= http.StatusBadRequest {
				t.Errorf("%s as %v: status %d %s, want it to be allowed", route, role, a.StatusCode, a.Text)
			}
		}
		if rule.Holder {
			work := w.SubmitAndLease(operator, "held")
			callRoute(w, route, work.Token, work.ID).Want(t, http.StatusOK, "verdict", "COMMITTED")
		}
	}
}

// X2, S4: each route answers for a task of another tenant exactly as for a task that does not
// exist, and does not change the other tenant's tasks.
func TestOtherTenantsTasksDoNotExistOverHTTP(t *testing.T) {
	t.Attr("rules", "X2 S4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		w, rules := r.Web(t), wiretest.ReadAccessRules(t)
		victim, _ := r.Issue(t, "victim", auth.Operator)
		evil, _ := r.Issue(t, "evil", auth.Operator)
		id := w.SubmitAndLease(victim, "theirs").ID
		waiting := w.SubmitTask(victim, "theirs")
		own := w.SubmitAndLease(evil, "own").Token
		show := func() string {
			return callRoute(w, "GET /v1/tasks/{task_id}", victim, id).Text + callRoute(w, "GET /v1/tasks/{task_id}",
				victim, waiting).Text
		}
		before := show()
		for route, rule := range rules.Routes() {
			token := evil
			if rule.Holder {
				token = own
			}
			if !strings.Contains(route, "{task_id}") {
				continue
			}
			unknown := callRoute(w, route, token, "t0000200000000zzz")
			for _, theirs := range []string{id, waiting} {
				if got := callRoute(w, route, token, theirs); got.StatusCode < 400 || got.StatusCode != unknown.StatusCode || got.Text != unknown.Text {
					t.Errorf("%s of another tenant's task: %d %s, want the same as of an unknown task: %d %s",
						route, got.StatusCode, got.Text, unknown.StatusCode, unknown.Text)
				}
			}
		}
		// Queues with the same name in two tenants are two queues.
		none := w.Send(http.MethodPost, "/v1/leases", evil, `{"workerId": "w", "queues": ["theirs"]}`)
		if none.Text != `{"assignments":[]}`+"\n" {
			t.Errorf("a lease request for the name of another tenant's queue got %s, want no assignment", none.Text)
		}
		if after := show(); after != before {
			t.Errorf("the other tenant's tasks changed from\n%s\nto\n%s", before, after)
		}
	})
}

// X3: when a credential ends, its streams of events and its waiting lease requests end within a
// second.
func TestHTTPStreamsEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3")
	for problem, end := range wiretest.CredentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
				w := r.Web(t)
				operator, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
				id := w.SubmitTask(operator, "q")
				token, tokenID := r.IssueFor(t, gate.DefaultTenant, auth.Operator, wiretest.ShortLife)
				events := w.SendWithoutReading(http.MethodGet, "/v1/tasks/"+id+"/events", token, nil, nil)
				read := bufio.NewReader(events.Body)
				if e, ok := nextEvent(read); !ok || e.name != "node.state" {
					t.Fatalf("the first event is %v, want node.state", e)
				}
				waited := make(chan wiretest.HTTPResponse, 1)
				go func() {
					waited <- w.Send(http.MethodPost, "/v1/leases", token,
						`{"workerId": "w", "queues": ["none"], "waitMs": 60000}`)
				}()
				synctest.Wait()
				if err := end(r, tokenID); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				// so that the test fails, instead of hanging, if the stream does not end
				time.AfterFunc(time.Minute, func() { _ = events.Body.Close() })
				if rest, err := io.ReadAll(read); err != nil || strings.Contains(string(rest), "event:") {
					t.Errorf("the stream sent %s (%v) after the credential had ended, want no event and the end", rest, err)
				}
				_ = events.Body.Close()
				(<-waited).Want(t, http.StatusUnauthorized, "code", refusal.CodeToken, "reason", "AUTH_INVALID_TOKEN",
					"verdict", nil)
				if took := time.Since(began); took > time.Second {
					t.Errorf("stream and lease request ended after %v, want at most 1 s", took)
				}
				again := w.SendWithoutReading(http.MethodGet, "/v1/tasks/"+id+"/events", token, nil,
					http.Header{"Last-Event-Id": {"1"}})
				_ = again.Body.Close()
				if again.StatusCode != http.StatusUnauthorized {
					t.Errorf("a new stream with the ended credential: status %d, want 401", again.StatusCode)
				}
			})
		})
	}
}

// X3, S5: a stream of events also ends with its credential if its reader reads nothing.
func TestUnreadEventsEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3 S5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		token, tokenID := r.Issue(t, gate.DefaultTenant, auth.Operator)
		work := w.SubmitAndLease(token, "q")
		res := w.SendWithoutReading(http.MethodGet, "/v1/tasks/"+work.ID+"/events", token, nil, nil)
		defer func() { _ = res.Body.Close() }()
		news := engine.Feed{
			TaskID: work.ID, LeaseID: work.LeaseID,
			Chunks: []lease.Chunk{{Channel: "out", Text: strings.Repeat("x", 60<<10)}},
		}
		for range 40 { // more than the buffers between the coordinator and the reader hold
			r.Engine.FeedAll(gate.DefaultTenant, r.Engine.ResolveFeeds(gate.DefaultTenant, []engine.Feed{news}), func(bool) {})
			synctest.Wait()
		}
		if err := wiretest.CredentialEndings[auth.Revoked](r, tokenID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		const over = `lessor_http_requests_total{route="GET /v1/tasks/{task_id}/events",status="200"} 1`
		viewer, _ := r.Issue(t, "acme", auth.Viewer) // the host tenant
		if metrics := w.Send(http.MethodGet, "/metrics", viewer, "").Text; !strings.Contains(metrics, over) {
			t.Error("the stream has not ended a second after its credential")
		}
	})
}

// X4: requests over HTTP are audited like calls over gRPC, whether they succeed or are refused. The
// log names the caller, and shows no text of the request.
func TestHTTPIsAudited(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		operator, _ := r.Issue(t, "acme", auth.Operator)
		viewer, _ := r.Issue(t, "acme", auth.Viewer)
		id := w.SubmitTask(operator, "q")
		callRoute(w, "POST /v1/tasks/{task_id}:cancel", viewer, id).Want(t, http.StatusForbidden)
		callRoute(w, "POST /v1/leases", viewer, id).Want(t, http.StatusForbidden)
		for _, verb := range []string{"cancel", "retry", "adopt"} {
			w.Send(http.MethodPost, "/v1/tasks/"+id+":"+verb, operator, `{"unknown": "hidden"}`).Want(t,
				http.StatusBadRequest, "field", "unknown")
		}
		const submit = `{"queue": "q", "payload": {"a": {"hidden": 1, "hidden": 2}}}`
		w.Send(http.MethodPost, "/v1/tasks", operator, submit).Want(t, http.StatusBadRequest, "field", "payload.a.hidden")
		callRoute(w, "POST /v1/tasks/{task_id}:cancel", operator, id).Want(t, http.StatusOK)
		if !strings.Contains(r.Log.String(), "payload: is sent twice") {
			t.Errorf("the log does not say what is wrong with a request:\n%s", r.Log)
		}
		if strings.Contains(r.Log.String(), "hidden") || !strings.Contains(r.Log.String(), `"type":"CancelTask","tenant":"acme","subject":"acme-operator"`) {
			t.Errorf("the log shows a part of the request, or does not name the caller:\n%s", r.Log)
		}
		var got []string
		for _, e := range r.AuditEvents(wiretest.WithToken(t.Context(), operator), t, wiretest.WholeAudit()) {
			if e.GetAction() != "CreateToken" {
				got = append(got, fmt.Sprint(e.GetAction(), " by ", e.GetSubject(), ": ", e.GetOutcome(), " ", e.GetObject()))
			}
		}
		slices.Sort(got)
		want := []string{
			"AdoptResult by acme-operator: " + refusal.CodeInvalid + " " + id,
			"CancelTask by acme-operator: " + refusal.CodeInvalid + " " + id,
			"CancelTask by acme-operator: " + records.OutcomeOK + " " + id,
			"CancelTask by acme-viewer: " + refusal.CodeForbidden + " " + id,
			"Lease by acme-viewer: " + refusal.CodeForbidden + " ",
			"RetryTask by acme-operator: " + refusal.CodeInvalid + " " + id,
		}
		if !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
	})
}

// X2, X4: a path that is not UTF-8 is no route. As the id of a task it would be added to the audit,
// where protobuf cannot show it: the tenant could not read that entry and all later ones.
func TestPathsThatAreNotUTF8LeaveTheAuditReadable(t *testing.T) {
	t.Attr("rules", "X2 X4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		operator, _ := r.Issue(t, "acme", auth.Operator)
		for _, id := range []string{"%ff", "t%C0%AF", "%ED%A0%80", "\xff"} {
			for route, request := range routeRequests {
				if !strings.Contains(request.path, "ID") {
					continue
				}
				for _, body := range []string{request.body, `{"attempt`} {
					method, _, _ := strings.Cut(route, " ")
					w.Send(method, strings.ReplaceAll(request.path, "ID", id), operator, body).Want(t,
						http.StatusNotFound, "code", "E.REQUEST.NO_ROUTE")
				}
			}
		}
		for _, e := range r.AuditEvents(wiretest.WithToken(t.Context(), operator), t, wiretest.WholeAudit()) {
			if e.GetAction() != "CreateToken" {
				t.Errorf("the audit has %v, want no entry for requests without a route", e)
			}
		}
	})
}
