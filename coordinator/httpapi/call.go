package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// passed lists the headers that are copied into the metadata of calls.
var passed = []string{"Authorization", "Traceparent"}

// AsCall returns the context of a request in the form of a gRPC call's context, with the caller's
// credentials, address and trace context. Code that gets the context can add fields to the log line
// of the request (package logging).
func AsCall(r *http.Request) context.Context {
	md := metadata.MD{}
	for _, name := range passed {
		if sent := r.Header.Values(name); len(sent) > 0 {
			md.Set(name, sent...)
		}
	}
	from := &peer.Peer{Addr: caller(r)}
	if r.TLS != nil {
		from.AuthInfo = credentials.TLSInfo{
			State:          *r.TLS,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}
	}
	return logging.InjectFields(metadata.NewIncomingContext(peer.NewContext(r.Context(), from), md), nil)
}

// misread reports a request that could not be read, with Config.Misread. It returns the problem to
// answer with.
func (a *api) misread(r *http.Request, method string, request proto.Message, p *problem) *problem {
	err := a.Misread(r.Context(), method, request, p.body.Code, p.withoutContent())
	if status.Code(err) != codes.InvalidArgument {
		return failed(err)
	}
	told := *p // a copy, because some problems are shared
	told.logged = true
	return &told
}

// caller returns the address that a request came from.
func caller(r *http.Request) net.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // not over TCP
		return &net.UnixAddr{Name: r.RemoteAddr}
	}
	return net.TCPAddrFromAddrPort(at)
}
