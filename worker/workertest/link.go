package workertest

import (
	"net"
	"sync"
)

// link is a network between workers and the coordinator. While it is cut, bytes wait on both of its
// sides, as when a cable is out: nobody gets an error.
type link struct {
	mu     sync.Mutex
	cuts   int           // how many calls of cut have no mend yet
	mended chan struct{} // closed by the last mend; nil while the link is whole
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cuts++; l.cuts == 1 {
		l.mended = make(chan struct{})
	}
}

// mend takes a cut back.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cuts--; l.cuts == 0 {
		close(l.mended)
		l.mended = nil
	}
}

// wait returns when the link is whole, or over is closed.
func (l *link) wait(over <-chan struct{}) {
	l.mu.Lock()
	mended := l.mended
	l.mu.Unlock()
	if mended == nil {
		return
	}
	select {
	case <-mended:
	case <-over:
	}
}

// wrap returns a connection over the link.
func (l *link) wrap(conn net.Conn) net.Conn {
	return &linkConn{Conn: conn, link: l, closed: make(chan struct{})}
}

// linkConn is a connection over a link.
type linkConn struct {
	net.Conn
	link   *link
	once   sync.Once
	closed chan struct{}
}

func (c *linkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.link.wait(c.closed)
	return n, err
}

func (c *linkConn) Write(p []byte) (int, error) {
	c.link.wait(c.closed)
	return c.Conn.Write(p)
}

func (c *linkConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
