//go:build faults

package crash

import (
	"context"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// attempt repeats what was said under a lease. task is how the task was found; nil if it is deleted.
func (c *comparer) attempt(ctx context.Context, a *attempt, task *lessorv1.Task) error {
	switch {
	case a.open():
		return c.goOn(ctx, a)
	case a.said == nil: // a CANCELLED answer stopped its holder before it reported
		return c.heartbeat(ctx, a)
	case a.committed == nil && a.lost == nil:
		return c.settleReport(ctx, a, task)
	}
	if err := c.repeat(ctx, a); err != nil || a.committed == nil {
		return err
	}
	return c.contradict(ctx, a)
}

// repeat sends the report again; the book checks that the verdict is the same (V4, V10).
func (c *comparer) repeat(ctx context.Context, a *attempt) error {
	return c.b.say(ctx, c.workers, a, a.said)
}

// settleReport repeats a report that got no answer. If the history has it, the repeat must be answered as replayed. After that, each repeat gets the
// same answer.
func (c *comparer) settleReport(ctx context.Context, a *attempt, task *lessorv1.Task) error {
	recorded := outcomeOf(task, a.number)
	if recorded != nil && recorded.GetType() != a.said.event() {
		c.b.wrong("A6", a.task, "attempt %d reported otherwise than %v", a.number, recorded)
	}
	c.b.settled(recorded != nil)
	if err := c.repeat(ctx, a); err != nil {
		return err
	}
	if done := a.committed; recorded != nil && (done == nil || !done.replayed) {
		c.b.wrong("V4", a.task, "attempt %d: %v was recorded, and the repeat of the report is %v", a.number, recorded, done)
	}
	return c.repeat(ctx, a)
}

// contradict sends another report under a lease that has its report (V5). It must be refused; that it changes nothing shows when the task is compared
// next.
func (c *comparer) contradict(ctx context.Context, a *attempt) error {
	if c.rand.IntN(4) > 0 {
		return nil
	}
	got, err := completion(a, "something else").send(ctx, c.workers)
	if err != nil {
		return err
	}
	if got.verdict != rejected || got.reason != lessorv1.Reason_REASON_DUPLICATE_REPORT {
		c.b.wrong("V5", a.task, "attempt %d had its report, and another one is %v", a.number, got)
	}
	c.b.enter(func() { c.b.counts.duplicates++ })
	return nil
}

func (c *comparer) heartbeat(ctx context.Context, a *attempt) error {
	m, err := c.workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number})
	if err == nil {
		c.b.beat(a, answerOf(m))
	}
	return err
}

// goOn goes on with a lease that is held across the restart (A9): it must still be live. Then the holder reports, or keeps it for another round.
func (c *comparer) goOn(ctx context.Context, a *attempt) error {
	if err := c.askedAgain(ctx, a); err != nil {
		return err
	}
	if err := c.heartbeat(ctx, a); err != nil || a.lost != nil {
		return err
	}
	c.b.enter(func() { c.b.counts.held++ })
	if c.rand.IntN(2) == 0 {
		return nil
	}
	return c.b.say(ctx, c.workers, a, completion(a, output(a.task.id, a.number)))
}

// askedAgain repeats the Lease request to which the lease was the answer. It must get the same lease (S2).
func (c *comparer) askedAgain(ctx context.Context, a *attempt) error {
	if c.rand.IntN(4) > 0 || c.b.unsteady(a) {
		return nil
	}
	m, err := c.workers.Lease(ctx, a.asked)
	if err != nil {
		return err
	}
	same := slices.ContainsFunc(m.GetAssignments(), func(g *lessorv1.Assignment) bool { return g.GetLeaseId() == a.leaseID })
	if !same {
		c.b.wrong("S2", a.task, "attempt %d holds a lease, and the repeat of its request does not get it", a.number)
	}
	for _, g := range m.GetAssignments() {
		c.b.granted(a.asked, g)
	}
	return nil
}

// unsteady is fickle under the lock: whether the lease may end without a report of its holder.
func (b *book) unsteady(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fickle(a.task)
}
