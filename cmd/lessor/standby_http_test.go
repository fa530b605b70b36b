package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// get returns the answer of the HTTP listener of a standby.
func (s *copyState) get(path string) (code int, body string) {
	w := httptest.NewRecorder()
	s.pages().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

// A standby is ready while its copy is complete and follows. Otherwise it says why it is not.
func TestStandbySaysWhetherItIsReady(t *testing.T) {
	want := func(c *scriptedCall, code int, text string, metrics ...string) {
		t.Helper()
		synctest.Wait()
		if gotCode, got := c.state.get("/readyz"); gotCode != code || !strings.HasPrefix(got, text) {
			t.Errorf("/readyz is %d %q, want %d %q", gotCode, got, code, text)
		}
		_, all := c.state.get("/metrics")
		for _, line := range metrics {
			if !strings.Contains(all, "\n"+line+"\n") {
				t.Errorf("/metrics lacks %q:\n%s", line, all)
			}
		}
	}
	const complete, last, copies = "lessor_standby_complete ", "lessor_standby_last_commit_timestamp_seconds ",
		"lessor_standby_copies_total "
	_, err := followScript(t, func(c *scriptedCall) error {
		want(c, http.StatusServiceUnavailable, "not ready: it does not follow yet\n",
			complete+"0", last+"NaN", copies+"0", "lessor_standby_received_bytes_total 0")
		c.begin(true)
		want(c, http.StatusServiceUnavailable, "not ready: the store is being copied; 0 B of about 4.0 KiB have come\n",
			complete+"0", copies+"1")
		c.commit(5, 7)
		want(c, http.StatusOK, "ready: the copy is complete and follows; its last commit came at 1970-01-01T00:00:05.000000Z\n", complete+"1", last+"5")
		return status.Error(codes.Unavailable, "restarting")
	}, func(c *scriptedCall) error {
		want(c, http.StatusServiceUnavailable, "not ready: cannot reach the coordinator: restarting\n", complete+"0", last+"5")
		c.begin(false)
		want(c, http.StatusServiceUnavailable, "not ready: the copy catches up\n", complete+"0", copies+"1")
		c.commit(6, 7)
		want(c, http.StatusOK, "ready: ", complete+"1", last+"6")
		return status.Error(codes.Unavailable, `closing transport, debug data: "max_age"`)
	}, func(c *scriptedCall) error {
		want(c, http.StatusOK, "ready: ") // streams are renewed every hour
		c.begin(false)
		want(c, http.StatusOK, "ready: ")
		c.commit(7, 8)
		<-c.stream.Context().Done()
		return nil
	}, func(c *scriptedCall) error {
		want(c, http.StatusServiceUnavailable, "not ready: the standby differs from the coordinator", complete+"0")
		c.begin(true)
		want(c, http.StatusServiceUnavailable, "not ready: the store is being copied; 0 B of about", complete+"0", copies+"2")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What becomes durable after the line was cut does not make a standby ready, but counts for the
// time of its last commit.
func TestLateCommitDoesNotMakeAStandbyReady(t *testing.T) {
	var s copyState
	s.begin(true, 100)
	s.lose("the line was cut")
	s.acknowledge(2e9)
	if code, text := s.readiness(); code != http.StatusServiceUnavailable || text != "not ready: the line was cut" || s.written != 2e9 {
		t.Errorf("%d %q, last commit %d", code, text, s.written)
	}
}
