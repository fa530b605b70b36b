package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/records"
)

// X1, X2: viewers and operators may read /metrics, and operators may take profiles. /healthz and
// /readyz need no credential.
func TestWhoMayReadMetricsAndProfiles(t *testing.T) {
	t.Attr("rules", "X1 X2")
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, Pprof: true}, func(t *testing.T, r *wiretest.Rig) {
		bearers := map[string]string{"nobody": "", "a stranger": "Bearer nonsense"}
		for _, role := range []auth.Role{auth.Worker, auth.Producer, auth.Viewer, auth.Operator} {
			token, _ := r.Issue(t, "acme", role)
			bearers[role.String()] = "Bearer " + token
		}
		for path, allowed := range map[string]string{
			"/metrics": "viewer operator", "/metrics/queues": "viewer operator", "/debug/pprof/": "operator", "/debug/pprof/heap": "operator",
			"/healthz": "nobody a stranger worker producer viewer operator", "/readyz": "nobody a stranger worker producer viewer operator",
		} {
			for who, header := range bearers {
				want := http.StatusForbidden
				switch {
				case strings.Contains(allowed, who):
					want = http.StatusOK
				case who == "nobody" || who == "a stranger":
					want = http.StatusUnauthorized
				}
				w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				if header != "" {
					req.Header.Set("Authorization", header)
				}
				r.HTTP.Handler.ServeHTTP(w, req)
				if w.Code != want || (w.Code == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
					t.Errorf("%s for %s: status %d, want %d; WWW-Authenticate is %q",
						path, who, w.Code, want, w.Header().Get("WWW-Authenticate"))
				}
			}
		}
	})
}

// X2: if there is a host tenant, metrics and profiles are only for its viewers and operators.
// Others are told so, and who asked for metrics, where those of its own queues are. What is not
// about all tenants stays open to every tenant.
func TestHostTenantAloneReadsWhatIsAboutAll(t *testing.T) {
	t.Attr("rules", "X2")
	const ofMetrics = "/metrics is about all tenants, so it is only for the host tenant (serve --host-tenant), and the credential is of another one; " +
		"/metrics/queues has the queues of its tenant\n"
	const ofProfiles = "/debug/pprof/ is about all tenants, so it is only for the host tenant (serve --host-tenant), and the credential is of another one\n"
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, HostTenant: "host", Pprof: true}, func(t *testing.T, r *wiretest.Rig) {
		for _, tt := range []struct {
			path, tenant string
			role         auth.Role
			want         int
			says         string
		}{
			{"/metrics", "host", auth.Viewer, http.StatusOK, "lessor_build_info"},
			{"/metrics", "host", auth.Operator, http.StatusOK, "lessor_build_info"},
			{"/metrics", "host", auth.Producer, http.StatusForbidden, "requires the role operator or viewer"},
			{"/metrics", "acme", auth.Viewer, http.StatusForbidden, ofMetrics},
			{"/metrics", "acme", auth.Operator, http.StatusForbidden, ofMetrics},
			{"/metrics", gate.DefaultTenant, auth.Operator, http.StatusForbidden, ofMetrics},
			{"/metrics", "acme", auth.Worker, http.StatusForbidden, "requires the role operator or viewer"},
			{"/debug/pprof/", "host", auth.Operator, http.StatusOK, "heap"},
			{"/debug/pprof/", "host", auth.Viewer, http.StatusForbidden, "requires the role operator"},
			{"/debug/pprof/", "acme", auth.Operator, http.StatusForbidden, ofProfiles},
			{"/debug/pprof/heap", "acme", auth.Operator, http.StatusForbidden, ofProfiles},
			{"/metrics/queues", "acme", auth.Viewer, http.StatusOK, "lessor_queues_left_out"},
			{"/metrics/queues", "host", auth.Viewer, http.StatusOK, "lessor_queues_left_out"},
			{"/ui/", "acme", auth.Viewer, http.StatusOK, ""},
		} {
			token, _ := r.Issue(t, tt.tenant, tt.role)
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil)
			req.Header.Set("Authorization", "Bearer "+token)
			r.HTTP.Handler.ServeHTTP(w, req)
			if w.Code != tt.want || !strings.Contains(w.Body.String(), tt.says) {
				t.Errorf("%s for a %v of tenant %q: status %d, want %d with %q:\n%.300s",
					tt.path, tt.role, tt.tenant, w.Code, tt.want, tt.says, w.Body)
			}
		}
	})
}

