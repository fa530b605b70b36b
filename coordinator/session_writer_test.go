package coordinator

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
)

// countWriters returns how many goroutines write to streams.
func countWriters(t *testing.T) int {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Count(b.String(), "(*Session).write(")
}

// W11: an idle stream has no goroutine that writes, because its stack would be a tenth of the memory of a session. A stream that is not read has one.
func TestIdleStreamHasNoWriter(t *testing.T) {
	t.Attr("rules", "W11")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		for range 3 {
			worker.heartbeat()
			synctest.Wait()
			if n := countWriters(t); n != 0 {
				t.Fatalf("%d writers of an idle stream", n)
			}
		}
		slow := r.openUnreadStream(t, "slow")
		slow.send(handshakeOf("slow"))
		for range 3000 {
			slow.send(handshakeOf("slow")) // each is refused with an answer
		}
		synctest.Wait()
		if n := countWriters(t); n != 1 {
			t.Errorf("%d writers of a stream that is not read", n)
		}
	})
}
