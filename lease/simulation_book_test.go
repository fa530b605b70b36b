package lease_test

import (
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// book records what the coordinator told the workers, over all crashes, and checks that later
// answers and changes do not contradict it. It does not know the rules.
type book struct {
	// for how long a coordinator has been up, stalls included. The book measures leases in this
	// time.
	uptime lease.Instant
	starts int
	tokens map[lease.TaskID]uint64 // A2: the greatest fencing token that a worker was told
	leases map[string]*toldLease
	nonces map[uint64]*toldLease
}

type toldLease struct {
	ttl time.Duration
	// in uptime: the holder was told that the lease is live until then, so it must not expire
	// before (A9)
	until  lease.Instant
	answer lease.Answer  // to the report that was COMMITTED
	report *lease.Report // that report
	ended  lease.Reason  // the reason with which CANCELLED was told; 0 if it was not told

	// The last renewal that is durable, whether or not the worker was told of it.
	renewed lease.Instant // in uptime
	starts  int           // of the coordinator until then
}

func newBook() *book {
	return &book{tokens: map[lease.TaskID]uint64{}, leases: map[string]*toldLease{}, nonces: map[uint64]*toldLease{}}
}

// grantTold records a grant of which the worker is told.
func (b *book) grantTold(t *notice) error {
	k := t.claim
	token := lease.FencingToken(k.epoch, k.attempt)
	if token <= b.tokens[k.id] {
		return fmt.Errorf("A2: token %d is told after token %d, want a greater one", token, b.tokens[k.id])
	}
	b.tokens[k.id] = token
	l := &toldLease{ttl: k.ttl, until: t.until, renewed: t.at, starts: b.starts}
	b.leases[k.lease], b.nonces[k.nonce] = l, l
	return nil
}

// reportDurable records that a report is durable, and that it renewed the lease if it did. A
// COMMITTED report must come at most two TTL of uptime, and one second for each start, after the
// last renewal, because a silent lease ends by then (A9).
func (b *book) reportDurable(t *notice) error {
	l := b.leases[t.report.LeaseID]
	if l == nil || t.answer.Verdict != lease.VerdictCommitted || t.answer.Replayed {
		return nil
	}
	bound := 2*l.ttl + time.Duration(t.starts-l.starts)*time.Duration(saveClock)
	if silent := t.at.Sub(l.renewed); silent > bound {
		return fmt.Errorf("A9: a lease with a TTL of %v is live after %v of silence and %d starts, want it ended after %v",
			l.ttl, silent, t.starts-l.starts, bound)
	}
	if t.answer.ExpiresAt != 0 && t.report.Kind != lease.KindAck {
		l.renewed, l.starts = t.at, t.starts
	}
	return nil
}

// answerTold records a verdict of which the worker is told.
func (b *book) answerTold(t *notice) error {
	l := b.leases[t.report.LeaseID]
	if l == nil {
		return nil
	}
	switch a := t.answer; {
	case a.Verdict == lease.VerdictCommitted && a.Replayed:
		return l.replayed(t)
	case a.Verdict == lease.VerdictCommitted:
		return l.committed(t)
	case a.Verdict == lease.VerdictCancelled && a.Reason != lease.AlreadyReported:
		return l.cancelled(a)
	}
	return nil
}

func (l *toldLease) replayed(t *notice) error {
	a := t.answer
	a.Replayed = false
	if l.report != nil && (a != l.answer || !sameReport(l.report, t.report)) {
		return fmt.Errorf("A10: %+v was told, and is replayed as %+v", l.answer, a)
	}
	l.answer, l.report = a, t.report
	return nil
}

func (l *toldLease) committed(t *notice) error {
	switch {
	case l.ended != lease.NoReason:
		return fmt.Errorf("A4, A10: %v is COMMITTED under a lease whose worker was told before that it had ended with %v", t.report.Kind, l.ended)
	case l.report != nil:
		return fmt.Errorf("A5: %v is COMMITTED under a lease under which a report was COMMITTED before", t.report.Kind)
	case t.report.Kind.Closes():
		l.answer, l.report = t.answer, t.report
	default:
		l.until = max(l.until, t.until)
	}
	return nil
}

// cancelled checks that no CANCELLED follows COMMITTED while the task exists (A10), and that the
// cause with which a lease ended does not change (A3). What may change is the reason of the answer:
// later the task can be granted again or deleted, or a new epoch can begin.
func (l *toldLease) cancelled(a lease.Answer) error {
	why := a.Reason
	switch {
	case l.report != nil && a.State != 0:
		// a deleted task has no state: its reports are replayed for an hour, which only the model
		// checks
		return fmt.Errorf("A10: COMMITTED was told under a lease, and now CANCELLED with %v", why)
	case l.ended != lease.NoReason && l.ended != why && why != lease.Superseded && why != lease.TaskGone && why != lease.CoordinatorRecovered:
		return fmt.Errorf("A3: %v was told as the cause with which a lease ended, and now %v", l.ended, why)
	}
	l.ended = why
	return nil
}

// expired checks that no lease expires earlier than its holder was told (A9).
func (b *book) expired(c *lease.Change) error {
	if c.Lost == nil || c.LostCause != lease.LeaseExpired {
		return nil
	}
	if l := b.nonces[c.Lost.Nonce]; l != nil && b.uptime < l.until {
		return fmt.Errorf("A9: a lease expires %v earlier than its holder was told", l.until.Sub(b.uptime))
	}
	return nil
}

// restored removes all leases: the restore has lost those granted after the backup, and has ended
// the others. Tokens still have to rise (A2).
func (b *book) restored() {
	clear(b.leases)
	clear(b.nonces)
}
