package coordinator_test

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// beginMessage begins a call on a connection of its own and sends a message of 3 MiB, of which it
// keeps back the last byte. It returns when the coordinator takes no more, or has closed the
// connection, with the number of bytes that it has sent.
func beginMessage(t *testing.T, r *wiretest.Rig) (conn io.Closer, sent int, closed bool) {
	t.Helper()
	c, err := r.Listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = io.WriteString(c, http2.ClientPreface)
	must(err)
	framer := http2.NewFramer(c, c)
	must(framer.WriteSettings())
	var head bytes.Buffer
	names := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", lessorv1.WorkerService_Complete_FullMethodName},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		must(names.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	must(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	const size = 3 << 20
	message := append([]byte{0, 0, size >> 16, 0, 0}, make([]byte, size-1)...)
	windows := map[uint32]int{0: 65_535, 1: 65_535}
	for len(message) > 0 {
		if n := min(len(message), windows[0], windows[1], 16_384); n > 0 {
			if err := framer.WriteData(1, false, message[:n]); err != nil {
				return c, sent, true
			}
			windows[0], windows[1], sent, message = windows[0]-n, windows[1]-n, sent+n, message[n:]
			continue
		}
		frame, err := framer.ReadFrame()
		if err != nil {
			return c, sent, true
		}
		switch f := frame.(type) {
		case *http2.WindowUpdateFrame:
			windows[f.StreamID] += int(f.Increment)
		case *http2.PingFrame:
			if !f.IsAck() {
				must(framer.WritePing(true, f.Data))
			}
		}
	}
	return c, sent, false
}

// X5: messages that are begun and not finished take no more memory than the bound: the connection
// with the oldest of them is closed. Other calls, also with large messages, go on.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	t.Attr("rules", "X5")
	defer func(most int64) { *coordinator.MostRecvBytes = most }(*coordinator.MostRecvBytes)
	*coordinator.MostRecvBytes = 7 << 20
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var held []io.Closer
		for i := range 2 {
			conn, sent, closed := beginMessage(t, r)
			if closed {
				t.Fatalf("connection %d is closed after %d bytes, want open: the bound is 7 MiB", i, sent)
			}
			held = append(held, conn)
			time.Sleep(time.Second) // so that one is older than the other
		}
		r.WantMetric(t, "lessor_connections_unfinished_total", 0)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		conn, sent, closed := beginMessage(t, r)
		if closed {
			t.Errorf("the newest connection is closed after %d bytes, want the oldest", sent)
		}
		synctest.Wait()
		r.WantMetric(t, "lessor_connections_unfinished_total", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		for _, c := range append(held, conn) {
			_ = c.Close()
		}
		synctest.Wait()
		for range 20 { // the bytes of closed connections do not count
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
		}
		r.WantMetric(t, "lessor_connections_unfinished_total", 1)
	})
}
