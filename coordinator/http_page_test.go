package coordinator_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// pagePaths are those of the page that show something of a tenant.
func pagePaths(task string) []string {
	return []string{"/ui/", "/ui/queue?name=letters", "/ui/tasks", "/ui/tasks/" + task, "/ui/run?id=letters", "/ui/workers"}
}

// openPage asks for a page as a browser does, with a token as the password; empty: without one.
func openPage(t *testing.T, r *wiretest.Rig, path, token string) *httptest.ResponseRecorder {
	t.Helper()
	w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if token != "" {
		req.SetBasicAuth("anybody", token)
	}
	r.HTTP.Handler.ServeHTTP(w, req)
	return w
}

// X1, X2: viewers and operators may see the page of their own tenant, with their token as a
// password or a bearer. A browser is told to ask for it, but not when an open page reloads by
// itself.
func TestWhoMaySeeThePage(t *testing.T) {
	t.Attr("rules", "X1 X2")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		producer, _ := r.Issue(t, "acme", auth.Producer)
		made, err := r.Tasks.SubmitTask(wiretest.WithToken(t.Context(), producer),
			&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "letters", RunId: "letters"}})
		if err != nil {
			t.Fatal(err)
		}
		task := made.GetTask().GetTaskId()
		for _, role := range []auth.Role{auth.Worker, auth.Producer, auth.Viewer, auth.Operator} {
			token, _ := r.Issue(t, "acme", role)
			want := http.StatusForbidden
			if role.Has(auth.Viewer | auth.Operator) {
				want = http.StatusOK
			}
			for _, path := range pagePaths(task) {
				if w := openPage(t, r, path, token); w.Code != want || strings.Contains(w.Body.String(), "letters") != (want == http.StatusOK && path != "/ui/workers") {
					t.Errorf("%s for a %v: status %d, want %d and, if allowed, the queue:\n%s", path, role, w.Code, want, w.Body)
				}
			}
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/", nil)
			req.Header.Set("Authorization", "Bearer "+token)
			if r.HTTP.Handler.ServeHTTP(w, req); w.Code != want {
				t.Errorf("/ui/ for the bearer token of a %v: status %d, want %d", role, w.Code, want)
			}
			refusal := `<p id="why">this page requires the role operator or viewer; the credential has the role ` + role.String() + "</p>"
			if refused := strings.Contains(w.Body.String(), refusal); refused != (want == http.StatusForbidden) {
				t.Errorf("/ui/ for a %v says %s", role, w.Body)
			}
			whose := regexp.MustCompile(`tenant <bdi>acme</bdi>, as <bdi>[^<]+</bdi> \(` + role.String() + `\), until 20\d\d-\d\d-\d\d \d\d:\d\d UTC</small>`)
			if want == http.StatusOK && !whose.MatchString(w.Body.String()) {
				t.Errorf("/ui/ for a %v does not say who looks at it:\n%s", role, w.Body)
			}
		}
		stranger, _ := r.Issue(t, "umbra", auth.Operator)
		for _, path := range pagePaths(task) {
			foreign, absent := openPage(t, r, path, stranger),
				openPage(t, r, strings.NewReplacer(task, "t000020000000000z", "letters", "nothing").Replace(path), stranger)
			if told := strings.NewReplacer("t000020000000000z", task, "nothing", "letters").Replace(absent.Body.String()); foreign.Code != absent.Code || foreign.Body.String() != told {
				t.Errorf("%s for another tenant: status %d, want what is not there, %d:\n%s",
					path, foreign.Code, absent.Code, foreign.Body)
			}
			for _, token := range []string{"", "nonsense"} {
				w := openPage(t, r, path, token)
				if w.Code != http.StatusUnauthorized || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic ") || strings.Contains(w.Body.String(), "letters") {
					t.Errorf("%s with the password %q: status %d, challenge %q, want 401 and Basic",
						path, token, w.Code, w.Header().Get("WWW-Authenticate"))
				}
				w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				req.SetBasicAuth("anybody", token)
				req.Header.Set("Lessor-Reload", "1")
				if r.HTTP.Handler.ServeHTTP(w, req); w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s, reloaded with the password %q: status %d, challenge %q, want 401 and Bearer",
						path, token, w.Code, w.Header().Get("WWW-Authenticate"))
				}
			}
		}
	})
}

