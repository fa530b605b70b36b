package worker

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/worker/internal/quotaretry"
)

// retryQuotaRefusals is an interceptor that retries a unary call that was refused because a quota is used up, after the wait that the coordinator asks
// for (X5). It gives up after a number of retries, or if the deadline of the call is before the end of the wait.
func retryQuotaRefusals(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for retries := 0; ; retries++ {
		err := invoke(ctx, method, req, reply, conn, opts...)
		wait, ok := quotaretry.Wait(err, retries)
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
