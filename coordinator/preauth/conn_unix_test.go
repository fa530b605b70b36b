//go:build unix

package preauth

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
)

// countingPool counts the buffers that are in use.
type countingPool struct{ inUse int }

func (p *countingPool) Get(size int) *[]byte {
	p.inUse++
	buf := make([]byte, size)
	return &buf
}

func (p *countingPool) Put(*[]byte) { p.inUse-- }

// A connection takes a buffer from the pool only when there are bytes to read. It holds no buffer
// while it waits, or when a read returns an error or EOF.
func TestConnectionsBorrowBuffers(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		r := newPooledConn(t)
		if err := r.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		r.read("", os.ErrDeadlineExceeded)
		if err := r.conn.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.other.Write([]byte("a frame, or two")); err != nil {
			t.Fatal(err)
		}
		r.read("a frame,", nil)
		r.read(" or two", nil)
		if err := r.other.Close(); err != nil {
			t.Fatal(err)
		}
		r.read("", io.EOF)
		if err := r.conn.Close(); err != nil {
			t.Fatal(err)
		}
		r.read("", net.ErrClosed)
	})
	t.Run("reset", func(t *testing.T) {
		r := newPooledConn(t)
		if err := r.other.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		if err := r.other.Close(); err != nil {
			t.Fatal(err)
		}
		r.read("", syscall.ECONNRESET)
	})
}

// pooledConn is a TCP connection as gRPC sees it.
type pooledConn struct {
	t     *testing.T
	conn  net.Conn
	other net.Conn
	pool  countingPool
}

func newPooledConn(t *testing.T) *pooledConn {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	r := &pooledConn{t: t}
	if r.other, err = net.Dial("tcp", lis.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.other.Close() })
	if r.conn, err = NewConnLimiter(Connections{Most: 1, MostOfPeer: 1}, false, slog.New(slog.DiscardHandler)).Listener(lis).Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	return r
}

// read checks that a read returns these bytes in a buffer, or an error and no buffer.
func (r *pooledConn) read(want string, wantErr error) {
	r.t.Helper()
	ready, ok := r.conn.(interface {
		ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
	})
	if !ok {
		r.t.Fatalf("%T has no ReadOnReady, which gRPC looks for", r.conn)
	}
	buf, n, err := ready.ReadOnReady(8, &r.pool)
	switch {
	case !errors.Is(err, wantErr):
		r.t.Fatalf("error %v, want %v", err, wantErr)
	case err != nil && (buf != nil || n != 0 || r.pool.inUse != 0):
		r.t.Errorf("with %v: %v, %d bytes, %d buffers are out", err, buf, n, r.pool.inUse)
	case err != nil:
	case string((*buf)[:n]) != want || r.pool.inUse != 1:
		r.t.Errorf("read %q, want %q; %d buffers are out", (*buf)[:n], want, r.pool.inUse)
	default:
		r.pool.Put(buf)
	}
}
