package coordinator

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/lease"
)

// Protobuf refuses invalid UTF-8 while it reads a message, before any handler sees it and without naming the field, and grpc-go answers
// INTERNAL at once, as if it were our fault. It is the caller's. So the handlers of the services are wrapped and have requests read
// without an error of grpc's: one that cannot be read is INVALID_ARGUMENT with the field's path, and a report, Start or Heartbeat gets
// the verdict that the rules have for a bad field (V1).

// reading is a request that is read, or the reason why it cannot be.
type reading struct {
	into any
	asks asking
	bad  *lease.FieldError
}

// asking tells requests of who asks for something from what a worker says. In the former a field that the coordinator does not know is refused: its part of the
// matter would not be done. In the latter it is passed over, for a refusal would cost the worker its work (docs/decisions/0022-unknown-fields.md).
type asking bool

// readingCodec is a codec that never fails on a reading.
type readingCodec struct{ convert.Codec }

func (c readingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*reading)
	if !ok {
		return c.Codec.Unmarshal(data, v)
	}
	switch err := c.Codec.Unmarshal(data, r.into); {
	case errors.As(err, &r.bad):
	case err != nil:
		r.bad = &lease.FieldError{Field: "request", Problem: "cannot be read: " + err.Error()}
	case bool(r.asks):
		r.bad = convert.Unknown("", r.into.(proto.Message))
	}
	return nil
}

// malformed answers a request that could not be read: with a response, or a status.
type malformed func(ctx context.Context, err *lease.FieldError) (any, error)

// refuseMalformed is malformed for everything but reports.
func refuseMalformed(_ context.Context, err *lease.FieldError) (any, error) {
	return nil, refusal.Status(err)
}

// guarded returns desc with every unary handler wrapped; answers has the methods whose answer is not an error.
func guarded(desc *grpc.ServiceDesc, asks asking, answers map[string]malformed) *grpc.ServiceDesc {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		answer := answers[m.MethodName]
		if answer == nil {
			answer = refuseMalformed
		}
		out.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: guard(m.Handler, asks, answer)}
	}
	return &out
}

func guard(next grpc.MethodHandler, asks asking, answer malformed) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
		r := reading{asks: asks}
		read := func(request any) error {
			r.into = request
			return decode(&r)
		}
		// Who may not come in is not told what is wrong with the request: the interceptors come first.
		judged := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if r.bad != nil {
				handle = func(ctx context.Context, _ any) (any, error) { return answer(ctx, r.bad) }
			}
			return chain(ctx, request, info, handle)
		}
		return next(srv, ctx, read, judged)
	}
}
