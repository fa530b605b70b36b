//go:build faults

package hostile

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

// X5: callers without a credential that fill the table of connections from two addresses, and never
// stop to replace the connections that they lose, keep nobody out: clients, a worker and a request
// for the metrics get in at once, and stay.
func TestStrangersKeepNobodyOut(t *testing.T) {
	t.Attr("rules", "X5")
	// in two seconds, an address can replace each of its connections a hundred times
	const most, pause = 30, 20 * time.Millisecond
	h := newHost(t, most)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	flood := newAttackRun(ctx, t, h, 10*most)
	var busy sync.WaitGroup
	for _, address := range []byte{3, 4} {
		for range most + 10 {
			busy.Go(func() {
				for !flood.ended() {
					flood.sit(address)
					time.Sleep(pause)
				}
			})
		}
	}
	select {
	case <-flood.enough:
	case <-ctx.Done():
		t.Fatalf("%d connections of the flood were closed, want at least %d", flood.hits.Load(), flood.least)
	}
	refused := h.metric(t, `lessor_connections_refused_total{limit="address"}`)
	client := newHonestClient(t, h)
	client.work(t, rounds)
	for range rounds {
		h.connectHonest(t).work(t, 1)
	}
	client.end(t)
	evicted := h.metric(t, `lessor_connections_evicted_total{limit="all"}`)
	t.Logf("of the flood %d connections were closed, %v of them refused at first; %v made room",
		flood.hits.Load(), refused, evicted)
	if refused == 0 || evicted == 0 {
		t.Errorf("%v connections were refused before others came and %v made room, want some of both", refused, evicted)
	}
	cancel()
	busy.Wait()
}

// sit opens a connection as a client of gRPC does, and makes no call. It returns when the
// coordinator has closed the connection, which is a hit.
func (a *attackRun) sit(address byte) {
	conn := a.dialFrom(dialerOf(address), a.h.grpc)
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, opened)
	_, _ = io.Copy(io.Discard, conn)
	if !a.ended() {
		a.hit(1)
	}
}
