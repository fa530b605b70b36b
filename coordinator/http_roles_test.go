package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/records"
)

// X1, X2: /metrics is for viewers and operators, profiles are for operators; /healthz and /readyz need no credential.
func TestWhoMayReadMetricsAndProfiles(t *testing.T) {
	t.Attr("rules", "X1 X2")
	serveWith(t, nil, Config{Auth: &gate.Auth{}, Pprof: true}, func(t *testing.T, r *rig) {
		bearers := map[string]string{"nobody": "", "a stranger": "Bearer nonsense"}
		for _, role := range []auth.Role{auth.Worker, auth.Producer, auth.Viewer, auth.Operator} {
			token, _ := r.issue(t, "acme", role)
			bearers[role.String()] = "Bearer " + token
		}
		for path, let := range map[string]string{
			"/metrics": "viewer operator", "/debug/pprof/": "operator", "/debug/pprof/heap": "operator",
			"/healthz": "nobody a stranger worker producer viewer operator", "/readyz": "nobody a stranger worker producer viewer operator",
		} {
			for who, header := range bearers {
				want := http.StatusForbidden
				switch {
				case strings.Contains(let, who):
					want = http.StatusOK
				case who == "nobody" || who == "a stranger":
					want = http.StatusUnauthorized
				}
				w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				if header != "" {
					req.Header.Set("Authorization", header)
				}
				r.http.Handler.ServeHTTP(w, req)
				if w.Code != want || (w.Code == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
					t.Errorf("%s for %s: %d, want %d", path, who, w.Code, want)
				}
			}
		}
	})
}

// X4: a request over HTTP that is refused, on a route as well as for metrics and profiles, is in the log and in the audit of the credential's tenant.
// A request that is let in is in neither.
func TestRefusalsOverHTTPAreLoggedAndAudited(t *testing.T) {
	t.Attr("rules", "X4")
	serveWith(t, nil, Config{Auth: &gate.Auth{}, Pprof: true}, func(t *testing.T, r *rig) {
		operator, _ := r.issue(t, "acme", auth.Operator)
		worker, _ := r.issue(t, "acme", auth.Worker)
		revoked, id := r.issue(t, "acme", auth.Viewer)
		if _, err := r.gate.Keyring().Revoke(t.Context(), "acme", id, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		r.log.Reset()
		var want []string
		for path, action := range map[string]string{"/metrics": "metrics", "/debug/pprof/heap": "pprof", "/debug/pprof/profile": "profile", "/v1/tasks/t1": "GetTask"} {
			for who, token := range map[string]string{"acme-operator": operator, "acme-worker": worker, "acme-viewer": revoked} {
				if who == "acme-operator" && action != "metrics" {
					continue // the operator may take profiles, which takes time
				}
				w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				req.Header.Set("Authorization", "Bearer "+token)
				r.http.Handler.ServeHTTP(w, req)
				switch w.Code {
				case http.StatusForbidden:
					want = append(want, action+" by "+who+" from 192.0.2.1: "+refusal.CodeForbidden)
				case http.StatusUnauthorized:
					want = append(want, action+" by "+who+" from 192.0.2.1: "+refusal.CodeToken)
				}
			}
		}
		if lines := strings.Count(r.log.String(), `"tenant":"acme","subject":"acme-`); len(want) != 8 || lines != len(want) {
			t.Errorf("%d are refused and %d told in the log, want 8:\n%s", len(want), lines, r.log)
		}
		var told []string
		for _, e := range r.auditEvents(withToken(t.Context(), operator), t, wholeAudit()) {
			if e.GetOutcome() != records.OutcomeOK {
				told = append(told, fmt.Sprint(e.GetAction(), " by ", e.GetSubject(), " from ", e.GetPeer(), ": ", e.GetOutcome()))
			}
		}
		slices.Sort(told)
		slices.Sort(want)
		if !slices.Equal(told, want) {
			t.Errorf("the audit has %q, want %q", told, want)
		}
	})
}

// X5: requests over HTTP with bad credentials are delayed and then refused, together for all paths of one address, and those that are refused for
// this leave nothing in the log. A good credential of the same address is not delayed.
func TestBadCredentialsOverHTTPAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		token, _ := r.issue(t, "acme", auth.Viewer)
		ask := func(path, ip, token string) int {
			w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			req.RemoteAddr = ip + ":4711"
			req.Header.Set("Authorization", "Bearer "+token)
			r.http.Handler.ServeHTTP(w, req)
			return w.Code
		}
		const evil, burst = "192.0.2.1", 1000 // as in package preauth
		begin := time.Now()
		for i := range burst {
			if code := ask([]string{"/metrics", "/v1/tasks/t1"}[i%2], evil, "guess"); code != http.StatusUnauthorized || time.Since(begin) != 0 {
				t.Fatalf("guess %d: %d after %v", i, code, time.Since(begin))
			}
		}
		held := 200 // those that are delayed, for up to two seconds
		answered := make(chan int, held)
		for range held {
			go func() { answered <- ask("/metrics", evil, "guess") }()
		}
		synctest.Wait()
		r.log.Reset()
		for range 10 {
			for _, path := range []string{"/metrics", "/v1/tasks/t1"} {
				if code := ask(path, evil, "guess"); code != http.StatusTooManyRequests {
					t.Errorf("%s beyond the pace: %d", path, code)
				}
			}
			if code := status.Code(errOf(r.admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{}))); code != codes.Unauthenticated {
				t.Errorf("another address: %v", code)
			}
		}
		if told := strings.Count(r.log.String(), `"level":"INFO"`); told != 10 || strings.Contains(r.log.String(), `"WARN"`) {
			t.Errorf("the log has %d lines, want those of another address alone:\n%s", told, r.log)
		}
		if code := ask("/metrics", evil, token); code != http.StatusOK || time.Since(begin) != 0 {
			t.Errorf("a good one: %d after %v", code, time.Since(begin))
		}
		for range held {
			if code := <-answered; code != http.StatusUnauthorized {
				t.Errorf("one that waited: %d", code)
			}
		}
	})
}

