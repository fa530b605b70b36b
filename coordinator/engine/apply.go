package engine

import "github.com/lessor-dev/lessor/lease"

// apply updates everything that the loop keeps after a change: the batch, the working set, the
// indexes in memory, the counts, the holders.
func (e *Engine) apply(c *lease.Change) {
	e.set.put(e.batch(), c)
	e.timers.update(c)
	e.updateCounts(c)
	e.bindings.update(c)
	e.workers.recount(c)
	e.lines.update(c)
	e.parking.update(c)
	e.updateHolder(c)
	e.callEvents(c)
}

func (e *Engine) updateCounts(c *lease.Change) {
	before, after := countOf(c.Old), countOf(c.New)
	if before == after && isParked(c.Old) == isParked(c.New) {
		return
	}
	q := e.spaces.queueOf(c)
	id, _ := c.Subject()
	before, after = q.space.countedAs(id, before), q.space.countedAs(id, after)
	e.spaces.recount(q, c, before, after)
	if before == countLeased && q.settings.MaxInflight != 0 {
		e.agenda.add(q)
	}
	if q.createdAt == 0 { // a queue exists from its first task on (T13); until then only takers may wait in it
		q.createdAt = e.now().Wall
	}
	e.batch().touchQueue(q)
}

// callEvents calls the events for a task that is new or has ended. Those about leases are called in
// updateHolder.
func (e *Engine) callEvents(c *lease.Change) {
	if c.New == nil {
		return
	}
	if c.Old == nil {
		e.cfg.Events.Submitted(c.New)
	}
	if c.New.Rest.Final() && (c.Old == nil || c.Old.Rest != c.New.Rest) {
		e.cfg.Events.Ended(c.New)
	}
}

// updateHolder keeps track of which taker holds which lease, and notifies a holder that has to
// stop.
func (e *Engine) updateHolder(c *lease.Change) {
	switch was, is := isLeased(c.Old), isLeased(c.New); {
	case is && !was:
		e.cfg.Events.Granted(c.New, e.now().Serving.Sub(c.New.ReadyAt))
		e.requests.addLease(c.New)
	case was && !is:
		e.leaseEnded(c)
	case was && c.Old.Lease.Session != c.New.Lease.Session:
		// the session that has reported for the lease is its holder now
		e.removeHolder(c.Old, false)
		// the session is known: see judge
		e.setHolder(e.sessions.find(c.New.Lease.Session), c.New.ID, c.New.Lease.Attempt)
	}
	if c.CancelAsked {
		e.notify(e.set.holderOf(c.New.ID), c.New,
			Notice{Reason: lease.TaskCancelled, Detail: c.New.Cancel.Reason, GraceEnds: c.New.Lease.CancelBy})
	}
}

// leaseEnded handles the end of a lease: c.Old has the lease, and c.New does not.
func (e *Engine) leaseEnded(c *lease.Change) {
	cause := c.LostCause
	if c.Lost == nil { // the holder itself ended the lease: by a report, or by a Start that was too late (T7)
		cause = c.New.Last.Cause
	}
	e.cfg.Events.LeaseEnded(c.Old, cause)
	if c.New != nil && !c.New.Rest.Final() {
		e.cfg.Events.Retried(c.New, cause)
	}
	e.requests.removeLease(c.Old)
	silent := c.Lost != nil && c.Old.Lease.EndedInSilence(cause)
	holder := e.removeHolder(c.Old, silent)
	if c.Lost != nil {
		e.notify(holder, c.Old, Notice{Reason: cause, Detail: "the lease ended", Silent: silent})
	}
}

// notify tells the holder of a lease to stop, if it is a session; t is the version that has the
// lease, which the notice need not name.
func (e *Engine) notify(holder *taker, t *lease.Task, n Notice) {
	if holder != nil && holder.member != nil {
		n.Task, n.LeaseID = t.ID, e.leaseID(t)
		d := e.batch().deliveryTo(holder.member)
		d.notices = append(d.notices, n)
	}
}

// These ask about a version of a task, which is nil before the task was made and after it was
// removed.
func isLeased(t *lease.Task) bool { return t != nil && t.Lease != nil }
func isParked(t *lease.Task) bool { return t != nil && t.Parked }
func isReady(t *lease.Task) bool  { return t != nil && t.State() == lease.Ready }
func isInLine(t *lease.Task) bool { return isReady(t) && !t.Parked }
