package runner

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// patience is how long the coordinator may be out of reach before a run gives up.
	patience = 2 * time.Minute
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// retryWhileAway repeats a call with growing pauses until it is answered, for as long as the coordinator may be away. Only calls that may be
// repeated may be made like this.
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
		if time.Since(since) > patience {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// longLived is how long a stream must have lived to show that the coordinator was there although it sent nothing. Coordinators end old
// connections, and a line may run for hours.
const longLived = time.Minute

// streamError returns the error of a broken stream, or nil if the stream had shown before that the coordinator was there.
func streamError(err error, opened time.Time, received bool) error {
	if transient(err) && (received || time.Since(opened) > longLived) {
		return nil
	}
	return err
}

// transient reports whether err says that there was no answer, rather than what the answer was.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted:
		return true
	}
	return false
}
