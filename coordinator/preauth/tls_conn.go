package preauth

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// tlsConn is what is known of a connection over TLS. A connection keeps the client certificate that it began with. When that ends, by expiry or
// revocation, the client may long have another one, which it can show only on a new connection; so the old connection is closed.
type tlsConn struct {
	credentials.TLSInfo
	conn  net.Conn
	good  atomic.Bool // a call on it has shown a good credential
	close sync.Once
}

// TLSState returns the TLS state of the connection of a call, or nil if it has none.
func TLSState(ctx context.Context) *tls.ConnectionState {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	switch info := p.AuthInfo.(type) {
	case *tlsConn:
		return &info.State
	case credentials.TLSInfo: // over HTTP
		return &info.State
	}
	return nil
}

// tlsConnOf returns the connection of a call, or nil if it has no TLS.
func tlsConnOf(ctx context.Context) *tlsConn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	c, _ := p.AuthInfo.(*tlsConn)
	return c
}

// lastWords is how long a connection stays open for answers that are on their way.
const lastWords = 500 * time.Millisecond

// retire closes the connection in a moment.
func (c *tlsConn) retire() {
	c.close.Do(func() { time.AfterFunc(lastWords, func() { _ = c.conn.Close() }) })
}

// errRetired refuses a call on a connection that is about to be closed. It is no refusal of the caller, who may have a new certificate: the next
// connection tells.
var errRetired = refusal.New(codes.Unavailable, refusal.CodeToken,
	"the client certificate of this connection has expired or was revoked: connect again", nil, refusal.RetryIn(lastWords))
