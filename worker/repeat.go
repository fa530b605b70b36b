package worker

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/lessor-dev/lessor/worker/internal/refused"
)

// lastCall is how long before its deadline a call is made for the last time if the deadline bounds
// the repeats: that is for the answer.
const lastCall = time.Second

// retryRefusals is an interceptor that retries a unary call that was refused because a quota is
// used up (X5), or because the coordinator stops, or has no room or time for it, after the wait
// that the coordinator asks for. It gives up if the deadline of the call is before the end of the
// wait, and after a number of retries; but a call with a deadline that waits for a quota, or for
// the next coordinator, does so until shortly before it.
func retryRefusals(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	for retries := 0; ; retries++ {
		err := invoke(ctx, method, req, reply, conn, opts...)
		deadline, ends := ctx.Deadline()
		left, stopping, counted := time.Until(deadline), refused.Stopping(err), retries
		patient := ends && left > lastCall && (stopping || refused.ByQuota(err))
		if patient {
			counted = min(retries, refused.MaxRetries-1)
		}
		wait, ok := refused.Wait(err, counted)
		if stopping {
			wait, ok = refused.WaitAsked(err, counted)
		}
		if !ok {
			return err
		}
		if patient {
			asked, _ := refused.Asked(err)
			wait = max(asked, min(wait, left-lastCall))
		}
		if ends && left < wait {
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

// awaitConnection waits until there is a connection, but no longer than mostAway: while there is
// none, a retry would fail with an error that does not say, as the refusal does, that nothing was
// done.
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
