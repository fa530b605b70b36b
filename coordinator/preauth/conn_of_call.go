package preauth

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// plainConn is what a call over gRPC without TLS knows of its connection.
type plainConn struct {
	credentials.AuthInfo
	counted *countedConn
}

// callerInfo returns what the calls of a gRPC connection know of it: info, and the connection if it
// is counted.
func callerInfo(info credentials.AuthInfo, conn net.Conn) credentials.AuthInfo {
	counted := countedOf(conn)
	switch state, secure := info.(credentials.TLSInfo); {
	case counted == nil || info == nil:
		return info
	case secure:
		return &tlsConn{TLSInfo: state, counted: counted}
	}
	return &plainConn{info, counted}
}

// Plain returns credentials for a listener without TLS, given those of gRPC.
func Plain(of credentials.TransportCredentials) credentials.TransportCredentials { return plain{of} }

type plain struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (p plain) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	same, info, err := p.TransportCredentials.ServerHandshake(conn)
	return same, callerInfo(info, conn), err
}

// Clone implements credentials.TransportCredentials.
func (p plain) Clone() credentials.TransportCredentials { return plain{p.TransportCredentials.Clone()} }

type connKey struct{}

// WithConn returns a context for the requests of an HTTP connection, so that CredentialShown knows
// the connection.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, countedOf(conn))
}

// connOf returns the connection of a call or an HTTP request, or nil if it is not counted.
func connOf(ctx context.Context) *countedConn {
	if p, ok := peer.FromContext(ctx); ok {
		switch info := p.AuthInfo.(type) {
		case *tlsConn:
			return info.counted
		case *plainConn:
			return info.counted
		}
	}
	c, _ := ctx.Value(connKey{}).(*countedConn) // over HTTP
	return c
}
