package lease_test

import (
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// book remembers what workers were told, over all crashes, and wants it to stay true. It knows nothing of the rules, and counts time as the
// workers do: by how long a coordinator has been up.
type book struct {
	uptime lease.Instant
	starts int
	tokens map[lease.TaskID]uint64 // A2: highest told
	leases map[string]*toldLease
	nonces map[uint64]*toldLease
}

type toldLease struct {
	ttl    time.Duration
	until  lease.Instant // of uptime: until then silence must not end it (A9)
	closed lease.Answer  // to the report that was COMMITTED
	report *lease.Report
	ended  lease.Reason // of CANCELLED

	// The last renewal that is durable, whether or not the worker knows.
	renewed lease.Instant // of uptime
	starts  int
}

func newBook() *book {
	return &book{tokens: map[lease.TaskID]uint64{}, leases: map[string]*toldLease{}, nonces: map[uint64]*toldLease{}}
}

// granted is a grant that is told.
func (b *book) granted(t *telling) error {
	k := t.claim
	token := lease.FencingToken(k.epoch, k.attempt)
	if token <= b.tokens[k.id] {
		return fmt.Errorf("A2: token %d is told after token %d", token, b.tokens[k.id])
	}
	b.tokens[k.id] = token
	l := &toldLease{ttl: k.ttl, until: t.until, renewed: t.at, starts: b.starts}
	b.leases[k.lease], b.nonces[k.nonce] = l, l
	return nil
}

// renewed takes note of a renewal that is durable: no later than two TTL of serving and a second for each start after the one before (A9).
func (b *book) renewed(t *telling) error {
	l := b.leases[t.report.LeaseID]
	if l == nil || t.answer.Verdict != lease.VerdictCommitted || t.answer.Replayed {
		return nil
	}
	bound := 2*l.ttl + time.Duration(t.starts-l.starts)*time.Duration(saveClock)
	if silent := t.at.Sub(l.renewed); silent > bound {
		return fmt.Errorf("A9: a lease with a TTL of %v lived through %v of silence and %d starts", l.ttl, silent, t.starts-l.starts)
	}
	if t.answer.ExpiresAt != 0 && t.report.Kind != lease.KindAck {
		l.renewed, l.starts = t.at, t.starts
	}
	return nil
}

// answered is a verdict that is told.
func (b *book) answered(t *telling) error {
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

func (l *toldLease) replayed(t *telling) error {
	a := t.answer
	a.Replayed = false
	if l.report != nil && (a != l.closed || !sameReport(l.report, t.report)) {
		return fmt.Errorf("A10: %+v was told, and is replayed as %+v", l.closed, a)
	}
	l.closed, l.report = a, t.report
	return nil
}

func (l *toldLease) committed(t *telling) error {
	switch {
	case l.ended != lease.NoReason:
		return fmt.Errorf("A4, A10: %v is COMMITTED under a lease of which was told that it had ended: %v", t.report.Kind, l.ended)
	case l.report != nil:
		return fmt.Errorf("A5: %v is COMMITTED under a lease that has had a report", t.report.Kind)
	case t.report.Kind.Closes():
		l.closed, l.report = t.answer, t.report
	default:
		l.until = max(l.until, t.until)
	}
	return nil
}

// cancelled wants the cause not to drift (A3): afterwards the task can be granted again, or go, or a new
// epoch begin.
func (l *toldLease) cancelled(a lease.Answer) error {
	why := a.Reason
	switch {
	case l.report != nil && a.State != 0: // for a while longer also where the task is gone; the model knows when
		return fmt.Errorf("A10: COMMITTED was told, and now %v", why)
	case l.ended != lease.NoReason && l.ended != why && why != lease.Superseded && why != lease.TaskGone && why != lease.CoordinatorRecovered:
		return fmt.Errorf("A3: %v was told as the end of a lease, and now %v", l.ended, why)
	}
	l.ended = why
	return nil
}

// expired wants no lease to end by silence before its holder was told (A9).
func (b *book) expired(c *lease.Change) error {
	if c.Lost == nil || c.LostTo != lease.LeaseExpired {
		return nil
	}
	if l := b.nonces[c.Lost.Nonce]; l != nil && b.uptime < l.until {
		return fmt.Errorf("A9: a lease expires %v before its holder was told", l.until.Sub(b.uptime))
	}
	return nil
}

// restored forgets what was told of a future that is lost, but for the tokens.
func (b *book) restored() {
	clear(b.leases)
	clear(b.nonces)
}
