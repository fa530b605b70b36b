package porch

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// attemptPace is that of failed attempts of an address (X5): each has its turn, and what comes sooner is answered in its turn. Nothing that is right waits.
var attemptPace = quota.Rate{PerSecond: 100, Burst: 1000}

// longestAttempt is the longest wait for a turn; beyond it the attempt is refused.
const longestAttempt = 2 * time.Second

// Attempts paces calls without a good credential. It is safe for concurrent use.
type Attempts struct{ pacer *quota.Pacer }

// NewAttempts makes a pace of its own.
func NewAttempts() Attempts { return Attempts{quota.NewPacer(attemptPace, longestAttempt)} }

// Failed waits for the turn of a call that failed, and returns why it failed: err, or that too many did.
func (a Attempts) Failed(ctx context.Context, err error) error {
	from := addressOf(ctx)
	if from == "" { // on this machine, and without a network
		return refusal.Status(err)
	}
	wait, ok := a.pacer.Turn(from)
	if !ok {
		return refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
			fmt.Sprintf("too many calls without a good credential come from this address; the quota is %v", attemptPace),
			map[string]string{"limit": "attempts", "of": "address", "value": attemptPace.String()}, refusal.RetryIn(wait))
	}
	quota.Pause(ctx, wait)
	return refusal.Status(err)
}
