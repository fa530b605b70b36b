package preauth

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/internal/turn"
)

// countedConn is a connection that counts against the limits until it is closed.
type countedConn struct {
	net.Conn
	limiter *ConnLimiter
	from    origin
	began   time.Time
	good    atomic.Bool  // a valid credential was shown on it
	calls   turn.Counter // the calls on it; only the goroutine that reads it may use this

	// The limiter's lock guards the rest.
	left  bool          // it is no longer counted
	crowd *crowd        // the strangers from its address; nil if it is none of them
	place *list.Element // in crowd.conns
}

// Close closes the connection and ends its counting. It may be called more than once.
func (c *countedConn) Close() error {
	defer func() {
		c.limiter.mu.Lock()
		defer c.limiter.mu.Unlock()
		c.limiter.leave(c)
	}()
	return c.Conn.Close()
}

// counted returns the connection itself, also of a type that embeds it.
func (c *countedConn) counted() *countedConn { return c }

// countedOf returns the counted connection in conn, or nil if conn is not counted.
func countedOf(conn net.Conn) *countedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if in, ok := conn.(interface{ counted() *countedConn }); ok {
		return in.counted()
	}
	return nil
}

// CredentialShown notes that a call or an HTTP request has shown a valid credential, so that its
// connection does not make room for others from then on, even if the credential ends.
func CredentialShown(ctx context.Context) {
	c := connOf(ctx)
	if c == nil || c.good.Load() {
		return
	}
	c.good.Store(true)
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	remove(c)
}
