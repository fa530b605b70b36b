package recvlimit

import (
	"bytes"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// fakeConn is a connection whose bytes the test feeds.
type fakeConn struct {
	net.Conn
	closed chan struct{}
}

func newFake() *fakeConn { return &fakeConn{closed: make(chan struct{})} }

func (f *fakeConn) Write(p []byte) (int, error) { return len(p), nil }
func (f *fakeConn) Close() error                { close(f.closed); return nil }
func (f *fakeConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }

func (f *fakeConn) isClosed() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}

// client writes frames as a client does; each call of a method feeds the connection.
type client struct {
	t    *testing.T
	c    *conn
	raw  *fakeConn
	buf  bytes.Buffer
	out  *http2.Framer
	rand *rand.Rand // how the bytes are cut into pieces; nil: one piece
}

func newClient(t *testing.T, l *Limiter) *client {
	x := &client{t: t, raw: newFake()}
	x.c = l.follow(x.raw).(*conn)
	x.out = http2.NewFramer(&x.buf, nil)
	x.buf.WriteString(http2.ClientPreface)
	x.feed()
	return x
}

// feed lets the connection receive what was written.
func (x *client) feed() {
	for x.buf.Len() > 0 {
		n := x.buf.Len()
		if x.rand != nil {
			n = 1 + x.rand.IntN(min(n, 1+x.rand.IntN(2000)))
		}
		x.c.received(x.buf.Next(n))
	}
}

// message sends the first n bytes of a message of the given size on a stream, in frames of 10,000
// bytes.
func (x *client) message(stream uint32, size, n int, end bool) {
	x.t.Helper()
	all := append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, n)...)
	for len(all) > 0 {
		part := all[:min(len(all), 10_000)]
		all = all[len(part):]
		if err := x.out.WriteDataPadded(stream, end && len(all) == 0, part, make([]byte, len(part)%256)); err != nil {
			x.t.Fatal(err)
		}
	}
	x.feed()
}

// wantBytes checks how many bytes count.
func wantBytes(t *testing.T, what string, l *Limiter, want int64) {
	t.Helper()
	if got := l.bytes.Load(); got != want {
		t.Errorf("%s: %d bytes count, want %d", what, got, want)
	}
}

func quiet(most int64) *Limiter { return New(most, slog.New(slog.DiscardHandler)) }

// X5: the bytes of messages that have begun count beyond the window, and no longer when the message
// is complete, or its stream has ended from either side.
func TestUnfinishedMessagesCount(t *testing.T) {
	t.Attr("rules", "X5")
	for name, pieces := range map[string]*rand.Rand{"in one piece": nil, "in pieces": rand.New(rand.NewPCG(1, 2))} {
		t.Run(name, func(t *testing.T) {
			l := quiet(1 << 30)
			x := newClient(t, l)
			x.rand = pieces
			const big = 1 << 20
			x.message(1, big, big, false)
			wantBytes(t, "a complete message", l, 0)
			x.message(1, big, Window, false)
			wantBytes(t, "a window", l, 0)
			x.message(3, big, Window+5, false)
			x.message(5, big, big-1, false)
			wantBytes(t, "two messages beyond the window", l, 5+big-1-Window)
			_ = x.out.WriteData(5, false, []byte{1})
			x.feed()
			wantBytes(t, "one of them complete", l, 5)
			x.message(5, big, big-1, true)
			wantBytes(t, "a stream that the client ends in a message", l, 5)
			_ = x.out.WriteRSTStream(3, http2.ErrCodeCancel)
			x.feed()
			wantBytes(t, "a stream that the client resets", l, 0)

			x.message(7, big, Window+7, false)
			x.message(9, big, Window+9, false)
			wantBytes(t, "two more", l, 16)
			var sent bytes.Buffer
			out := http2.NewFramer(&sent, nil)
			_ = out.WriteSettings()
			_ = out.WriteData(7, false, make([]byte, 100))
			_ = out.WriteRSTStream(7, http2.ErrCodeNo)
			_ = out.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 9, EndStream: true, EndHeaders: true,
				BlockFragment: make([]byte, 50),
			})
			for b := sent.Bytes(); len(b) > 0; b = b[1:] {
				_, _ = x.c.Write(b[:1])
			}
			wantBytes(t, "streams that the server has ended", l, 0)
			_ = x.out.WriteData(7, false, make([]byte, 10_000))
			x.feed()
			x.message(9, big, big-1, false)
			wantBytes(t, "what comes on such streams", l, 0)
			_ = x.out.WriteRSTStream(7, http2.ErrCodeCancel)
			_ = x.out.WriteData(9, true, nil)
			x.feed()
			if len(x.c.ended) != 0 {
				t.Errorf("%d streams are remembered that both sides have ended, want none", len(x.c.ended))
			}

			x.message(11, big, Window+11, false)
			wantBytes(t, "another one", l, 11)
			_ = x.c.Close()
			wantBytes(t, "a closed connection", l, 0)
			x.message(13, big, big-1, false)
			wantBytes(t, "what still comes on it", l, 0)
			if len(l.have) != 0 {
				t.Errorf("%d connections are remembered, want none", len(l.have))
			}
		})
	}
}

