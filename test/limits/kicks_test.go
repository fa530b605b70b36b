package limits

import (
	"strconv"
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// kick is a call of KickWorker. Its number is in the reason that it states.
type kick struct {
	of       workerOf
	requeue  bool
	began    time.Time
	answered time.Time          // zero: it has no answer, or an error
	ended    map[*instance]bool // all leases that these held when it began have ended since
}

const kickReason = "kick "

// kicking notes that a call kicks a worker for a reason. answered must be called with its answer;
// it returns the streams that must end.
func (b *book) kicking(
	of workerOf, c *client, requeue bool,
) (reason string, answered func(*lessorv1.KickWorkerResponse, error) []*line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := &kick{of: of, requeue: requeue, began: time.Now(), ended: map[*instance]bool{}}
	reason = kickReason + strconv.Itoa(len(b.kicks))
	b.kicks = append(b.kicks, k)
	return reason, func(res *lessorv1.KickWorkerResponse, err error) (lines []*line) {
		b.shown(of.tenant, res.GetWorkers(), k.began)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil || !b.w.isCurrent(of.tenant, c) {
			return nil
		}
		k.answered = time.Now()
		sessions := map[string]bool{}
		for _, s := range res.GetWorkers() {
			sessions[s.GetSessionId()] = true
		}
		for _, i := range b.instances(of.tenant, res.GetWorkers()) {
			lines = append(lines, i.kicked(sessions, k.began)...)
			if requeue && i.hasOnly(sessions, k.began) {
				k.ended[i] = true
				b.revoked(i, k)
			}
		}
		return lines
	}
}

// kicked returns the streams of sessions that were kicked by a call which began then. Slow ones end
// later.
func (i *instance) kicked(sessions map[string]bool, began time.Time) (lines []*line) {
	for _, l := range i.lines {
		if sessions[l.session] && l.since.Before(began) && l.slow == 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// hasOnly reports whether an instance has surely had no other sessions than these since a time:
// another one might have its leases.
func (i *instance) hasOnly(sessions map[string]bool, since time.Time) bool {
	for _, l := range i.lines {
		if !sessions[l.session] && (l.until.IsZero() || !l.until.Before(since)) {
			return false
		}
	}
	return !i.sdk
}

// revoked notes that the leases which an instance held before a kick have ended. Where it has sent
// a report, the lease may have ended by that.
func (b *book) revoked(i *instance, k *kick) {
	for _, l := range b.leases {
		if l.by == i && !l.moved && l.since.Before(k.began) && l.epoch == b.epochs && len(l.sent) == 0 && l.lost.IsZero() {
			l.lost, l.lostBy = k.answered, "a kick with requeue"
			b.w.count("kick", "a lease has ended")
		}
	}
}

// forgetKicks forgets what followed from the kicks that were not answered before a time.
func (b *book) forgetKicks(before time.Time) {
	for _, k := range b.kicks {
		if !k.answered.Before(before) {
			clear(k.ended)
		}
	}
}

// checkKicked checks that a lease has ended before the answer to each kick with requeue of its
// holder (W10).
func (b *book) checkKicked(g *grant, e *lessorv1.HistoryEvent) {
	if g.by == nil || g.known != nil && g.known.moved {
		return
	}
	for _, k := range b.kicks {
		if k.ended[g.by] && g.at.Before(k.began) && e.GetAt().AsTime().After(k.answered) {
			b.w.problem("W10: attempt %d of %s was granted at %v to %v, which was kicked with requeue between %v and %v, and then it ends so: %v",
				g.attempt, g.task, g.at, g.by, k.began, k.answered, e)
		}
	}
}

// checkRevoked checks the end of a lease that was REVOKED: by a kick with requeue, which takes
// nothing from the task (W10), or because its holder has left or has refused it. No kick without
// requeue does that, and no drain.
func (b *book) checkRevoked(tn *tenant, g *grant, e *lessorv1.HistoryEvent) {
	if _, number, kicked := strings.Cut(e.GetDetail(), kickReason); kicked {
		n, err := strconv.Atoi(number)
		if err != nil {
			b.w.Fatal(err)
		}
		b.checkRevokedBy(b.kicks[n], tn, g, e)
		return
	}
	if g.by == nil || g.by.sdk || g.known != nil && (g.known.moved || g.known.refused) {
		return
	}
	if left := g.by.left; left.IsZero() || left.After(e.GetAt().AsTime()) {
		b.w.problem("W10: attempt %d of %s was REVOKED, but %v has not left, was not replaced and was not kicked: %v",
			g.attempt, g.task, g.by, e)
	}
}

func (b *book) checkRevokedBy(k *kick, tn *tenant, g *grant, e *lessorv1.HistoryEvent) {
	at := e.GetAt().AsTime()
	late := !k.answered.IsZero() && at.After(k.answered)
	if !k.requeue || k.of != (workerOf{tn, e.GetActor()}) || late || at.Before(k.began) {
		b.w.problem("W10: attempt %d of %s, of session %q, was ended by a kick of %s of %s with requeue %v between %v and %v: %v",
			g.attempt, g.task, g.session, k.of.name, k.of.tenant.name, k.requeue, k.began, k.answered, e)
	}
	switch s := e.GetTaskState(); s {
	case lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_CANCELLED:
		// CANCELLED: that was asked before (T7)
		b.w.count("kick", "a lease is REVOKED, its task "+s.String())
	default:
		b.w.problem("W10: attempt %d of %s was ended by a kick, and then its task is not READY: %v", g.attempt, g.task, e)
	}
}

// checkBudgets checks that no more failures and losses count in the present round of a task than
// there were (T5).
func (b *book) checkBudgets(t *lessorv1.Task) {
	failures, losses := uint32(0), uint32(0)
	for _, e := range t.GetHistory() {
		switch ended := e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED; {
		case e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RETRIED:
			failures, losses = 0, 0
		case e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, ended && e.GetReason() == lessorv1.Reason_REASON_DEADLINE_EXCEEDED:
			failures++
		case ended && e.GetReason() == lessorv1.Reason_REASON_LEASE_EXPIRED:
			losses++
		}
	}
	if t.GetFailures() > failures || t.GetLosses() > losses {
		b.w.problem("T5: %s counts %d failures and %d losses, and has had %d and %d",
			t.GetTaskId(), t.GetFailures(), t.GetLosses(), failures, losses)
	}
}
