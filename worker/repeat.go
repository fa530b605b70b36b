package worker

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/lessor-dev/lessor/worker/internal/refused"
)

// lastCall is how long before its deadline a call is made for the last time: the jitter before it is cut to that.
const lastCall = time.Second

// retryRefusals is an interceptor that retries a unary call that was refused because a quota is used up (X5), or because the coordinator stops, after
// the wait that the coordinator asks for. It gives up if the deadline of the call is before the end of the wait; without a deadline, after a number of
// retries.
func retryRefusals(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	for retries := 0; ; retries++ {
		err := invoke(ctx, method, req, reply, conn, opts...)
		deadline, ends := ctx.Deadline()
		counted := retries
		if ends {
			counted = min(retries, refused.MaxRetries-1) // the deadline bounds them
		}
		wait, ok := refused.Wait(err, counted)
		stopping := refused.Stopping(err)
		if stopping {
			wait, ok = refused.WaitAsked(err, retries)
		}
		if !ok {
			return err
		}
		if left := time.Until(deadline); ends {
			asked, _ := refused.Asked(err)
			if wait = max(asked, min(wait, left-lastCall)); left < wait {
				return err
			}
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
