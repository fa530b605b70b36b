package exhaustive

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// step gives a command to the rules, checks the changes, and takes them into memory.
func (s *scope) step(w *world, c lease.Command) error {
	_, err := s.decide(w, c)
	return err
}

func (s *scope) decide(w *world, c lease.Command) (lease.Step, error) {
	s.nonce = uint64(w.crashes + 1)
	out := s.rules[w.epoch].Step(now, &w.memory, c)
	for i := range out.Changes {
		if err := w.checkChange(&out.Changes[i], c); err != nil {
			return out, err
		}
		w.addNews(&out.Changes[i])
	}
	w.memory.apply(out.Changes)
	w.count(c, len(out.Changes) > 0)
	if h := w.memory.Holders(0, ""); s.keyed && h.Count > 1 {
		return out, fmt.Errorf("T11: %d leases share a concurrency key of limit 1", h.Count)
	}
	return out, nil
}

// count counts what a scope bounds. A command without effect does not count, but the answer to a
// worker always does, because it must be told.
func (w *world) count(c lease.Command, did bool) {
	switch c.(type) {
	case lease.Judge:
		did = true
	case lease.Cancel:
		w.cancels += boolToInt(did)
	case lease.Adopt:
		w.adoptions += boolToInt(did)
	}
	w.steps += boolToInt(did)
}

func boolToInt(did bool) int {
	if did {
		return 1
	}
	return 0
}

// judge gives a worker's message to the rules, and checks the answer.
func (s *scope) judge(w *world, m message, r *lease.Report) error {
	t := w.memory.tasks[m.task]
	ticket := w.workerView[m.task][m.attempt-1].ticket
	holds := t.Lease != nil && t.Lease.Attempt == ticket.Attempt && t.Lease.Nonce == ticket.Nonce && ticket.Epoch == w.epoch
	alive := holds && !leaseEnded(t)
	unstarted := t.Lease != nil && t.Lease.StartedAt == 0
	out, err := s.decide(w, lease.Judge{Tenant: tenant, Reports: []*lease.Report{r}})
	if err != nil {
		return err
	}
	a := out.Answers[0]
	committed := a.Verdict == lease.VerdictCommitted && !a.Replayed
	refused := t.Cancel != nil && m.kind == lease.KindStart && unstarted && !m.began
	switch {
	case committed && !alive:
		return fmt.Errorf("A3: a %v is COMMITTED under a lease that had ended", m.kind)
	case alive && !committed && !refused:
		return fmt.Errorf("V12: a %v under a live lease is %v %v", m.kind, a.Verdict, a.Reason)
	case alive && refused && a.Reason != lease.TaskCancelled:
		return fmt.Errorf("T7: a first start after a cancel is %v %v", a.Verdict, a.Reason)
	}
	said := m.began || m.kind == lease.KindStart && t.Cancel == nil
	if began := beginsIn(t, w.memory.tasks[m.task]); began != (alive && unstarted && said) {
		return fmt.Errorf("V19: a %v said that the attempt had begun: %v; it begins: %v", m.kind, said, began)
	}
	w.batch = append(w.batch, pendingNews{message: m, ticket: ticket, answer: a, liveUntil: a.ExpiresAt})
	return nil
}

// leaseEnded reports whether a timer has ended the lease. At the very moment of a timer it has
// (A3).
func leaseEnded(t *lease.Task) bool {
	l := t.Lease
	unacked := l.AckBy != 0 && l.AckedAt == 0 && l.AckBy <= now.Serving
	return l.ExpiresAt <= now.Serving || unacked || t.Cancel != nil && l.CancelBy <= now.Serving
}

// addNews adds grants and lost leases to what must be told.
func (w *world) addNews(c *lease.Change) {
	m := message{task: int(c.New.ID.Seq - 1)}
	if l := c.Lost; l != nil {
		m.attempt = l.Attempt
		w.batch = append(w.batch, pendingNews{
			message: m, ticket: ticketOf(c.New.ID, l), ended: true,
			answer: lease.Answer{Reason: c.LostCause},
		})
	}
	if l := c.New.Lease; l != nil && (c.Old.Lease == nil || c.Old.Lease.Attempt != l.Attempt) {
		m.attempt = l.Attempt
		w.batch = append(w.batch, pendingNews{message: m, ticket: ticketOf(c.New.ID, l), granted: true, liveUntil: l.ExpiresAt})
	}
}

func ticketOf(id lease.TaskID, l *lease.Lease) lease.Ticket {
	return lease.Ticket{Epoch: l.Epoch, Task: id, Attempt: l.Attempt, Nonce: l.Nonce}
}