// Several messages in one frame, and a head that is cut by frames, are told apart.
func TestMessagesInFrames(t *testing.T) {
	t.Attr("rules", "X5")
	l := quiet(1 << 30)
	x := newClient(t, l)
	head := []byte{0, 0, 4, 0, 0} // of a message of 256 KiB
	small := []byte{0, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0}
	_ = x.out.WriteData(1, false, append(append([]byte{}, small...), head[:2]...))
	_ = x.out.WriteData(1, false, nil)
	_ = x.out.WriteData(1, false, head[2:4])
	_ = x.out.WritePing(false, [8]byte{})
	_ = x.out.WriteData(1, false, head[4:])
	for range 20 {
		_ = x.out.WriteData(1, false, make([]byte, 10_000))
	}
	x.feed()
	wantBytes(t, "the large one", l, 200_000-Window)
	at := x.buf.Len()
	_ = x.out.WriteData(1, false, append(make([]byte, 256<<10-200_000), small...))
	x.buf.Bytes()[at+5] |= 0x80 // the reserved bit of the id, which receivers ignore
	x.feed()
	wantBytes(t, "the end of it, and small ones", l, 0)
	if len(x.c.messages) != 0 {
		t.Errorf("%d messages are remembered, want none", len(x.c.messages))
	}
}

// X5: beyond the bound, the connection with the oldest unfinished message is closed, and the next
// one, until the rest is within the bound.
func TestOldestIsClosed(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		l := quiet(100_000)
		var all []*client
		for i := range 4 {
			x := newClient(t, l)
			all = append(all, x)
			if i == 1 { // the oldest of all, but it counts for nothing
				x.message(1, 1<<20, Window, false)
			}
		}
		order := []int{2, 0, 3}
		for _, i := range order {
			time.Sleep(time.Second)
			all[i].message(1, 1<<20, Window+30_000, false)
		}
		wantBytes(t, "three connections", l, 90_000)
		time.Sleep(time.Second)
		all[3].message(3, 1<<20, Window+50_000, false)
		synctest.Wait()
		for i, closed := range []bool{true, false, true, false} {
			if got := all[i].raw.isClosed(); got != closed {
				t.Errorf("connection %d is closed: %v, want %v", i, got, closed)
			}
		}
		wantBytes(t, "the rest", l, 80_000)
		all[3].message(5, 1<<20, Window+30_000, false)
		synctest.Wait()
		if !all[3].raw.isClosed() {
			t.Error("a connection that has too much alone is open, want closed")
		}
	})
}

// What a client sends on streams that the server has ended fills no memory.
func TestEndedStreamsAreForgotten(t *testing.T) {
	t.Attr("rules", "X5")
	l := quiet(1 << 30)
	x := newClient(t, l)
	x.message(1, 1<<20, Window+1, false)
	for i := range uint32(10 * mostStreams) {
		id := 2*i + 3
		_ = x.out.WriteData(id, false, []byte{0})
		x.feed()
		if i%2 == 0 {
			var sent bytes.Buffer
			_ = http2.NewFramer(&sent, nil).WriteRSTStream(id, http2.ErrCodeNo)
			_, _ = x.c.Write(sent.Bytes())
		}
	}
	if n, m := len(x.c.messages), len(x.c.ended); n > mostStreams || m > mostStreams {
		t.Errorf("%d messages and %d ended streams are remembered, want at most %d each", n, m, mostStreams)
	}
	wantBytes(t, "the large one", l, 1)
}

// Read returns what has come, and follows it.
func TestReadFollows(t *testing.T) {
	t.Attr("rules", "X5")
	l := quiet(1 << 30)
	theirs, ours := net.Pipe()
	c := l.follow(ours)
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	_ = http2.NewFramer(&b, nil).WriteData(1, false, append([]byte{0, 0, 16, 0, 0}, make([]byte, Window+3)...))
	go func() { _, _ = theirs.Write(b.Bytes()); _ = theirs.Close() }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("read %d bytes (%v), want the %d that were sent", len(got), err, b.Len())
	}
	wantBytes(t, "read", l, 3)
	_ = c.Close()
}
