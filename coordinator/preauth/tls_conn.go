package preauth

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// tlsConn is the state of a TLS connection. A connection keeps the client certificate that it began
// with. When that certificate expires or is revoked, the client may already have another one, but
// it can present the other one only on a new connection. So the old connection is closed.
type tlsConn struct {
	credentials.TLSInfo
	counted *countedConn
	close   sync.Once
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

// lastWords is how long a retired connection stays open, so that answers under way still reach the
// client.
const lastWords = 500 * time.Millisecond

// retire closes the connection after lastWords.
func (c *tlsConn) retire() {
	c.close.Do(func() { time.AfterFunc(lastWords, func() { _ = c.counted.Close() }) })
}

// errRetired refuses a call on a connection that has shown a valid credential and is about to be
// closed. The caller itself is not refused: it may have a new certificate, and can make the call
// again on a new connection.
var errRetired = refusal.New(codes.Unavailable, refusal.CodeToken,
	"the client certificate of this connection has expired or was revoked: connect again", nil,
	refusal.RetryIn(lastWords))
