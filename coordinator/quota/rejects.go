package quota

import (
	"context"
	"time"
)

// rejectPace is how fast one credential gets the answers that Rejects slows down (X5). If a caller
// causes such answers faster, they are delayed. A caller that does nothing wrong is never delayed.
var rejectPace = Rate{PerSecond: 100, Burst: 1000}

// longestReject is the longest delay. After it the answer is given in any case.
const longestReject = time.Second

// Rejects slows down answers that no correct caller asks for: REJECTED verdicts about unary
// reports, and refusals of calls whose quota is used up.
type Rejects struct{ pacer *Pacer }

// NewRejects returns a Rejects that has counted no answer yet.
func NewRejects() Rejects { return Rejects{NewPacer(rejectPace, longestReject)} }

// Answer waits for the caller's turn to get such an answer, at most a second, and returns how long
// it waited.
func (r Rejects) Answer(ctx context.Context, who Caller) time.Duration {
	wait, _ := r.pacer.Turn(who.Tenant + "\x00" + who.Credential)
	begin := time.Now()
	Pause(ctx, min(wait, longestReject))
	return time.Since(begin)
}
