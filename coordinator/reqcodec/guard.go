package reqcodec

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/lease"
)

// Asking tells requests that ask for something (true) from reports of workers (false). An unknown
// field in a request is refused, because the coordinator would not do what the field asks for. An
// unknown field in a report is ignored, because the worker would lose its work if the report were
// refused (docs/decisions/0022-unknown-fields.md).
type Asking bool

// Answer answers a request that could not be decoded, with a response or a status.
type Answer func(ctx context.Context, err *lease.FieldError) (any, error)

// refuseMalformed is the Answer of all methods except those for reports. It returns a status.
func refuseMalformed(_ context.Context, err *lease.FieldError) (any, error) {
	return nil, refusal.Status(err)
}

// Guard returns desc with every handler wrapped, except that of a Session: package session answers
// malformed frames itself. answers has the methods that answer a malformed request with a response.
func Guard(desc *grpc.ServiceDesc, asks Asking, answers map[string]Answer) *grpc.ServiceDesc {
	out := *desc
	if asks {
		out.Streams = slices.Clone(desc.Streams)
		for i, s := range desc.Streams {
			out.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
				return s.Handler(srv, guardedStream{stream})
			}
		}
	}
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		answer := answers[m.MethodName]
		if answer == nil {
			answer = refuseMalformed
		}
		out.Methods[i] = grpc.MethodDesc{
			MethodName: m.MethodName,
			Handler:    guard(m.Handler, "/"+desc.ServiceName+"/"+m.MethodName, asks, answer),
		}
	}
	return &out
}

func guard(next grpc.MethodHandler, method string, asks Asking, answer Answer) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
		r := Request{asks: asks, refused: preauth.Refused(ctx)}
		r.skipped = r.refused && !gate.AuditsRefusal(ctx, method) // nobody needs the message, and it might never come
		read := func(request any) error {
			r.Into = request.(proto.Message)
			if r.skipped {
				return nil
			}
			return decode(&r)
		}
		// The interceptors come first, so that a caller who may not make the call does not learn
		// what is wrong with the request.
		judged := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			switch {
			case r.skipped:
				handle = func(context.Context, any) (any, error) { return nil, errNotDecoded }
			case r.bad != nil:
				handle = func(ctx context.Context, _ any) (any, error) { return answer(ctx, r.bad) }
			}
			return chain(ctx, request, info, handle)
		}
		return next(srv, ctx, read, judged)
	}
}

// guardedStream is a stream on which a message that cannot be decoded is refused like a request of
// a unary call. If the codec returned the error to grpc, grpc would end the stream at once, and
// answers to earlier messages would be lost. The handlers look for unknown fields.
type guardedStream struct{ grpc.ServerStream }

// RecvMsg reads the next message.
func (s guardedStream) RecvMsg(m any) error {
	r, ok := m.(*Request) // of a handler that has to know the size
	if !ok {
		r = &Request{Into: m.(proto.Message)}
	}
	if err := s.ServerStream.RecvMsg(r); err != nil {
		return err
	}
	if r.bad != nil {
		return refusal.Status(r.bad)
	}
	return nil
}