// X3: a request for metrics or a profile ends with the credential of its caller, who gets nothing
// of the answer.
func TestProfileEndsWithItsCredential(t *testing.T) {
	t.Attr("rules", "X3")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, "acme", auth.Operator)
		page := coordinator.RequireRole(r.Gate, auth.Operator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(30 * time.Second):
			}
			_, _ = w.Write([]byte("profile"))
		}))
		serve := func(ctx context.Context) (body string, took time.Duration, aborted error) {
			begin := time.Now()
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			req.Header.Set("Authorization", "Bearer "+token)
			defer func() {
				body, took = w.Body.String(), time.Since(begin)
				aborted, _ = recover().(error)
			}()
			page.ServeHTTP(w, req)
			return
		}
		if body, _, aborted := serve(t.Context()); body != "profile" || aborted != nil {
			t.Errorf("with a valid credential: %q, aborted with %v, want the profile", body, aborted)
		}
		// as net/http ends a request whose client has closed its side
		closed, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if body, _, aborted := serve(closed); body != "profile" || aborted != nil {
			t.Errorf("to a client that has closed its side: %q, aborted with %v, want the profile", body, aborted)
		}
		const revokedAfter = 10 * time.Second
		time.AfterFunc(revokedAfter, func() {
			if _, err := r.Gate.Keyring().Revoke(context.Background(), "acme", id, "ann", time.Now()); err != nil {
				t.Error(err)
			}
		})
		if _, took, aborted := serve(t.Context()); took != revokedAfter || !errors.Is(aborted, http.ErrAbortHandler) {
			t.Errorf("a credential that was revoked after %v: the request took %v and ended with %v, want %v and %v",
				revokedAfter, took, aborted,
				revokedAfter, http.ErrAbortHandler)
		}
	})
}

// X4: a refused HTTP request, of a route or of metrics and profiles, is in the log and in the audit
// of the credential's tenant. A request that is allowed is in neither.
func TestRefusalsOverHTTPAreLoggedAndAudited(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, Pprof: true}, func(t *testing.T, r *wiretest.Rig) {
		operator, _ := r.Issue(t, "acme", auth.Operator)
		worker, _ := r.Issue(t, "acme", auth.Worker)
		revoked, id := r.Issue(t, "acme", auth.Viewer)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), "acme", id, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		r.Log.Reset()
		var want []string
		for path, action := range map[string]string{"/metrics": "metrics", "/debug/pprof/heap": "pprof", "/debug/pprof/profile": "profile", "/v1/tasks/t1": "GetTask"} {
			for who, token := range map[string]string{"acme-operator": operator, "acme-worker": worker, "acme-viewer": revoked} {
				if who == "acme-operator" && action != "metrics" {
					continue // the operator may take profiles, which takes time
				}
				w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				req.Header.Set("Authorization", "Bearer "+token)
				r.HTTP.Handler.ServeHTTP(w, req)
				switch w.Code {
				case http.StatusForbidden:
					want = append(want, action+" by "+who+" from 192.0.2.1: "+refusal.CodeForbidden)
				case http.StatusUnauthorized:
					want = append(want, action+" by "+who+" from 192.0.2.1: "+refusal.CodeToken)
				}
			}
		}
		if lines := strings.Count(r.Log.String(), `"tenant":"acme","subject":"acme-`); len(want) != 8 || lines != len(want) {
			t.Errorf("%d requests are refused and %d are in the log, want 8:\n%s", len(want), lines, r.Log)
		}
		var got []string
		for _, e := range r.AuditEvents(wiretest.WithToken(t.Context(), operator), t, wiretest.WholeAudit()) {
			if e.GetOutcome() != records.OutcomeOK {
				got = append(got, fmt.Sprint(e.GetAction(), " by ", e.GetSubject(), " from ", e.GetPeer(), ": ", e.GetOutcome()))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
	})
}

