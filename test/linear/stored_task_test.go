//go:build faults

package linear

import (
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// storedTask is a task as the coordinator has it at the end, and the read that returned it.
type storedTask struct {
	task *lessorv1.Task
	read op
}

func (t *storedTask) has(what lessorv1.HistoryEventType, attempt uint32) bool {
	for _, e := range t.task.GetHistory() {
		if e.GetType() == what && (e.GetAttempt() == attempt || attempt == 0) {
			return true
		}
	}
	return false
}

// history makes the complete history of a task from the calls about it: calls that have not
// happened are left out, and what the coordinator did by itself is added.
func (t *storedTask) history(calls, openLeases []*op) []*op {
	var all []*op
	for _, o := range calls {
		if !o.open() || t.mayHaveHappened(o) {
			all = append(all, o)
		}
	}
	all = append(all, t.grantsWithoutAnswer(calls, openLeases)...)
	all = append(all, t.ends(all)...)
	return append(all, &t.read)
}

// mayHaveHappened looks in the stored history for the trace that a call without an answer would
// have left.
func (t *storedTask) mayHaveHappened(o *op) bool {
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

// grantsWithoutAnswer returns the grants that happened but were told to nobody: each was the answer
// to a Lease call of its worker that got none. If there is no such call, the grant is left out, and
// the search fails for want of an explanation.
func (t *storedTask) grantsWithoutAnswer(calls, openLeases []*op) (grants []*op) {
	known := map[uint32]bool{}
	for _, o := range calls {
		if o.Kind == granted {
			known[o.Attempt] = true
		}
	}
	for _, e := range t.task.GetHistory() {
		if e.GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED || known[e.GetAttempt()] {
			continue
		}
		for _, o := range openLeases { // ordered by the times of the calls
			if o.Worker == e.GetActor() {
				grants = append(grants, &op{
					Kind: granted, Worker: o.Worker, Task: t.read.Task, Attempt: e.GetAttempt(), Call: o.Call,
					Return: t.read.Return,
				})
				break
			}
		}
	}
	return grants
}

// ends returns the ends of leases without a report, as operations. An end by a late Start is left
// out, since that is a call.
func (t *storedTask) ends(all []*op) (ends []*op) {
	for _, e := range t.task.GetHistory() {
		if e.GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED || e.GetReason() == lessorv1.Reason_REASON_TASK_CANCELLED {
			continue
		}
		ends = append(ends, &op{
			Kind: ended, Worker: "time", Task: t.read.Task, Attempt: e.GetAttempt(),
			Content: strings.TrimPrefix(e.GetReason().String(), "REASON_"),
			Call:    t.earliest(all, e), Return: t.read.Return,
		})
	}
	return ends
}

// earliest returns the earliest moment at which the lease can have ended: when it was granted, or,
// if it expired, one TTL after the last call that renewed it (A3).
func (t *storedTask) earliest(all []*op, e *lessorv1.HistoryEvent) (at int64) {
	after := time.Duration(0)
	if e.GetReason() == lessorv1.Reason_REASON_LEASE_EXPIRED {
		after = t.task.GetSpec().GetHeartbeatTimeout().AsDuration()
	}
	for _, o := range all {
		if o.Attempt == e.GetAttempt() && o.renews() {
			at = max(at, o.Call+int64(after))
		}
	}
	return at
}

// renews reports whether the lease is known to live for one TTL from the time of this call on. A
// grant that nobody was told counts, too: its call may be much older than the lease, but not
// younger.
func (o *op) renews() bool {
	switch o.Kind {
	case granted:
		return true
	case start, heartbeat:
		return o.Answer.Verdict == "COMMITTED"
	}
	return false
}
