// Package uncompressed refuses calls whose messages are compressed: a few bytes could become very
// many in memory, past the limits that count bytes as they come in (X5).
//
// gRPC itself refuses an encoding only while nothing in the process has registered it, and has no
// option against one that is registered. The exporters of OpenTelemetry register gzip, both that
// over gRPC and that over HTTP, and so may any program that embeds a coordinator.
package uncompressed

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// Server is a gRPC server whose services refuse compressed calls before they read a message.
// Interceptors would come too late: those of unary calls get messages that were read.
type Server struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (s Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		out.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: unary(m.Handler)}
	}
	out.Streams = make([]grpc.StreamDesc, len(desc.Streams))
	for i, d := range desc.Streams {
		out.Streams[i] = d
		out.Streams[i].Handler = Stream(d.Handler)
	}
	s.Server.RegisterService(&out, impl)
}

func unary(next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
		if err := refuse(ctx); err != nil {
			return nil, err
		}
		return next(srv, ctx, decode, chain)
	}
}

// Stream returns a handler that refuses compressed calls, and leaves the others to next.
func Stream(next grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		if err := refuse(stream.Context()); err != nil {
			return err
		}
		return next(srv, stream)
	}
}

// refuse returns UNIMPLEMENTED, as gRPC does for an encoding that it does not know, if the header
// of the call says that its messages are compressed. A message that is compressed all the same is
// refused by gRPC.
func refuse(ctx context.Context) error {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok { // not over gRPC, as in a test of a handler
		return nil
	}
	switch stream.RecvCompress() {
	case "", encoding.Identity:
		return nil
	}
	return status.Error(codes.Unimplemented, "compressed messages are not accepted: leave out grpc-encoding")
}
