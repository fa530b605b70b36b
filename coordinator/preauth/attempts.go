package preauth

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// attemptPace is how fast failed attempts from one address are answered (X5). If attempts come
// faster, their answers are delayed. A call with a valid credential is never delayed.
var attemptPace = quota.Rate{PerSecond: 100, Burst: 1000}

// longestAttempt is the longest delay of an answer. An attempt that would be delayed longer is
// refused at once, as one of too many.
const longestAttempt = 2 * time.Second

// Attempts delays the answers to calls without a valid credential. It is safe for concurrent use.
type Attempts struct{ pacer *quota.Pacer }

// NewAttempts returns an Attempts that has counted no call yet.
func NewAttempts() Attempts { return Attempts{quota.NewPacer(attemptPace, longestAttempt)} }

// Failed waits until a call that failed with err may be answered, and returns the status for err.
// If too many calls from the address have failed, it returns the status for that at once.
func (a Attempts) Failed(ctx context.Context, err error) error {
	from := addressOf(ctx)
	if from == "" { // a local caller that does not use TCP
		return refusal.Status(err)
	}
	wait, ok := a.pacer.Turn(from)
	if !ok {
		return refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
			fmt.Sprintf("too many calls without a valid credential from this address; the quota is %v", attemptPace),
			map[string]string{"limit": "attempts", "of": "address", "value": attemptPace.String()},
			refusal.RetryIn(wait))
	}
	quota.Pause(ctx, wait)
	return refusal.Status(err)
}
