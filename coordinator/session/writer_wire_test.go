package session_test

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
)

// countWriters returns how many goroutines are writing frames to streams.
func countWriters(t *testing.T) int {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Count(b.String(), "(*Session).write(")
}

// W11: an idle stream has no goroutine that writes, because the stack of that goroutine would be a
// tenth of a session's memory. A stream whose worker does not read has one.
func TestIdleStreamHasNoWriter(t *testing.T) {
	t.Attr("rules", "W11")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		for range 3 {
			worker.Heartbeat()
			synctest.Wait()
			if n := countWriters(t); n != 0 {
				t.Fatalf("an idle stream has %d writing goroutines, want none", n)
			}
		}
		slow := r.OpenUnreadStream(t, "slow")
		slow.Send(wiretest.HandshakeOf("slow"))
		for range 3000 {
			slow.Send(wiretest.HandshakeOf("slow")) // each is refused with an answer
		}
		synctest.Wait()
		if n := countWriters(t); n != 1 {
			t.Errorf("a stream whose worker does not read has %d writing goroutines, want one", n)
		}
	})
}
