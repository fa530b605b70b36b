package coordinator

import (
	"context"
	"time"

	"github.com/lessor-dev/lessor/coordinator/quota"
)

// rejectPace is the pace of what is wrong, by credential (X5): of reports by unary calls that are REJECTED, and of calls over its quotas. Each has its
// turn, and what comes sooner is answered in its turn. Nothing that is right waits.
var rejectPace = quota.Rate{PerSecond: 100, Burst: 1000}

// longestReject is the longest wait for a turn.
const longestReject = time.Second

// rejects paces answers that are no use to who gets them: to reports that no worker says that obeys the protocol, and to calls that come although their
// quota is used up.
type rejects struct{ *quota.Pacer }

func newRejects() rejects { return rejects{quota.NewPacer(rejectPace, longestReject)} }

// answer waits before such an answer is given, and returns for how long it did.
func (r rejects) answer(ctx context.Context, who quota.Caller) time.Duration {
	wait, _ := r.Turn(who.Tenant + "\x00" + who.Credential)
	begin := time.Now()
	quota.Pause(ctx, min(wait, longestReject))
	return time.Since(begin)
}