// The page of a queue has the words of ExplainTask about its oldest READY task, and about the one
// that blocks others; that of a run counts its tasks. None of it is of another workspace.
func TestPagesOfAQueueAndARun(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		in := func(workspace, key string) *lessorv1.Task {
			return r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.Queue, s.WorkspaceId, s.ConcurrencyKey, s.RunId = "q", workspace, key, "r"
			})
		}
		foreign := in("other", "")
		holder := in("", "k")
		in("", "k")
		r.Lease(t)
		if res, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}); err != nil || len(res.GetAssignments()) > 0 {
			t.Fatalf("lease: %v (%v), want none: the key has no room", res, err)
		}
		oldest := in("", "")
		if _, err := r.Admin.UpdateQueue(t.Context(), &lessorv1.UpdateQueueRequest{Name: "q", Paused: new(true)}); err != nil {
			t.Fatal(err)
		}
		want := func(path string, parts ...string) {
			t.Helper()
			body := openPage(t, r, path, "").Body.String()
			for _, part := range parts {
				if !strings.Contains(body, part) {
					t.Errorf("%s lacks %q:\n%s", path, part, body)
				}
			}
			if strings.Contains(body, foreign.GetTaskId()) {
				t.Errorf("%s shows a task of another workspace:\n%s", path, body)
			}
		}
		want("/ui/queue?name=q", "READY the longest: <a class=\"id\" href=\"/ui/tasks/"+oldest.GetTaskId(),
			"queue &#34;q&#34; is paused", "Changes when the queue is resumed",
			"Has kept others of its concurrency key back the longest, for ", "<a class=\"id\" href=\"/ui/tasks/"+holder.GetTaskId())
		want("/ui/run?id=r", "0 of 3 tasks have ended",
			"state=LEASED&amp;workspace=default\">1<", "state=READY&amp;workspace=default\">2<")
		want("/ui/", "/ui/tasks/"+oldest.GetTaskId())
	})
}

// X5: pages count as calls of their reader's tenant, and one that the quota refuses says so.
func TestPagesCountAsCalls(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 3}}, func(t *testing.T, r *wiretest.Rig) {
		codes := []int{}
		for range 4 {
			codes = append(codes, openPage(t, r, "/ui/workers", "").Code)
		}
		if !slices.Equal(codes, []int{200, 200, 200, 429}) {
			t.Errorf("with three calls at once allowed: %v, want 429 for the fourth", codes)
		}
	})
}

// X5: what a page of another site embeds of ours costs its reader no call, and asks nobody for a
// password. Neither does what is no page.
func TestOtherSitesSpendNoCalls(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 1}}, func(t *testing.T, r *wiretest.Rig) {
		for range 5 {
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/workers", nil)
			req.Header.Set("Sec-Fetch-Site", "cross-site")
			req.Header.Set("Sec-Fetch-Mode", "no-cors")
			r.HTTP.Handler.ServeHTTP(w, req)
			if w.Code != http.StatusForbidden || w.Header().Get("WWW-Authenticate") != "" {
				t.Errorf("an image of another site: status %d, challenge %q, want 403 and none",
					w.Code, w.Header().Get("WWW-Authenticate"))
			}
			if w := openPage(t, r, "/ui/nothing", ""); w.Code != http.StatusNotFound || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
				t.Errorf("no page: status %d, %s, want 404 and a page", w.Code, w.Header().Get("Content-Type"))
			}
		}
		if w := openPage(t, r, "/ui/workers", ""); w.Code != http.StatusOK {
			t.Errorf("the reader's own request: status %d, want 200", w.Code)
		}
	})
}
