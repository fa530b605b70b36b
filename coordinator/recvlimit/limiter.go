package recvlimit

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Limiter bounds what all connections together have of unfinished messages. It is safe for
// concurrent use.
type Limiter struct {
	most   int64 // bytes
	log    *slog.Logger
	closed prometheus.Counter

	bytes     atomic.Int64
	relieving sync.Mutex // held while connections are closed

	mu   sync.Mutex         // taken after conn.mu
	have map[*conn]struct{} // connections of which bytes count
}

// New returns a limiter for at most that many bytes, beyond the first Window of each message.
func New(most int64, log *slog.Logger) *Limiter {
	return &Limiter{most: most, log: log, have: map[*conn]struct{}{}, closed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lessor_connections_unfinished_total",
		Help: "Connections that were closed because of the messages that were begun on them and not finished.",
	})}
}

// Closed counts the connections that were closed.
func (l *Limiter) Closed() prometheus.Collector { return l.closed }

// Handshakes returns credentials for a listener of gRPC, given others, whose connections are
// counted.
func (l *Limiter) Handshakes(of credentials.TransportCredentials) credentials.TransportCredentials {
	return handshakes{of, l}
}

type handshakes struct {
	credentials.TransportCredentials
	limiter *Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return secure, info, err
	}
	return h.limiter.follow(secure), info, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.limiter}
}

// follow returns the connection in a form that is counted.
func (l *Limiter) follow(of net.Conn) net.Conn {
	c := &conn{Conn: of, limiter: l, in: frames{skip: prefaceSize}}
	if from, ok := of.(readOnReady); ok {
		return readyConn{c, from}
	}
	return c
}

// count changes how many bytes count. first and none say whether the connection had none before, or
// has none now. It reports whether there are too many.
func (l *Limiter) count(c *conn, grown int, first, none bool) (over bool) {
	if first != none {
		l.mu.Lock()
		if none {
			delete(l.have, c)
		} else {
			l.have[c] = struct{}{}
		}
		l.mu.Unlock()
	}
	return l.bytes.Add(int64(grown)) > l.most
}

// relieve closes connections until what is left is within the bound: always the one with the oldest
// message.
func (l *Limiter) relieve() {
	l.relieving.Lock()
	defer l.relieving.Unlock()
	for l.bytes.Load() > l.most {
		c, since := l.oldest()
		if c == nil {
			return
		}
		l.log.Warn("connection closed: too much of messages that were begun and not finished",
			"peer.address", c.RemoteAddr().String(), "bytes", c.drop(), "age", time.Since(since), "of_all", l.most)
		l.closed.Inc()
		go func() { _ = c.Conn.Close() }() // TLS may wait for a client that does not read
	}
}

// oldest returns the connection with the oldest message, and when this has begun; nil if there is
// none.
func (l *Limiter) oldest() (found *conn, since time.Time) {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.have))
	l.mu.Unlock()
	for _, c := range all {
		if at := c.oldest(); !at.IsZero() && (found == nil || at.Before(since)) {
			found, since = c, at
		}
	}
	return found, since
}
