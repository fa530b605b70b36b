package quota

import (
	"context"
	"time"
)

// rejectPace is the pace of what is wrong, by credential (X5): of reports by unary calls that are REJECTED, and of calls over its quotas. Each has its
// turn, and what comes sooner is answered in its turn. Nothing that is right waits.
var rejectPace = Rate{PerSecond: 100, Burst: 1000}

// longestReject is the longest wait for a turn.
const longestReject = time.Second

// Rejects paces answers that are no use to who gets them: to reports that no worker says that obeys the protocol, and to calls that come although their
// quota is used up.
type Rejects struct{ pacer *Pacer }

// NewRejects makes a pace of its own.
func NewRejects() Rejects { return Rejects{NewPacer(rejectPace, longestReject)} }

// Answer waits before such an answer is given, and returns for how long it did.
func (r Rejects) Answer(ctx context.Context, who Caller) time.Duration {
	wait, _ := r.pacer.Turn(who.Tenant + "\x00" + who.Credential)
	begin := time.Now()
	Pause(ctx, min(wait, longestReject))
	return time.Since(begin)
}
