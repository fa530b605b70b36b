//go:build faults

package standby

import (
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// A connection that is reset again and again leaves no goroutine behind in the coordinator. One
// that carries nothing for long costs no more memory than --standby-buffer, and what the standby
// lacks after that comes as a new copy.
func TestCutsLeaveNothing(t *testing.T) {
	t.Parallel()
	const (
		cuts    = 12
		payload = 200 << 10
		more    = 64 << 20 // bytes of commits while the connection carries nothing
	)
	p := newRelayed(t, "--standby-wait", "100ms", "--standby-buffer", "1MiB", "--http", "127.0.0.1:0", "--pprof")
	p.reset()
	goroutines, heap := p.metric("go_goroutines"), p.heap()
	for range cuts {
		p.reset()
	}
	p.awaitGoroutines(goroutines + cuts/2)

	silence := hole("nothing either way", toCoordinator, toStandby)
	silence.begin(p.relay)
	tasks := lessorv1.NewTaskServiceClient(p.c.Conn())
	for range more / (10 * payload) {
		req := &lessorv1.BatchSubmitTasksRequest{}
		for range 10 {
			req.Tasks = append(req.Tasks, &lessorv1.TaskSpec{Queue: queue, Payload: make([]byte, payload)})
		}
		if _, err := tasks.BatchSubmitTasks(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.metric("lessor_standby_awaited"); n != 0 {
		t.Errorf("lessor_standby_awaited is %v while nothing comes from the standby, want 0", n)
	}
	if grown := p.heap() - heap; grown > more/2 {
		t.Errorf("after %d bytes that the standby does not have, the heap has grown by %.0f bytes, want at most half of that", more, grown)
	}
	copies := p.copies()
	p.relay.Reset() // while the coordinator waits until it can send more
	silence.end(p.relay)
	p.await("the standby gets no new copy", func() bool { return p.copies() > copies })
	p.awaitWaits()
	p.awaitGoroutines(goroutines + cuts/2)
	p.wantEqual()
}

// A router forgets a connection, and says nothing: what both sides send is lost. Results wait until
// the standby misses the answers to its pings, and connects anew; the coordinator, too, finds out
// by its pings, and nothing is left of the old connection.
func TestForgottenConnection(t *testing.T) {
	t.Parallel()
	p := newRelayed(t, "--http", "127.0.0.1:0")
	p.reset()
	goroutines := p.metric("go_goroutines")
	stop := p.load()
	p.awaitMore(20)
	if n := p.relay.Forget(); n != 1 {
		t.Fatalf("%d connections were forgotten, want 1", n)
	}
	p.awaitProgress()
	stop()
	if n := p.gaveUp(); n > 0 {
		t.Errorf("results ceased to wait %d times", n)
	}
	if n := p.copies(); n != 1 {
		t.Errorf("the standby began %d copies, want 1", n)
	}
	p.await("the coordinator keeps the connection open", func() bool { return p.relay.Links() == 1 })
	p.awaitGoroutines(goroutines + 1)
	p.wantEqual()
}

// reset resets the connection of the standby, and waits until it follows over another one.
func (p *pair) reset() {
	p.Helper()
	var before time.Time
	p.awaitStatus("the standby does not follow", func(m *lessorv1.GetStatusResponse) bool {
		if len(m.GetStandbys()) == 0 {
			return false
		}
		before = m.GetStandbys()[0].GetConnectedAt().AsTime()
		return true
	})
	reset.begin(p.relay)
	p.awaitStatus("the standby does not follow again", func(m *lessorv1.GetStatusResponse) bool {
		return len(m.GetStandbys()) > 0 && m.GetStandbys()[0].GetConnectedAt().AsTime().After(before) && m.GetWaitsForStandby()
	})
}

func (p *pair) metric(name string) float64 {
	p.Helper()
	return harness.Metric(p.Context(), p.T, p.c.HTTP(), "", name)
}

func (p *pair) awaitGoroutines(most float64) {
	p.Helper()
	p.await("the coordinator has too many goroutines", func() bool { return p.metric("go_goroutines") <= most })
}

// heap returns how many bytes of the coordinator's heap are in use after a garbage collection.
func (p *pair) heap() float64 {
	p.Helper()
	harness.Page(p.Context(), p.T, p.c.HTTP(), "", "/debug/pprof/heap?gc=1")
	return p.metric("go_memstats_heap_inuse_bytes")
}
