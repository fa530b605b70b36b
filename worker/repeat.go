package worker

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/lessor-dev/lessor/worker/internal/refused"
)

// retryRefusals is an interceptor that retries a unary call that was refused because a quota is used up (X5), or because the coordinator stops, after
// the wait that the coordinator asks for. It gives up after a number of retries, or if the deadline of the call is before the end of the wait.
func retryRefusals(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	for retries := 0; ; retries++ {
		err := invoke(ctx, method, req, reply, conn, opts...)
		wait, ok := refused.Wait(err, retries)
		stopping := refused.Stopping(err)
		if stopping {
			wait, ok = refused.WaitAsked(err, retries)
		}
		if deadline, ends := ctx.Deadline(); !ok || ends && time.Until(deadline) < wait {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		if stopping && !awaitConnection(ctx, conn) {
			return err
		}
	}
}

// awaitConnection waits until there is a connection, but no longer than mostAway: while there is none, a retry would fail with an error that does not
// say, as the refusal does, that nothing was done.
func awaitConnection(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, mostAway)
	defer cancel()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return true
		}
		conn.Connect() // if it is idle
		if state == connectivity.Shutdown || !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}