// X1: an HTTP connection is closed after maxConnectionAge, as gRPC connections are.
func TestHTTPConnectionsHaveAMaximumAge(t *testing.T) {
	t.Attr("rules", "X1")
	synctest.Test(t, func(t *testing.T) {
		server := newHTTPServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
		ctx := server.ConnContext(t.Context(), nil)
		for _, want := range []string{"", "", "close"} {
			w := httptest.NewRecorder()
			server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			if got := w.Header().Get("Connection"); got != want {
				t.Errorf("connection %q, want %q", got, want)
			}
			time.Sleep(maxConnectionAge / 2)
		}
	})
}

// X5: failed TLS handshakes, which anybody can cause, are logged only at level debug; a panic of a handler is logged as a warning.
func TestLogOfTheHTTPServer(t *testing.T) {
	t.Attr("rules", "X5")
	for level, want := range map[slog.Level]string{slog.LevelInfo: "WARN panic;", slog.LevelDebug: "DEBUG TLS;WARN panic;"} {
		var said bytes.Buffer
		server := newHTTPServer(http.NotFoundHandler(), slog.New(slog.NewJSONHandler(&said, &slog.HandlerOptions{Level: level})))
		server.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:4711: EOF")
		server.ErrorLog.Print("http: panic serving 192.0.2.1:4711: oh")
		got := ""
		for line := range strings.Lines(said.String()) {
			var told struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(line), &told); err != nil {
				t.Fatal(err)
			}
			got += told.Level + " " + strings.Fields(told.Msg)[1] + ";"
		}
		if got != want {
			t.Errorf("at %v the log has %q, want %q", level, got, want)
		}
	}
}
