package exhaustive

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// publish updates what workers know, and checks that the news does not contradict what they knew
// (A2, A4, A9, A10).
func (w *world) publish(n pendingNews) error {
	t := &w.workerView[n.task][n.attempt-1]
	if n.granted {
		return w.publishGrant(n)
	}
	if t.ticket != n.ticket {
		return nil // the end of a lease whose grant a crash kept from being told
	}
	switch {
	case n.ended:
		return t.publishEnd(n.answer.Reason)
	case n.answer.Verdict == lease.VerdictCommitted && n.kind.Closes():
		return t.publishCommitted(n)
	case n.answer.Verdict == lease.VerdictCommitted:
		return t.publishAlive(n)
	case n.answer.Reason == lease.AlreadyReported && !n.kind.Closes():
		return nil
	case n.answer.Verdict == lease.VerdictCancelled:
		return t.publishEnd(n.answer.Reason)
	case n.answer.Reason == lease.DuplicateReport && n.kind.Closes() && t.reported != n.kind:
		return nil
	}
	return fmt.Errorf("a %v under a lease of this task is %v %v", n.kind, n.answer.Verdict, n.answer.Reason)
}

func (w *world) publishGrant(n pendingNews) error {
	token := lease.FencingToken(n.ticket.Epoch, n.attempt)
	for _, other := range w.workerView[n.task] {
		if other.ticket.Attempt != 0 && lease.FencingToken(other.ticket.Epoch, other.ticket.Attempt) >= token {
			return fmt.Errorf("A2: fencing token %d follows a greater one", token)
		}
	}
	w.workerView[n.task][n.attempt-1] = workerView{ticket: n.ticket, liveUntil: n.liveUntil}
	return nil
}

func (t *workerView) publishCommitted(n pendingNews) error {
	switch {
	case t.cancelReason != 0:
		return fmt.Errorf("A10: CANCELLED %v became COMMITTED", t.cancelReason)
	case t.reported != 0 && (t.reported != n.kind || !n.answer.Replayed):
		return fmt.Errorf("A5: a %v is COMMITTED after a %v", n.kind, t.reported)
	case t.reported != 0 && t.state != n.answer.State:
		return fmt.Errorf("V4: the state in a replay was %v and is %v", t.state, n.answer.State)
	}
	t.reported, t.state = n.kind, n.answer.State
	return nil
}

func (t *workerView) publishAlive(n pendingNews) error {
	if t.reported != 0 || t.cancelReason != 0 {
		return fmt.Errorf("A4: a %v is COMMITTED under a lease that was told to be over", n.kind)
	}
	t.liveUntil = max(t.liveUntil, n.liveUntil)
	return nil
}

// publishEnd accepts a different cause only if it adds that the task was granted again, or that a
// new epoch has begun.
func (t *workerView) publishEnd(reason lease.Reason) error {
	added := reason == lease.Superseded || reason == lease.CoordinatorRecovered
	switch {
	case t.reported != 0:
		return fmt.Errorf("A10: COMMITTED became CANCELLED %v", reason)
	case t.cancelReason == 0:
		t.cancelReason = reason
	case t.cancelReason != reason && !added:
		return fmt.Errorf("A3: the cause drifted from %v to %v", t.cancelReason, reason)
	}
	return nil
}
