package coordinator

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/sendlimit"
)

// chain holds the interceptors of every call, outermost first.
type chain struct {
	unary  []grpc.UnaryServerInterceptor
	stream []grpc.StreamServerInterceptor
}

// newChain returns the interceptors of every call, over gRPC or from within the process. The
// metrics and the log come before the recovery from panics, so that they show a panic as the error
// that the caller gets. They also come before the gate, so that they show the calls which the gate
// refuses.
func newChain(log *slog.Logger, underWay *calls, m *callMetrics, g *gate.Gate) chain {
	caught := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		log.ErrorContext(ctx, "panic in a handler", "panic", p, "stack", string(debug.Stack()))
		return refusal.New(codes.Internal, refusal.CodeInternal, "internal error", nil)
	})
	lines := callLog{log}
	return chain{
		unary: []grpc.UnaryServerInterceptor{
			underWay.unary,
			m.unary,
			lines.unary,
			recovery.UnaryServerInterceptor(caught),
			g.Unary,
			sendlimit.Limiter{UntilEnded: g.UntilEnded}.Unary,
		},
		stream: []grpc.StreamServerInterceptor{
			underWay.stream,
			m.stream,
			lines.stream,
			recovery.StreamServerInterceptor(caught),
			lines.refusedSessions(g.Stream),
		},
	}
}

// callUnary runs a call through the interceptors of the chain.
func (c chain) callUnary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	for i := len(c.unary) - 1; i >= 0; i-- {
		next, link := handle, c.unary[i]
		handle = func(ctx context.Context, request any) (any, error) { return link(ctx, request, info, next) }
	}
	return handle(ctx, request)
}

func (c chain) callStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	for i := len(c.stream) - 1; i >= 0; i-- {
		next, link := handle, c.stream[i]
		handle = func(server any, stream grpc.ServerStream) error { return link(server, stream, info, next) }
	}
	return handle(server, stream)
}
