package httpapi

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// X1: if the coordinator requires no credentials, a request over the loopback interface with the
// name of another host is refused, because it may come from a web page whose name was made to
// resolve to the loopback address (DNS rebinding). If credentials are required, every host is
// accepted.
func TestRequestsOfAnotherHostAreRefused(t *testing.T) {
	t.Attr("rules", "X1")
	h := Holder{LeaseID: "lease"}
	h.Ticket.Task, h.Ticket.Attempt = lease.TaskID{Space: 1, Seq: 1}, 1
	for _, open := range []bool{true, false} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("GET /debug/pprof/", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("GET /ui/tasks", func(http.ResponseWriter, *http.Request) {})
		server := httptest.NewServer(New(Config{
			Calls: fakeCalls{}, Door: fixedHolder{h}, MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler),
			Answered: func(string, int) {},
			Open:     open, Host: "Coordinator.internal",
		}, mux))
		defer server.Close()
		ask := func(method, path, host string) int {
			req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(`{"attempt": 1}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			res, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			return res.StatusCode
		}
		beat := "/v1/tasks/" + h.Ticket.Task.String() + "/heartbeat"
		for host, want := range map[string]int{
			"": 200, "127.0.0.1": 200, "127.0.0.1:7421": 200, "[::1]:7421": 200, "[::1]": 200, "localhost:7421": 200, "LocalHost.": 200, "a.localhost": 200,
			"192.0.2.7:7421": 200, "coordinator.internal:7421": 200,
			"evil.example": 403, "evil.example:7421": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:7421": 403, "notlocalhost": 403,
		} {
			if !open {
				want = 200
			}
			if got := ask(http.MethodPost, beat, host); got != want {
				t.Errorf("open is %v, host %q: %d, want %d", open, host, got, want)
			}
			for _, path := range []string{"/debug/pprof/", "/ui/tasks"} {
				if got := ask(http.MethodGet, path, host); got != want {
					t.Errorf("open is %v, %s of host %q: %d, want %d", open, path, host, got, want)
				}
			}
			if got := ask(http.MethodGet, "/metrics", host); got != 200 {
				t.Errorf("open is %v, metrics of host %q: %d, want 200", open, host, got)
			}
		}
	}
}