// X4: one can filter the audit by the action of each page that was refused.
func TestPagesAreActionsOfTheAudit(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, Pprof: true}, func(t *testing.T, r *wiretest.Rig) {
		for i, path := range append(pagePaths("t1"), "/ui/worker", "/metrics", "/metrics/queues", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/trace") {
			tenant := fmt.Sprint("tenant-", i)
			worker, _ := r.Issue(t, tenant, auth.Worker)
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			req.Header.Set("Authorization", "Bearer "+worker)
			r.HTTP.Handler.ServeHTTP(w, req)
			operator, _ := r.Issue(t, tenant, auth.Operator)
			ctx := wiretest.WithToken(t.Context(), operator)
			all := r.AuditEvents(ctx, t, &lessorv1.ListAuditEventsRequest{Outcome: refusal.CodeForbidden})
			if len(all) != 1 {
				t.Errorf("%s: the audit has %v, want one refusal", path, all)
				continue
			}
			if found := r.AuditEvents(ctx, t, &lessorv1.ListAuditEventsRequest{Action: all[0].GetAction()}); len(found) != 1 {
				t.Errorf("%s: %d entries with the action %s, want one", path, len(found), all[0].GetAction())
			}
		}
	})
}

// X4: the log of a refused request names its path as people know it, without the pattern by which
// the server finds a page whose path ends in a slash.
func TestLogNamesPathsAsPeopleDo(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
		for _, path := range []string{"/ui/", "/ui/tasks", "/metrics"} {
			r.Log.Reset()
			r.HTTP.Handler.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			wiretest.WantContains(t, "the log", r.Log.String(), `"msg":"request refused","type":"GET `+path+`"`)
		}
	})
}

// X5: too many HTTP requests with bad credentials from one address are delayed, and beyond that
// refused with 429. All paths count together, and the refusals with 429 leave nothing in the log. A
// request with a good credential from the same address is not delayed.
func TestBadCredentialsOverHTTPAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, "acme", auth.Viewer)
		get := func(path, ip, token string) int {
			method := http.MethodGet
			if strings.HasSuffix(path, "/started") {
				method = http.MethodPost
			}
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil)
			req.RemoteAddr = ip + ":4711"
			req.Header.Set("Authorization", "Bearer "+token)
			r.HTTP.Handler.ServeHTTP(w, req)
			wiretest.WantDescribed(t, method, path, w.Code, nil)
			return w.Code
		}
		const evil, burst = "192.0.2.1", 1000 // as in package preauth
		begin := time.Now()
		for i := range burst {
			if code := get([]string{"/metrics", "/v1/tasks/t1", "/v1/tasks/t1/started"}[i%3], evil, "guess"); code != http.StatusUnauthorized || time.Since(begin) != 0 {
				t.Fatalf("guess %d: status %d after %v, want 401 at once", i, code, time.Since(begin))
			}
		}
		delayed := 200 // requests that are delayed, for up to two seconds
		answered := make(chan int, delayed)
		for range delayed {
			go func() { answered <- get("/metrics", evil, "guess") }()
		}
		synctest.Wait()
		r.Log.Reset()
		for range 10 {
			for _, path := range []string{"/metrics", "/v1/tasks/t1", "/v1/tasks/t1/started"} {
				if code := get(path, evil, "guess"); code != http.StatusTooManyRequests {
					t.Errorf("%s beyond the delayed requests: status %d, want 429", path, code)
				}
			}
			if code := status.Code(wiretest.ErrOf(r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{}))); code != codes.Unauthenticated {
				t.Errorf("a call of another address: %v, want UNAUTHENTICATED", code)
			}
		}
		if lines := strings.Count(r.Log.String(), `"level":"INFO"`); lines != 10 || strings.Contains(r.Log.String(), `"WARN"`) {
			t.Errorf("the log has %d lines, want only the 10 of the other address:\n%s", lines, r.Log)
		}
		if code := get("/metrics", evil, token); code != http.StatusOK || time.Since(begin) != 0 {
			t.Errorf("a good credential: status %d after %v, want 200 at once", code, time.Since(begin))
		}
		for range delayed {
			if code := <-answered; code != http.StatusUnauthorized {
				t.Errorf("a delayed request: status %d, want 401", code)
			}
		}
	})
}

// X2: an execution trace is for operators, like a profile. It cannot be taken within a bubble.
func TestTraceIsForOperators(t *testing.T) {
	t.Attr("rules", "X2")
	for want, cfg := range map[int]coordinator.Config{http.StatusOK: {Pprof: true}, http.StatusUnauthorized: {Pprof: true, Auth: &gate.Auth{}}, http.StatusNotFound: {}} {
		c, _ := wiretest.StartPlain(t, cfg)
		w := httptest.NewRecorder()
		c.HTTP.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/trace?seconds=0.01", nil))
		if w.Code != want || want == http.StatusOK && !strings.HasPrefix(w.Body.String(), "go 1.") {
			t.Errorf("a trace is answered with %d %.20q, want %d", w.Code, w.Body, want)
		}
	}
}
