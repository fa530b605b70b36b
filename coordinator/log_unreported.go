package coordinator

import (
	"log/slog"
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// mostUnreported is how many leases that ended without a report have a line each in the log, from
// one look to the next.
const mostUnreported = 100

// unreportedLog says in the log which leases have ended without a report of their worker, because
// time or an operator took them: without that, nothing but the history of a task says why it has
// run twice. When thousands expire at once, mostUnreported have a line, and another one counts the
// rest.
type unreportedLog struct {
	log *slog.Logger

	mu         sync.Mutex
	told, rest int // since the last look
}

// changed looks for such an end in a change of a task; see engine.Events.
func (l *unreportedLog) changed(before, after *lease.Task) {
	if before == nil || before.Lease == nil || after == nil || after.Last.Attempt != before.Lease.Attempt ||
		!unreported(&after.Last) {
		return
	}
	if !l.admit() {
		return
	}
	end := &after.Last
	l.log.Info("a lease ended without a report of its worker", "tenant", after.Tenant, "task_id",
		after.ID.String(), "queue", after.Spec.Queue,
		"worker", end.Worker, "attempt", end.Attempt, "cause", end.Cause.String(), "detail", after.EndDetail(),
		"losses", after.Losses, "failures", after.Failures, "unacknowledged", after.Unacked)
}

// unreported reports whether a lease ended without a report of its worker. That is more than the
// task counts as losses: also a dispatch that nobody acknowledged, which may point to a broken
// network, and a limit that the producer set. A lease that was taken back before it was
// acknowledged is left out: to the task it is as if there had been no grant.
func unreported(end *lease.Ended) bool {
	switch end.Cause {
	case lease.LeaseExpired, lease.DispatchUnacked, lease.DeadlineExceeded, lease.CancelTimeout:
		return true
	case lease.Revoked, lease.CoordinatorRecovered:
		return end.AckedAt != 0
	}
	return false
}

// admit reports whether the next end has a line, and counts it if not.
func (l *unreportedLog) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == mostUnreported {
		l.rest++
		return false
	}
	l.told++
	return true
}

// look tells of the ends that had no line since the last look.
func (l *unreportedLog) look() {
	l.mu.Lock()
	rest := l.rest
	l.told, l.rest = 0, 0
	l.mu.Unlock()
	if rest > 0 {
		l.log.Info("more leases ended without a report at once: the history of each task has its own", "leases", rest)
	}
}