// checkChange checks a pair of versions of a task. Only for a grant does it matter what the command
// was: a grant must not touch a live lease.
func (w *world) checkChange(c *lease.Change, command lease.Command) error {
	if _, grants := command.(lease.Grant); grants && c.Old.Lease != nil && !leaseEnded(c.Old) {
		return fmt.Errorf("A1: a grant changes a task under a live lease")
	}
	for _, check := range []func(*lease.Change) error{w.checkLease, checkBudgets, checkOutcome, checkCancel} {
		if err := check(c); err != nil {
			return err
		}
	}
	if _, judges := command.(lease.Judge); !judges && beginsIn(c.Old, c.New) {
		return fmt.Errorf("V19: an attempt began, though no worker said so")
	}
	return nil
}

// beginsIn reports whether the attempt that holds the task begins between two versions of the task.
func beginsIn(before, after *lease.Task) bool {
	switch l := before.Lease; {
	case l == nil || l.StartedAt != 0:
		return false
	case after.Lease != nil && after.Lease.Attempt == l.Attempt:
		return after.Lease.StartedAt != 0
	default:
		return after.Last.Attempt == l.Attempt && after.Last.StartedAt != 0
	}
}

// checkLease checks A2 to A4 and A9.
func (w *world) checkLease(c *lease.Change) error {
	before, after := c.Old.Lease, c.New.Lease
	switch {
	case before != nil && after != nil && before.Attempt == after.Attempt && leaseEnded(c.Old):
		return fmt.Errorf("A4: a lease that ended lives again")
	case before != nil && after != nil && before.Attempt == after.Attempt && after.ExpiresAt < before.ExpiresAt:
		return fmt.Errorf("A3: expires_at went back")
	case before == nil && after != nil && after.Attempt != c.Old.Attempts+1:
		return fmt.Errorf("A2: attempt %d follows %d", after.Attempt, c.Old.Attempts)
	case after != nil && after.ExpiresAt > now.Serving+ttl && (before == nil || after.ExpiresAt > before.ExpiresAt):
		return fmt.Errorf("A3: expires_at is more than a TTL away")
	}
	if l := c.Lost; l != nil && c.LostCause == lease.LeaseExpired {
		if t := w.workerView[c.New.ID.Seq-1][l.Attempt-1]; t.ticket.Nonce == l.Nonce && t.liveUntil > now.Serving {
			return fmt.Errorf("A9: a lease ends before its worker was told")
		}
	}
	return nil
}

// checkBudgets checks T5: each failure and each loss is counted once, in its own budget, and a
// used-up budget ends the task.
func checkBudgets(c *lease.Change) error {
	var failures, losses uint32
	if l := c.Old.Lease; l != nil && c.New.Last.Attempt == l.Attempt && c.Old.Cancel == nil {
		switch c.New.Last.Cause {
		case lease.Reported:
			if c.Failure != nil {
				failures = 1
			}
		case lease.LeaseExpired:
			if l.AckedAt != 0 {
				losses = 1
			}
		}
	}
	p := &c.New.Spec.Retry
	switch {
	case c.New.Failures-c.Old.Failures != failures:
		return fmt.Errorf("T5: failures went from %d to %d", c.Old.Failures, c.New.Failures)
	case c.New.Losses-c.Old.Losses != losses:
		return fmt.Errorf("T5: losses went from %d to %d", c.Old.Losses, c.New.Losses)
	case (c.New.Failures >= p.MaxAttempts || c.New.Losses >= p.MaxLosses) && !c.New.Rest.Final():
		return fmt.Errorf("T5: a budget is used up, yet the task is %v", c.New.State())
	}
	return nil
}

// checkOutcome checks A5: an outcome never changes, and a final state changes only by adoption of a
// late result.
func checkOutcome(c *lease.Change) error {
	before, after := c.Old, c.New
	switch {
	case before.Outcome != nil && (after.Outcome == nil || *after.Outcome != *before.Outcome):
		return fmt.Errorf("A5: the outcome changed")
	case before.Rest.Final() && after.Rest != before.Rest && (after.Outcome == nil || after.Outcome.Kind != lease.KindAdopt):
		return fmt.Errorf("A5: %v became %v", before.Rest, after.Rest)
	case after.Outcome != nil && !after.State().Final():
		return fmt.Errorf("A5: there is an outcome, yet the task is %v", after.State())
	}
	return nil
}

// checkCancel checks T7: a cancel is not forgotten, its grace does not begin again, and the task
// gets no further attempt.
func checkCancel(c *lease.Change) error {
	before, after := c.Old, c.New
	switch {
	case before.Cancel == nil:
		return nil
	case after.Cancel == nil:
		return fmt.Errorf("T7: a cancel is forgotten")
	case after.Lease == nil && !after.Rest.Final():
		return fmt.Errorf("T7: a task is %v after its cancel", after.Rest)
	case after.Lease != nil && after.Lease.CancelBy != before.Lease.CancelBy:
		return fmt.Errorf("T7: cancel_grace moved")
	}
	return nil
}
