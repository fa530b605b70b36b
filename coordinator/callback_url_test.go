package coordinator_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
)

// Callbacks arrive at the URL that workers were told, even if the name in it resolves to a loopback
// address, as that of the machine does on Debian.
func TestCallbackURLIsNotAnotherHost(t *testing.T) {
	lis, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for _, set := range []string{"", "https://lessor.example:7421"} {
		wiretest.ServeWith(t, nil, coordinator.Config{Callbacks: coordinator.Callbacks{URL: set}}, func(t *testing.T, r *wiretest.Rig) {
			request := httptest.NewRequest(http.MethodGet, coordinator.Callbacks{URL: set}.At(lis, "http")+"/v1/tasks/t1", nil)
			loopback := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 1, 1)})
			answer := httptest.NewRecorder()
			r.HTTP.Handler.ServeHTTP(answer, request.WithContext(loopback))
			if answer.Code != http.StatusNotFound {
				t.Errorf("a request to %s gets %d, want 404: %s", request.Host, answer.Code, answer.Body)
			}
		})
	}
}
