package coordinator

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A page asks for another credential only if the one sent is at fault: a browser must not ask for a
// password because the coordinator is busy or stops.
func TestOnlyABadCredentialIsAskedFor(t *testing.T) {
	check := roleCheck{log: slog.New(slog.DiscardHandler), challenge: "Basic"}
	for code, want := range map[codes.Code]int{
		codes.Unauthenticated: 401, codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.Unavailable: 503,
		codes.Canceled: 503, codes.Internal: 500,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/", nil)
		check.turnAway(t.Context(), w, r, "/ui/", "GET /ui/", status.Error(code, "because"))
		if w.Code != want || w.Body.String() != "because\n" || (w.Header().Get("WWW-Authenticate") != "") != (want == 401) {
			t.Errorf("%v: status %d, body %q, challenge %q; want %d, and a challenge only with 401",
				code, w.Code, w.Body, w.Header().Get("WWW-Authenticate"), want)
		}
	}
}
