package coordinator

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
	"GET /v1/tasks/{task_id}/events":     {"/v1/tasks/ID/events", ""},
	"GET /openapi.json":                  {"/openapi.json", ""},
}

// callRoute sends the request of a route. token may be empty.
func (w *httpClient) callRoute(route, token, id string) httpResponse {
	w.t.Helper()
	method, _, _ := strings.Cut(route, " ")
	return w.send(method, strings.ReplaceAll(routeRequests[route].path, "ID", id), token, routeRequests[route].body)
}

// X2: routeRequests has a request for each route, and docs/security.md has a rule for each.
func TestEveryRouteHasARequestAndARule(t *testing.T) {
	t.Attr("rules", "X2")
	routes := httpapi.Routes()
	if asked := slices.Sorted(maps.Keys(routeRequests)); !slices.Equal(routes, asked) {
		t.Errorf("routes %q\nroutes with a request %q", routes, asked)
	}
	if ruled := slices.Sorted(maps.Keys(readAccessRules(t).routes())); !slices.Equal(routes, ruled) {
		t.Errorf("routes %q\nroutes with a rule %q", routes, ruled)
	}
}

// X1, X2, H1: this test tries each route with each credential. A route accepts only a valid credential of a role that may make the call; a callback
// accepts only the task token. Any other request gets the same refusal whatever its body is, and changes nothing.
func TestWhoMayCallEachRoute(t *testing.T) {
	t.Attr("rules", "X1 X2 H1")
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		w, rules := r.web(t), readAccessRules(t)
		expired, _ := r.issue(t, "acme", auth.Operator)
		time.Sleep(time.Hour)
		operator, _ := r.issue(t, "acme", auth.Operator)
		revoked, revokedID := r.issue(t, "acme", auth.Operator)
		if _, err := r.gate.Keyring().Revoke(t.Context(), "acme", revokedID, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		work := w.submitAndLease(operator, "q")
		show := func() string { return w.send(http.MethodGet, "/v1/tasks/"+work.id, operator, "").text }
		before := show()
		wantRefused := func(route, token, what string, status int, code string) {
			t.Helper()
			method, _, _ := strings.Cut(route, " ")
			for _, body := range []string{routeRequests[route].body, `{"attempt`} {
				w.send(method, strings.ReplaceAll(routeRequests[route].path, "ID", work.id), token, body).named(what).want(t, status, "code", code, "verdict", nil)
			}
		}
		bad := map[string]string{"none": "", "no token": "secret", "expired": expired, "revoked": revoked, "forged": operator[:len(operator)-4] + "AAAA"}
		for route, rule := range rules.routes() {
			if rule.everyone {
				w.callRoute(route, "", work.id).want(t, http.StatusOK)
				continue
			}
			for what, token := range bad {
				wantRefused(route, token, what, http.StatusUnauthorized, refusal.CodeToken)
			}
			if rule.holder {
				wantRefused(route, operator, "a credential", http.StatusUnauthorized, refusal.CodeToken)
				continue
			}
			wantRefused(route, work.token, "a task token", http.StatusUnauthorized, refusal.CodeToken)
			for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
				if !rules.may(role, rule) {
					token, _ := r.issue(t, "acme", role)
					wantRefused(route, token, role.String(), http.StatusForbidden, refusal.CodeForbidden)
				}
			}
		}
		if after := show(); after != before {
			t.Errorf("refused requests changed the task from\n%s\nto\n%s", before, after)
		}
		r.wantAllowed(t, w)
		log := r.log.String()
		if !strings.Contains(log, `"msg":"request refused","type":"POST /v1/leases","peer.address":"bufconn","status":401,"code":"E.AUTH.INVALID_TOKEN","error":"the credential has expired"`) {
			t.Errorf("the log does not have the address of the refused caller and the reason: %s", log)
		}
	})
}

