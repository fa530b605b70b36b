//go:build faults

package crash

import (
	"context"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// attempt repeats the calls that were made under a lease. task is the task as it is after the kill;
// nil if it is deleted.
func (c *comparer) attempt(ctx context.Context, a *attempt, task *lessorv1.Task) error {
	switch {
	case a.open():
		return c.continueLease(ctx, a)
	case a.report == nil: // a CANCELLED answer stopped its holder before it reported
		return c.heartbeat(ctx, a)
	case a.committed == nil && a.lost == nil:
		return c.settleReport(ctx, a, task)
	}
	if err := c.repeat(ctx, a); err != nil || a.committed == nil {
		return err
	}
	return c.reportSomethingElse(ctx, a)
}

// repeat sends the report again; the book checks that the verdict is the same (V4, V10).
func (c *comparer) repeat(ctx context.Context, a *attempt) error {
	return c.b.sendReport(ctx, c.workers, a, a.report)
}

// settleReport repeats a report that got no answer. If the history has it, the repeat must be
// answered as replayed. After that, each repeat gets the same answer.
func (c *comparer) settleReport(ctx context.Context, a *attempt, task *lessorv1.Task) error {
	recorded := outcomeOf(task, a.number)
	if recorded != nil && recorded.GetType() != a.report.event() {
		c.b.violated("A6", a.task, "attempt %d reported otherwise than %v", a.number, recorded)
	}
	c.b.countUnanswered(recorded != nil)
	if err := c.repeat(ctx, a); err != nil {
		return err
	}
	if done := a.committed; recorded != nil && (done == nil || !done.replayed) {
		c.b.violated("V4", a.task, "attempt %d: %v was recorded, and the repeat of the report is %v", a.number, recorded, done)
	}
	return c.repeat(ctx, a)
}

// reportSomethingElse sends another report under a lease that has its report (V5). It must be
// refused; that it changes nothing shows when the task is compared next.
func (c *comparer) reportSomethingElse(ctx context.Context, a *attempt) error {
	if c.rand.IntN(4) > 0 {
		return nil
	}
	got, err := completion(a, "something else").send(ctx, c.workers)
	if err != nil {
		return err
	}
	if got.verdict != rejected || got.reason != lessorv1.Reason_REASON_DUPLICATE_REPORT {
		c.b.violated("V5", a.task, "attempt %d had its report, and another one is %v", a.number, got)
	}
	c.b.update(func() { c.b.counts.duplicates++ })
	return nil
}

func (c *comparer) heartbeat(ctx context.Context, a *attempt) error {
	m, err := c.workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: a.task.id, LeaseId: a.leaseID, Attempt: a.number})
	if err == nil {
		c.b.recordHeartbeat(a, answerOf(m))
	}
	return err
}

// continueLease checks that a lease that is held across the restart is still live (A9). Then the
// holder reports, or keeps the lease for another round.
func (c *comparer) continueLease(ctx context.Context, a *attempt) error {
	if err := c.repeatLeaseRequest(ctx, a); err != nil {
		return err
	}
	if err := c.heartbeat(ctx, a); err != nil || a.lost != nil {
		return err
	}
	c.b.update(func() { c.b.counts.held++ })
	if c.rand.IntN(2) == 0 {
		return nil
	}
	return c.b.sendReport(ctx, c.workers, a, completion(a, output(a.task.id, a.number)))
}

// repeatLeaseRequest repeats the Lease request to which the lease was the answer. It must get the
// same lease (S2).
func (c *comparer) repeatLeaseRequest(ctx context.Context, a *attempt) error {
	if c.rand.IntN(4) > 0 || c.b.leaseMayEnd(a) {
		return nil
	}
	m, err := c.workers.Lease(ctx, a.asked)
	if err != nil {
		return err
	}
	same := slices.ContainsFunc(m.GetAssignments(), func(g *lessorv1.Assignment) bool { return g.GetLeaseId() == a.leaseID })
	if !same {
		c.b.violated("S2", a.task, "attempt %d holds a lease, and the repeat of its request does not get it", a.number)
	}
	for _, g := range m.GetAssignments() {
		c.b.granted(a.asked, g)
	}
	return nil
}

// leaseMayEnd is like leaseMayEndLocked, and takes the lock.
func (b *book) leaseMayEnd(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leaseMayEndLocked(a.task)
}
