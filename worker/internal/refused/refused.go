// Package refused says whether and when to retry a call that the coordinator refused because a
// quota was used up (X5), or because it stops.
package refused

import (
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/detail"
)

// MaxRetries is how often a call is retried, unless something else bounds it.
const MaxRetries = 10

// Bounds of the jitter.
const (
	firstMaxJitter = 50 * time.Millisecond // of the first retry; it doubles with each further retry
	maxJitter      = 5 * time.Second
)

// Wait returns how long to wait before retrying a call that failed with err, after the given number
// of earlier retries. ok is false if the call should not be retried. Only RESOURCE_EXHAUSTED with
// RetryInfo is worth a retry: then nothing was done, and the coordinator says how long to wait.
// Wait adds a random jitter, whose bound grows with each retry, so that callers that were refused
// together do not come back together.
func Wait(err error, retries int) (wait time.Duration, ok bool) {
	if status.Code(err) != codes.ResourceExhausted {
		return 0, false
	}
	return WaitAsked(err, retries)
}

// WaitAsked is Wait for any error after which nothing was done.
func WaitAsked(err error, retries int) (wait time.Duration, ok bool) {
	wait, ok = Asked(err)
	if !ok || retries >= MaxRetries {
		return 0, false
	}
	return wait + rand.N(min(firstMaxJitter<<retries, maxJitter)), true
}

// Asked returns the wait that err asks for, with RetryInfo; ok is false if it asks for none.
func Asked(err error) (wait time.Duration, ok bool) {
	info := detail.Of[*errdetails.RetryInfo](status.Convert(err))
	return info.GetRetryDelay().AsDuration(), info != nil
}

// ByQuota reports whether a call was refused because a quota was used up (X5).
func ByQuota(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.ResourceExhausted && strings.HasPrefix(detail.ReasonOf(s), "QUOTA_")
}

// Stopping reports whether a coordinator has refused a call because it stops: nothing was done.
func Stopping(err error) bool { return Because(err, "COORDINATOR_STOPPING") }

// Because reports whether err is of a coordinator that is unavailable for this reason.
func Because(err error, reason string) bool {
	return status.Code(err) == codes.Unavailable && detail.ReasonOf(status.Convert(err)) == reason
}
