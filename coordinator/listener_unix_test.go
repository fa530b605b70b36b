//go:build unix

package coordinator

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
)

// lentPool counts the buffers that are out.
type lentPool struct{ out int }

func (p *lentPool) Get(size int) *[]byte {
	p.out++
	buf := make([]byte, size)
	return &buf
}

func (p *lentPool) Put(*[]byte) { p.out-- }

// A connection borrows a buffer for what there is to read, and none while there is nothing, nor for an end or an error.
func TestConnectionsBorrowBuffers(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	other, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn, err := newDoorkeeper(Connections{Most: 1, MostOfPeer: 1}, slog.New(slog.DiscardHandler)).listener(tcp).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ready, ok := conn.(interface {
		ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
	})
	if !ok {
		t.Fatalf("%T has no ReadOnReady, which gRPC looks for", conn)
	}
	pool := &lentPool{}
	read := func(want string, wantErr error) {
		t.Helper()
		buf, n, err := ready.ReadOnReady(8, pool)
		if !errors.Is(err, wantErr) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil {
			if buf != nil || n != 0 || pool.out != 0 {
				t.Errorf("with an error: %v, %d bytes, %d buffers are out", buf, n, pool.out)
			}
			return
		}
		if got := string((*buf)[:n]); got != want || pool.out != 1 {
			t.Errorf("read %q, want %q; %d buffers are out", got, want, pool.out)
		}
		pool.Put(buf)
	}
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	read("", os.ErrDeadlineExceeded)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Write([]byte("a frame, or two")); err != nil {
		t.Fatal(err)
	}
	read("a frame,", nil)
	read(" or two", nil)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	read("", io.EOF)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	read("", net.ErrClosed)
}
