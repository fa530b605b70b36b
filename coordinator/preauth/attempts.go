package preauth

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// attemptPace is how fast the failed attempts of one address are answered (X5): attempts that come faster wait for their turn. A good credential never
// waits.
var attemptPace = quota.Rate{PerSecond: 100, Burst: 1000}

// longestAttempt is the longest wait for a turn. An attempt that would wait longer is refused.
const longestAttempt = 2 * time.Second

// Attempts slows down the answers to calls without a good credential. It is safe for concurrent use.
type Attempts struct{ pacer *quota.Pacer }

// NewAttempts returns Attempts that has seen no call yet.
func NewAttempts() Attempts { return Attempts{quota.NewPacer(attemptPace, longestAttempt)} }

// Failed waits for the turn of a call that failed with err, and returns the status for err. If there were too many failed calls from the address, it
// returns the status for that at once.
func (a Attempts) Failed(ctx context.Context, err error) error {
	from := addressOf(ctx)
	if from == "" { // the caller is on this machine, and came over no network
		return refusal.Status(err)
	}
	wait, ok := a.pacer.Turn(from)
	if !ok {
		return refusal.New(codes.ResourceExhausted, refusal.CodeQuotaAttempts,
			fmt.Sprintf("too many calls without a valid credential from this address; the quota is %v", attemptPace),
			map[string]string{"limit": "attempts", "of": "address", "value": attemptPace.String()}, refusal.RetryIn(wait))
	}
	quota.Pause(ctx, wait)
	return refusal.Status(err)
}