// wantAllowed checks that each route accepts the credentials that its rule names.
func (r *rig) wantAllowed(t *testing.T, w *httpClient) {
	t.Helper()
	rules := readAccessRules(t)
	operator, _ := r.issue(t, "acme", auth.Operator)
	for route, rule := range rules.routes() {
		for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
			if !rules.may(role, rule) {
				continue
			}
			id := w.submitTask(operator, "q-"+role.String())
			token, _ := r.issue(t, "acme", role)
			if strings.HasSuffix(route, "events") || strings.HasSuffix(route, "retry") { // the stream ends when the task does
				w.callRoute("POST /v1/tasks/{task_id}:cancel", operator, id).want(t, http.StatusOK)
			}
			if a := w.callRoute(route, token, id); a.StatusCode >= http.StatusBadRequest {
				t.Errorf("%s as %v: status %d %s, want it to be allowed", route, role, a.StatusCode, a.text)
			}
		}
		if rule.holder {
			work := w.submitAndLease(operator, "held")
			w.callRoute(route, work.token, work.id).want(t, http.StatusOK, "verdict", "COMMITTED")
		}
	}
}

// X2, S4: each route answers for a task of another tenant exactly as for a task that does not exist, and does not change the other tenant's tasks.
func TestOtherTenantsTasksDoNotExistOverHTTP(t *testing.T) {
	t.Attr("rules", "X2 S4")
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		w, rules := r.web(t), readAccessRules(t)
		victim, _ := r.issue(t, "victim", auth.Operator)
		evil, _ := r.issue(t, "evil", auth.Operator)
		id := w.submitAndLease(victim, "theirs").id
		waiting := w.submitTask(victim, "theirs")
		own := w.submitAndLease(evil, "own").token
		show := func() string {
			return w.callRoute("GET /v1/tasks/{task_id}", victim, id).text + w.callRoute("GET /v1/tasks/{task_id}", victim, waiting).text
		}
		before := show()
		for route, rule := range rules.routes() {
			token := evil
			if rule.holder {
				token = own
			}
			if !strings.Contains(route, "{task_id}") {
				continue
			}
			unknown := w.callRoute(route, token, "t0000200000000zzz")
			for _, theirs := range []string{id, waiting} {
				if got := w.callRoute(route, token, theirs); got.StatusCode < 400 || got.StatusCode != unknown.StatusCode || got.text != unknown.text {
					t.Errorf("%s of another tenant's task: %d %s, want the same as of an unknown task: %d %s",
						route, got.StatusCode, got.text, unknown.StatusCode, unknown.text)
				}
			}
		}
		// Queues with the same name in two tenants are two queues.
		none := w.send(http.MethodPost, "/v1/leases", evil, `{"workerId": "w", "queues": ["theirs"]}`)
		if none.text != `{"assignments":[]}`+"\n" {
			t.Errorf("a lease request for the name of another tenant's queue got %s, want no assignment", none.text)
		}
		if after := show(); after != before {
			t.Errorf("the other tenant's tasks changed from\n%s\nto\n%s", before, after)
		}
	})
}

// X3: when a credential ends, its streams of events and its waiting lease requests end within a second.
func TestHTTPStreamsEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3")
	for problem, end := range credentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
				w := r.web(t)
				operator, _ := r.issue(t, gate.DefaultTenant, auth.Operator)
				id := w.submitTask(operator, "q")
				token, tokenID := r.issueFor(t, gate.DefaultTenant, auth.Operator, shortLife)
				events := w.sendWithoutReading(http.MethodGet, "/v1/tasks/"+id+"/events", token, nil, nil)
				read := bufio.NewReader(events.Body)
				if e, ok := nextEvent(read); !ok || e.name != "node.state" {
					t.Fatalf("the first event is %v, want node.state", e)
				}
				waited := make(chan httpResponse, 1)
				go func() {
					waited <- w.send(http.MethodPost, "/v1/leases", token, `{"workerId": "w", "queues": ["none"], "waitMs": 60000}`)
				}()
				synctest.Wait()
				if err := end(r, tokenID); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				time.AfterFunc(time.Minute, func() { _ = events.Body.Close() }) // so that the test fails, instead of hanging, if the stream does not end
				if rest, err := io.ReadAll(read); err != nil || strings.Contains(string(rest), "event:") {
					t.Errorf("the stream sent %s (%v) after the credential had ended, want no event and the end", rest, err)
				}
				_ = events.Body.Close()
				(<-waited).want(t, http.StatusUnauthorized, "code", refusal.CodeToken, "reason", "AUTH_INVALID_TOKEN", "verdict", nil)
				if took := time.Since(began); took > time.Second {
					t.Errorf("stream and lease request ended after %v, want at most 1 s", took)
				}
				again := w.sendWithoutReading(http.MethodGet, "/v1/tasks/"+id+"/events", token, nil, http.Header{"Last-Event-Id": {"1"}})
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
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		w := r.web(t)
		token, tokenID := r.issue(t, gate.DefaultTenant, auth.Operator)
		work := w.submitAndLease(token, "q")
		res := w.sendWithoutReading(http.MethodGet, "/v1/tasks/"+work.id+"/events", token, nil, nil)
		defer func() { _ = res.Body.Close() }()
		news := engine.Feed{TaskID: work.id, LeaseID: work.lease, Chunks: []lease.Chunk{{Channel: "out", Text: strings.Repeat("x", 60<<10)}}}
		for range 40 { // more than the buffers between the coordinator and the reader hold
			r.engine.FeedAll(gate.DefaultTenant, r.engine.ResolveFeeds(gate.DefaultTenant, []engine.Feed{news}), func(bool) {})
			synctest.Wait()
		}
		if err := credentialEndings[auth.Revoked](r, tokenID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		const over = `lessor_http_requests_total{route="GET /v1/tasks/{task_id}/events",status="200"} 1`
		viewer, _ := r.issue(t, gate.DefaultTenant, auth.Viewer)
		if metrics := w.send(http.MethodGet, "/metrics", viewer, "").text; !strings.Contains(metrics, over) {
			t.Error("the stream has not ended a second after its credential")
		}
	})
}

