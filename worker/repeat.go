package worker

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/worker/internal/again"
)

// repeatRefused makes unary calls again that are refused since a quota is used up, after the wait that the coordinator tells (X5). It gives up after some
// repeats, or where the call would end before.
func repeatRefused(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for repeats := 0; ; repeats++ {
		err := invoke(ctx, method, req, reply, conn, opts...)
		wait, ok := again.Wait(err, repeats)
		if deadline, ends := ctx.Deadline(); !ok || ends && time.Until(deadline) < wait {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}
