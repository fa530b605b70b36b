package submitlimit

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Unary returns a description of TaskService whose unary submits are read only when there is room
// for them.
func (l *Limiter) Unary(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *desc
	out.Methods = slices.Clone(desc.Methods)
	for i, m := range out.Methods {
		switch "/" + desc.ServiceName + "/" + m.MethodName {
		case lessorv1.TaskService_SubmitTask_FullMethodName:
			out.Methods[i].Handler = l.whenFits(16, m.Handler) // there are many of them, and most are small
		case lessorv1.TaskService_BatchSubmitTasks_FullMethodName:
			out.Methods[i].Handler = l.whenFits(1, m.Handler)
		}
	}
	return &out
}

// whenFits wraps a handler of reqcodec.Guard. Until its size is known, a message takes a share of
// the guess.
func (l *Limiter) whenFits(part int, next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
		if preauth.Refused(ctx) { // or everybody could fill the room
			return next(srv, ctx, read, chain)
		}
		p, err := l.Take(ctx, gate.TenantOf(ctx), l.guess/part)
		if err != nil { // the interceptors log and count it like the end of any other call
			unread := func(any) error { return nil }
			var end grpc.UnaryHandler = func(context.Context, any) (any, error) { return nil, refusal.Status(err) }
			return next(srv, ctx, unread, func(ctx context.Context, m any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
				return chain(ctx, m, info, end)
			})
		}
		defer p.Leave()
		return next(srv, ctx, func(m any) error {
			err := read(m)
			p.Arrived(m.(*reqcodec.Request).Memory())
			return err
		}, chain)
	}
}
