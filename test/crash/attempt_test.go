//go:build faults

package crash

import (
	"cmp"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// granted enters a lease that a unary worker got as the answer to its Lease request.
func (b *book) granted(asked *lessorv1.LeaseRequest, g *lessorv1.Assignment) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.touchLocked(g.GetTask().GetTaskId())
	t.setQueue(g.GetTask().GetSpec().GetQueue())
	a := &attempt{task: t, number: g.GetAttempt(), leaseID: g.GetLeaseId(), token: g.GetFencingToken(), asked: asked}
	at, known := slices.BinarySearchFunc(t.attempts, a, func(x, y *attempt) int { return cmp.Compare(x.number, y.number) })
	if known {
		return b.grantedAgainLocked(t.attempts[at], a)
	}
	b.counts.leases++
	t.attempts = slices.Insert(t.attempts, at, a)
	b.compareLocked(t, at)
	// Of a lease that may end early, the answer may come after it has, and after another attempt
	// has ended the task: soundHistoryLocked knows the order.
	if final(t.end) && !b.leaseMayEndLocked(t) {
		b.violated("A5", t, "attempt %d was granted when the task was %v", a.number, t.end)
	}
	return a
}

// grantedAgainLocked enters a grant that the book has already: a repeated request gets the same
// live leases (S2).
func (b *book) grantedAgainLocked(before, now *attempt) *attempt {
	if before.leaseID != now.leaseID || before.token != now.token {
		b.violated("A2", now.task, "attempt %d was granted twice", now.number)
	}
	return before
}

// compareLocked compares an attempt with its neighbours.
func (b *book) compareLocked(t *task, at int) {
	for i := max(at, 1); i < min(at+2, len(t.attempts)); i++ {
		before, after := t.attempts[i-1], t.attempts[i]
		if after.token <= before.token {
			b.violated("A2", t, "attempt %d has token %d, attempt %d has %d",
				before.number, before.token, after.number, after.token)
		}
		// No answer has told the holder that its lease ended, and nothing else may have ended it.
		if before.open() && !b.leaseMayEndLocked(t) {
			b.violated("A1", t, "attempt %d was granted while attempt %d held a live lease", after.number, before.number)
		}
	}
}

// leaseMayEndLocked reports whether leases of the task may end without a report of their holder.
func (b *book) leaseMayEndLocked(t *task) bool { return t.interfered || t.queue == shortQueue }

// recordReport enters the report that the holder is about to send. From then on the attempt has
// only this report, which is repeated unchanged.
func (b *book) recordReport(a *attempt, r *report) {
	b.update(func() {
		a.report = r
		if a.tries++; a.tries == 1 {
			b.touchLocked(a.task.id)
		}
	})
}

// recordVerdict enters the verdict on the holder's report.
func (b *book) recordVerdict(a *attempt, got answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.verdicts[got.verdict]++
	switch got.verdict {
	case committed:
		b.committedLocked(a, got)
	case cancelled:
		b.lostLocked(a, got)
	default:
		b.violated("V3-V6", a.task, "attempt %d: its report was refused: %v", a.number, got)
	}
}

func (b *book) committedLocked(a *attempt, got answer) {
	switch {
	case a.lost != nil:
		b.violated("A4, A10", a.task, "attempt %d was %v before, and is %v now", a.number, *a.lost, got)
	case a.committed == nil && got.replayed && a.tries == 1:
		b.violated("V4", a.task, "attempt %d: the first try was answered as a repeat", a.number)
	case a.committed != nil && got != a.committed.again():
		b.violated("V4", a.task, "attempt %d was %v before, and is %v now", a.number, *a.committed, got)
	case a.committed != nil:
		b.counts.replays++
	default:
		b.touchLocked(a.task.id)
		a.committed = &got
		if got.final() {
			b.decidedLocked(a.task, a.number)
		}
		b.endedLocked(a.task, got.state)
	}
}

// decidedLocked enters which attempt's report ended the round.
func (b *book) decidedLocked(t *task, attempt uint32) {
	if t.decided != 0 && t.decided != attempt {
		b.violated("A5", t, "attempt %d and attempt %d both ended it with their reports", t.decided, attempt)
	}
	t.decided = attempt
}

// lostLocked enters that a lease has ended. It fails the test unless the lease may end without a
// report (leaseMayEndLocked).
func (b *book) lostLocked(a *attempt, got answer) {
	if a.committed != nil {
		b.violated("A10", a.task, "attempt %d was COMMITTED, and is %v now", a.number, got)
	}
	if a.lost != nil {
		return
	}
	b.touchLocked(a.task.id)
	if !b.leaseMayEndLocked(a.task) {
		b.violated("A9", a.task, "attempt %d lost its lease: %v", a.number, got)
	}
	a.lost = &got
}

// recordHeartbeat enters the verdict on a Start or Heartbeat of a lease under which nothing was
// reported yet.
func (b *book) recordHeartbeat(a *attempt, got answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.heartbeats++
	switch {
	case got.verdict == cancelled:
		b.lostLocked(a, got)
	case got.verdict != committed:
		b.violated("V1-V6", a.task, "attempt %d: a heartbeat was refused: %v", a.number, got)
	case a.lost != nil:
		b.violated("A4", a.task, "attempt %d was %v before, and its heartbeat is %v now", a.number, *a.lost, got)
	}
}

// held lists the attempts whose holders still have to report.
func (b *book) held() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var held []*attempt
	for _, t := range b.order {
		for _, a := range t.attempts {
			if a.open() && !final(t.end) && t.deleted == no {
				held = append(held, a)
			}
		}
	}
	return held
}
