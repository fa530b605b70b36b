package coordinator

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/lease"
)

// Invalid UTF-8 in a request is the caller's fault. But protobuf refuses it while it decodes the message, before any handler runs and without naming the
// field, and grpc-go then answers INTERNAL, as if it were the coordinator's fault. So the handlers of the services are wrapped, and the codec never
// returns a decoding error to grpc. A request that cannot be decoded gets INVALID_ARGUMENT with the path of the field. A report, Start or Heartbeat gets
// the verdict that the rules have for a malformed field (V1).

// reading is a request that was decoded, or the reason why it cannot be decoded.
type reading struct {
	into    any
	asks    asking
	size    int // bytes of the message
	bad     *lease.FieldError
	refused bool // the gate will refuse the call
	skipped bool // the request was not read, or not decoded, see maxOfRefused
}

// asking tells requests that ask for something (true) from reports of workers (false). An unknown field in a request is refused, because the coordinator
// would not do what the field asks for. An unknown field in a report is ignored, because the worker would lose its work if the report were refused
// (docs/decisions/0022-unknown-fields.md).
type asking bool

// readingCodec is a codec that returns no error when it decodes a reading: it stores the error in the reading.
type readingCodec struct{ encoding.CodecV2 }

func (c readingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reading)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.size = data.Len()
	if r.refused && data.Len() > maxOfRefused {
		r.skipped = true
		return nil
	}
	switch err := c.CodecV2.Unmarshal(data, r.into); {
	case errors.As(err, &r.bad):
	case err != nil:
		r.bad = &lease.FieldError{Field: "request", Problem: "cannot be read: " + err.Error()}
	case bool(r.asks):
		r.bad = convert.Unknown("", r.into.(proto.Message))
	}
	return nil
}

// malformed answers a request that could not be decoded, with a response or a status.
type malformed func(ctx context.Context, err *lease.FieldError) (any, error)

// refuseMalformed is the malformed of all methods except those for reports. It returns a status.
func refuseMalformed(_ context.Context, err *lease.FieldError) (any, error) {
	return nil, refusal.Status(err)
}

// guarded returns desc with every handler wrapped, except that of a Session: package session answers malformed frames itself. answers has the methods that
// answer a malformed request with a response.
func guarded(desc *grpc.ServiceDesc, asks asking, answers map[string]malformed) *grpc.ServiceDesc {
	out := *desc
	if asks {
		out.Streams = slices.Clone(desc.Streams)
		for i, s := range desc.Streams {
			out.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error { return s.Handler(srv, readingStream{stream}) }
		}
	}
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		answer := answers[m.MethodName]
		if answer == nil {
			answer = refuseMalformed
		}
		out.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: guard(m.Handler, "/"+desc.ServiceName+"/"+m.MethodName, asks, answer)}
	}
	return &out
}

func guard(next grpc.MethodHandler, method string, asks asking, answer malformed) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
		r := reading{asks: asks, refused: preauth.Refused(ctx)}
		r.skipped = r.refused && !gate.AuditsRefusal(ctx, method) // nobody needs the message, and it might never come
		read := func(request any) error {
			r.into = request
			if r.skipped {
				return nil
			}
			return decode(&r)
		}
		// The interceptors come first, so that a caller who may not make the call does not learn what is wrong with the request.
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

// readingStream is a stream on which a message that cannot be decoded is refused like a request of a unary call. If the codec returned the error to grpc, grpc
// would end the stream at once, and answers to earlier messages would be lost. The handlers look for unknown fields.
type readingStream struct{ grpc.ServerStream }

// RecvMsg reads the next message.
func (s readingStream) RecvMsg(m any) error {
	r, ok := m.(*reading) // of a handler that has to know the size
	if !ok {
		r = &reading{into: m}
	}
	if err := s.ServerStream.RecvMsg(r); err != nil {
		return err
	}
	if r.bad != nil {
		return refusal.Status(r.bad)
	}
	return nil
}
