package coordinator

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// X1, X2: numbers are for viewers and operators, profiles for operators; who asks whether the coordinator lives needs no credential.
func TestWhoMayReadOverHTTP(t *testing.T) {
	t.Attr("rules", "X1 X2")
	serveWith(t, nil, Config{Auth: &Auth{}, Pprof: true}, func(t *testing.T, r *rig) {
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
