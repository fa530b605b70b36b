package coordinator

import (
	"log/slog"
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// mostLosses is how many leases that were lost have a line each in the log, from one look to the next.
const mostLosses = 100

// lossLog says in the log which leases have ended without a report of their worker, because time or an operator took them: without that, nothing but
// the history of a task says why it has run twice. When thousands expire at once, mostLosses have a line, and another one counts the rest.
type lossLog struct {
	log *slog.Logger

	mu         sync.Mutex
	told, rest int // since the last look
}

// changed looks for a loss in a change of a task; see engine.Events.
func (l *lossLog) changed(before, after *lease.Task) {
	if before == nil || before.Lease == nil || after == nil || after.Last.Attempt != before.Lease.Attempt || !isLoss(&after.Last) {
		return
	}
	if !l.admit() {
		return
	}
	end := &after.Last
	l.log.Info("a lease was lost: it ended without a report of its worker", "tenant", after.Tenant, "task_id", after.ID.String(), "queue", after.Spec.Queue,
		"worker", end.Worker, "attempt", end.Attempt, "cause", end.Cause.String(), "detail", after.EndDetail(), "losses", after.Losses)
}

// isLoss reports whether a lease was lost. One that was taken back before its worker acknowledged it is none: the worker has run nothing.
func isLoss(end *lease.Ended) bool {
	switch end.Cause {
	case lease.LeaseExpired, lease.DispatchUnacked, lease.DeadlineExceeded, lease.CancelTimeout:
		return true
	case lease.Revoked, lease.CoordinatorRecovered:
		return end.AckedAt != 0
	}
	return false
}

// admit reports whether the next loss has a line, and counts it if not.
func (l *lossLog) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == mostLosses {
		l.rest++
		return false
	}
	l.told++
	return true
}

// look tells of the losses that had no line since the last look.
func (l *lossLog) look() {
	l.mu.Lock()
	rest := l.rest
	l.told, l.rest = 0, 0
	l.mu.Unlock()
	if rest > 0 {
		l.log.Info("more leases were lost at once: the history of each task has its own", "leases", rest)
	}
}
