package coordinator

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// frameBytes counts the bytes of session frames, by direction. It takes the sizes from grpc, so no
// frame has to be measured again.
type frameBytes struct{ in, out prometheus.Counter }

var _ stats.Handler = frameBytes{}

type sessionCall struct{}

// TagRPC marks the calls that are sessions.
func (frameBytes) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if info.FullMethodName == lessorv1.WorkerService_Session_FullMethodName {
		return context.WithValue(ctx, sessionCall{}, true)
	}
	return ctx
}

// HandleRPC counts a frame.
func (b frameBytes) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if ctx.Value(sessionCall{}) == nil {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		b.in.Add(float64(s.Length))
	case *stats.OutPayload:
		b.out.Add(float64(s.Length))
	}
}

// TagConn does nothing.
func (frameBytes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (frameBytes) HandleConn(context.Context, stats.ConnStats) {}
