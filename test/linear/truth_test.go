//go:build faults

package linear

import (
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// truth is a task as it is stored in the end, and the read that showed it.
type truth struct {
	task *lessorv1.Task
	read op
}

func (t *truth) has(what lessorv1.HistoryEventType, attempt uint32) bool {
	for _, e := range t.task.GetHistory() {
		if e.GetType() == what && (e.GetAttempt() == attempt || attempt == 0) {
			return true
		}
	}
	return false
}

// history makes the whole history of a task of the calls about it: what cannot have happened is left out, and what the coordinator did
// by itself is added.
func (t *truth) history(calls, openLeases []*op) []*op {
	var all []*op
	for _, o := range calls {
		if !o.open() || t.mayHaveHappened(o) {
			all = append(all, o)
		}
	}
	all = append(all, t.untold(calls, openLeases)...)
	all = append(all, t.ends(all)...)
	return append(all, &t.read)
}

// mayHaveHappened looks for the trace that an open call would have left.
func (t *truth) mayHaveHappened(o *op) bool {
	switch o.Kind {
	case submit:
		return true
	case start:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED, o.Attempt) ||
			t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED, o.Attempt)
	case heartbeat:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ACKNOWLEDGED, o.Attempt)
	case complete:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, o.Attempt)
	case fail:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, o.Attempt)
	case release:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED, o.Attempt)
	case cancel:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_CANCEL_REQUESTED, 0)
	case retry:
		return t.has(lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RETRIED, 0)
	}
	return false
}

// untold are grants that happened and were told to nobody: by an open call of the worker that they were made to. One without such a call
// stays away, so that nothing explains what came after it.
func (t *truth) untold(calls, openLeases []*op) (grants []*op) {
	told := map[uint32]bool{}
	for _, o := range calls {
		if o.Kind == granted {
			told[o.Attempt] = true
		}
	}
	for _, e := range t.task.GetHistory() {
		if e.GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED || told[e.GetAttempt()] {
			continue
		}
		for _, o := range openLeases { // in the order of their calls
			if o.Worker == e.GetActor() {
				grants = append(grants, &op{
					Kind: granted, Worker: o.Worker, Task: t.read.Task, Attempt: e.GetAttempt(), Call: o.Call, Return: t.read.Return,
				})
				break
			}
		}
	}
	return grants
}

// ends are those of leases that nobody reported, by the hand of time. The one made by a late Start is not among them: it is a call.
func (t *truth) ends(all []*op) (ends []*op) {
	for _, e := range t.task.GetHistory() {
		if e.GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED || e.GetReason() == lessorv1.Reason_REASON_TASK_CANCELLED {
			continue
		}
		ends = append(ends, &op{
			Kind: ended, Worker: "time", Task: t.read.Task, Attempt: e.GetAttempt(),
			Content: strings.TrimPrefix(e.GetReason().String(), "REASON_"),
			Call:    earliest(all, e), Return: t.read.Return,
		})
	}
	return ends
}

// earliest is when a lease can have ended: at its grant, and where it expired, a whole TTL after the last question that renewed it (A3).
func earliest(all []*op, e *lessorv1.HistoryEvent) (at int64) {
	after := time.Duration(0)
	if e.GetReason() == lessorv1.Reason_REASON_LEASE_EXPIRED {
		after = ttl
	}
	for _, o := range all {
		if o.Attempt == e.GetAttempt() && o.renews() {
			at = max(at, o.Call+int64(after))
		}
	}
	return at
}

// renews reports whether the caller knows that the lease lives for a TTL from its call on. A grant that nobody was told of does not count: the
// call may be older than the lease by far, but never younger.
func (o *op) renews() bool {
	switch o.Kind {
	case granted:
		return true
	case start, heartbeat:
		return o.Answer.Verdict == "COMMITTED"
	}
	return false
}