// X4: requests over HTTP are audited like calls over gRPC, whether they succeed or are refused. The log names the caller, and shows nothing of the request.
func TestHTTPIsAudited(t *testing.T) {
	t.Attr("rules", "X4")
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		w := r.web(t)
		operator, _ := r.issue(t, "acme", auth.Operator)
		viewer, _ := r.issue(t, "acme", auth.Viewer)
		id := w.submitTask(operator, "q")
		w.callRoute("POST /v1/tasks/{task_id}:cancel", viewer, id).want(t, http.StatusForbidden)
		w.callRoute("POST /v1/leases", viewer, id).want(t, http.StatusForbidden)
		w.send(http.MethodPost, "/v1/tasks/"+id+":cancel", operator, `{"hidden": "hidden"}`).want(t, http.StatusBadRequest, "field", "hidden")
		w.callRoute("POST /v1/tasks/{task_id}:cancel", operator, id).want(t, http.StatusOK)
		if strings.Contains(r.log.String(), "hidden") || !strings.Contains(r.log.String(), `"type":"CancelTask","tenant":"acme","subject":"acme-operator"`) {
			t.Errorf("the log shows a part of the request, or does not name the caller:\n%s", r.log)
		}
		var got []string
		for _, e := range r.auditEvents(withToken(t.Context(), operator), t, wholeAudit()) {
			if e.GetAction() != "CreateToken" {
				got = append(got, fmt.Sprint(e.GetAction(), " by ", e.GetSubject(), ": ", e.GetOutcome(), " ", e.GetObject()))
			}
		}
		slices.Sort(got)
		want := []string{
			"CancelTask by acme-operator: " + refusal.CodeInvalid + " " + id,
			"CancelTask by acme-operator: " + records.OutcomeOK + " " + id,
			"CancelTask by acme-viewer: " + refusal.CodeForbidden + " " + id,
			"Lease by acme-viewer: " + refusal.CodeForbidden + " ",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
	})
}

// X2, X4: a path that is not UTF-8 is no route. As the id of a task it would be added to the audit, where protobuf cannot show it: the tenant could not read
// that entry and all later ones.
func TestPathsThatAreNotUTF8LeaveTheAuditReadable(t *testing.T) {
	t.Attr("rules", "X2 X4")
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		w := r.web(t)
		operator, _ := r.issue(t, "acme", auth.Operator)
		for _, id := range []string{"%ff", "t%C0%AF", "%ED%A0%80", "\xff"} {
			for route, request := range routeRequests {
				if !strings.Contains(request.path, "ID") {
					continue
				}
				for _, body := range []string{request.body, `{"attempt`} {
					method, _, _ := strings.Cut(route, " ")
					w.send(method, strings.ReplaceAll(request.path, "ID", id), operator, body).want(t, http.StatusNotFound, "code", "E.REQUEST.NO_ROUTE")
				}
			}
		}
		for _, e := range r.auditEvents(withToken(t.Context(), operator), t, wholeAudit()) {
			if e.GetAction() != "CreateToken" {
				t.Errorf("the audit has %v, want no entry for requests without a route", e)
			}
		}
	})
}
