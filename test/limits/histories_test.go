package limits

import (
	"cmp"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// checkHistories checks the histories of all tasks of a workspace: at most one live lease of a task
// at a time, and of a concurrency key no more than its limit; none was granted against the settings
// of its queue, or to a worker that drains; kicks with requeue have ended leases, and nothing has
// but what may.
func (b *book) checkHistories(place placeOf, tasks []*lessorv1.Task) {
	type event struct {
		*lessorv1.HistoryEvent
		task *lessorv1.Task
	}
	var all []event
	for _, t := range tasks {
		if t.GetHistoryDropped() == 0 {
			b.checkBudgets(t)
			for _, e := range t.GetHistory() {
				all = append(all, event{e, t})
			}
		}
	}
	slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.GetSequence(), b.GetSequence()) })
	live := map[*lessorv1.Task]*grant{}
	inflight := map[string]int{} // by queue
	keys := map[string]map[*lessorv1.Task]bool{}
	for _, e := range all {
		key := e.task.GetSpec().GetConcurrencyKey()
		switch e.GetType() {
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
			if before := live[e.task]; before != nil {
				b.w.problem("A1: attempt %d of %s is granted while %d lives", e.GetAttempt(), e.task.GetTaskId(), before.attempt)
			}
			g := b.grant(e.task, e.HistoryEvent)
			live[e.task] = g
			b.checkDrains(g)
			inflight[e.task.GetSpec().GetQueue()]++
			b.checkRules(place, e.task, e.HistoryEvent, inflight[e.task.GetSpec().GetQueue()])
			if key == "" {
				continue
			}
			if keys[key] == nil {
				keys[key] = map[*lessorv1.Task]bool{}
			}
			keys[key][e.task] = true
			for t := range keys[key] {
				if limit := max(t.GetSpec().GetConcurrencyLimit(), 1); len(keys[key]) > int(limit) {
					b.w.problem("T11: key %s has %d live leases, one of them of %s with limit %d",
						key, len(keys[key]), t.GetTaskId(), limit)
				}
			}
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED,
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED,
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ENDED:
			if g := live[e.task]; g != nil && g.attempt == e.GetAttempt() {
				delete(live, e.task)
				b.checkEpoch(e.task, e.HistoryEvent, g.at)
				b.checkKicked(g, e.HistoryEvent)
				if e.GetReason() == lessorv1.Reason_REASON_REVOKED {
					b.checkRevoked(place.tenant, g, e.HistoryEvent)
				}
				inflight[e.task.GetSpec().GetQueue()]--
				delete(keys[key], e.task)
			}
		}
	}
}

// grant is a lease in the history of a task.
type grant struct {
	task    string
	attempt uint32
	at      time.Time
	session string       // empty: a caller of Lease has it
	by      *instance    // to which the session belongs; nil: that is not known
	known   *leaseRecord // nil: nobody was handed it
}

func (b *book) grant(t *lessorv1.Task, e *lessorv1.HistoryEvent) *grant {
	g := &grant{
		task: t.GetTaskId(), attempt: e.GetAttempt(), at: e.GetAt().AsTime(), session: e.GetDetail(),
		by: b.sessions[e.GetDetail()],
	}
	epoch := 0
	for _, began := range b.began {
		if !g.at.Before(began) {
			epoch++
		}
	}
	for _, l := range b.grants[g.task] {
		if l.attempt == g.attempt && l.epoch == epoch {
			g.known = l
		}
	}
	return g
}

// checkEpoch checks the end of a lease: a new epoch ends all that are live, and these are no losses
// (A11). A deadline that has passed by then comes first (A3).
func (b *book) checkEpoch(t *lessorv1.Task, e *lessorv1.HistoryEvent, granted time.Time) {
	why := e.GetReason()
	if why == lessorv1.Reason_REASON_COORDINATOR_RECOVERED || why == lessorv1.Reason_REASON_DEADLINE_EXCEEDED {
		return
	}
	for _, began := range b.began {
		if granted.Before(began) && !e.GetAt().AsTime().Before(began) {
			b.w.problem("A11: attempt %d of %s was granted at %v, an epoch began at %v, and it has ended so: %v",
				e.GetAttempt(), t.GetTaskId(), granted, began, e)
		}
	}
}
