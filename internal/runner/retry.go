package runner

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/detail"
)

const (
	// maxAway is how long the coordinator may be out of reach before a run gives up.
	maxAway  = 2 * time.Minute
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// retryWhileAway repeats a call with growing pauses until the coordinator answers, for at most
// maxAway. The call must be one that may be repeated.
func retryWhileAway(ctx context.Context, call func() error) error {
	var since time.Time
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := call()
		if !transient(err) || ctx.Err() != nil {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > maxAway {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// longLived is how long a stream must have lived to prove that it reached the coordinator, even if
// no event came: a line may run for hours, and coordinators close old connections.
const longLived = time.Minute

// streamError returns the error of a broken stream, or nil if another one may go on at once: the
// stream had reached the coordinator before it broke, or the credential that it began with has
// ended, and there may be a new one.
func streamError(ctx context.Context, err error, opened time.Time, begun, received bool) error {
	if begun && detail.Cut(ctx, err) {
		err = status.Error(codes.Unavailable, "the stream was cut: "+status.Convert(err).Message())
	}
	reached := transient(err) && (received || time.Since(opened) > longLived)
	if reached || begun && status.Code(err) == codes.Unauthenticated {
		return nil
	}
	return err
}

// transient reports whether err says that the coordinator did not answer or is overloaded, so that
// a repeat may help.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted:
		return true
	}
	return false
}
