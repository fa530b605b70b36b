package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// passed are the headers that become metadata of calls.
var passed = []string{"Authorization", "Traceparent"}

// AsCall is the context of a request as a gRPC call would have it: what the caller shows, from where, in which trace. Who looks at that can add to
// the line that is logged of the request (package logging).
func AsCall(r *http.Request) context.Context {
	md := metadata.MD{}
	for _, name := range passed {
		if sent := r.Header.Values(name); len(sent) > 0 {
			md.Set(name, sent...)
		}
	}
	from := &peer.Peer{Addr: caller(r)}
	if r.TLS != nil {
		from.AuthInfo = credentials.TLSInfo{State: *r.TLS, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	return logging.InjectFields(metadata.NewIncomingContext(peer.NewContext(r.Context(), from), md), nil)
}

// caller is the address that a request came from.
func caller(r *http.Request) net.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // no TCP
		return &net.UnixAddr{Name: r.RemoteAddr}
	}
	return net.TCPAddrFromAddrPort(at)
}
