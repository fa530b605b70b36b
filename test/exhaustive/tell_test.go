package exhaustive

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// tell updates what is known outside, and checks that the news does not contradict it (A2, A4, A9, A10).
func (w *world) tell(n news) error {
	t := &w.told[n.task][n.attempt-1]
	if n.granted {
		return w.tellGrant(n)
	}
	if t.ticket != n.ticket {
		return nil // the end of a lease whose grant a crash kept from being told
	}
	switch {
	case n.ended:
		return t.tellEnd(n.answer.Reason)
	case n.answer.Verdict == lease.VerdictCommitted && n.kind.Closes():
		return t.tellCommitted(n)
	case n.answer.Verdict == lease.VerdictCommitted:
		return t.tellAlive(n)
	case n.answer.Reason == lease.AlreadyReported && !n.kind.Closes():
		return nil
	case n.answer.Verdict == lease.VerdictCancelled:
		return t.tellEnd(n.answer.Reason)
	case n.answer.Reason == lease.DuplicateReport && n.kind.Closes() && t.closed != n.kind:
		return nil
	}
	return fmt.Errorf("a %v under a lease of this task is %v %v", n.kind, n.answer.Verdict, n.answer.Reason)
}

func (w *world) tellGrant(n news) error {
	token := lease.FencingToken(n.ticket.Epoch, n.attempt)
	for _, other := range w.told[n.task] {
		if other.ticket.Attempt != 0 && lease.FencingToken(other.ticket.Epoch, other.ticket.Attempt) >= token {
			return fmt.Errorf("A2: fencing token %d follows a greater one", token)
		}
	}
	w.told[n.task][n.attempt-1] = told{ticket: n.ticket, until: n.until}
	return nil
}

func (t *told) tellCommitted(n news) error {
	switch {
	case t.because != 0:
		return fmt.Errorf("A10: CANCELLED %v became COMMITTED", t.because)
	case t.closed != 0 && (t.closed != n.kind || !n.answer.Replayed):
		return fmt.Errorf("A5: a %v is COMMITTED after a %v", n.kind, t.closed)
	case t.closed != 0 && t.state != n.answer.State:
		return fmt.Errorf("V4: the state in a replay was %v and is %v", t.state, n.answer.State)
	}
	t.closed, t.state = n.kind, n.answer.State
	return nil
}

func (t *told) tellAlive(n news) error {
	if t.closed != 0 || t.because != 0 {
		return fmt.Errorf("A4: a %v is COMMITTED under a lease that was told to be over", n.kind)
	}
	t.until = max(t.until, n.until)
	return nil
}

// tellEnd accepts a different cause only if it adds that the task was granted again, or that a new epoch has begun.
func (t *told) tellEnd(reason lease.Reason) error {
	added := reason == lease.Superseded || reason == lease.CoordinatorRecovered
	switch {
	case t.closed != 0:
		return fmt.Errorf("A10: COMMITTED became CANCELLED %v", reason)
	case t.because == 0:
		t.because = reason
	case t.because != reason && !added:
		return fmt.Errorf("A3: the cause drifted from %v to %v", t.because, reason)
	}
	return nil
}
