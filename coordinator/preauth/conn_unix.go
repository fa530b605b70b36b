//go:build unix

package preauth

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// readyConn takes a read buffer only when data has arrived, so an idle connection holds no buffer.
// gRPC does the same for a *net.TCPConn, and for any connection that has the method ReadOnReady.
type readyConn struct {
	*countedConn
	raw  syscall.RawConn
	read func(fd uintptr) bool // made once, so that a read allocates nothing

	// State of the read under way; only one goroutine reads.
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

// lean returns the connection in the form that needs the least memory.
func (c *countedConn) lean() net.Conn {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	r := &readyConn{countedConn: c, raw: raw}
	r.read = r.readNow
	return r
}

// ReadOnReady waits until data has arrived, and reads it into a buffer of size bytes from the pool.
// Two goroutines must not call ReadOnReady at the same time.
func (r *readyConn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	r.size, r.pool = size, pool
	err = r.raw.Read(r.read)
	buf, n = r.buf, r.n
	if err == nil {
		err = r.err
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	r.pool, r.buf, r.n, r.err = nil, nil, 0, nil
	if err != nil {
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	}
	return buf, n, nil
}

// readNow reads the data that has arrived. It returns false if there is none yet.
func (r *readyConn) readNow(fd uintptr) bool {
	buf := r.pool.Get(r.size)
	for {
		r.n, r.err = syscall.Read(int(fd), *buf)
		if !errors.Is(r.err, syscall.EINTR) {
			break
		}
	}
	if r.err == nil {
		r.buf = buf
		return true
	}
	r.pool.Put(buf)
	return !errors.Is(r.err, syscall.EAGAIN)
}
