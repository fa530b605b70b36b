package records

import (
	"math"

	"github.com/lessor-dev/lessor/lease"
)

// specFields are what was submitted and by whom, and the first state of the task. The payload
// follows them; it is the rest of the record. Fields that many tasks have in common use sharedStr.
func specFields(c *codec, t *lease.Task) {
	s := t.Spec
	c.sharedStr(0, &t.Tenant)
	c.sharedStr(1, &t.Workspace)
	c.sharedStr(2, &s.Queue)
	c.sharedStr(3, &s.Type)
	c.str(&s.RunID)
	c.str(&s.TaskKey)
	c.str(&s.AssetID)
	c.str(&s.IdempotencyKey)
	num(c, &s.Priority)
	num(c, &s.RunAt)
	num(c, &s.Deadline)
	num(c, &s.AttemptTimeout)
	num(c, &s.StartTimeout)
	policyFields(c, &s.Retry)
	num(c, &s.HeartbeatInterval)
	num(c, &s.HeartbeatTimeout)
	num(c, &s.CancelGrace)
	table(c, &s.Labels, (*codec).str)
	num(c, &s.Retention)
	c.str(&s.Traceparent)
	if c.since(2) {
		c.str(&s.ConcurrencyKey)
		num(c, &s.ConcurrencyLimit)
		c.str(&s.FairnessKey)
	}
	if c.since(3) {
		optional(c, &s.Requirements, requirementsFields)
		list(c, &s.ResourceRefs, refFields)
		optional(c, &s.Affinity, affinityFields)
		optional(c, &s.Trace, traceFields)
	}
	if specHasState(c.version) {
		taskFields(c, t)
	}
}

// specHasState reports whether a spec record of that version contains the first state of its task.
// Beside an older one there is always a record of the state.
func specHasState(version byte) bool { return version >= 5 }

func requirementsFields(c *codec, r *lease.Requirements) {
	list(c, &r.Runtimes, (*codec).str)
	list(c, &r.Features, (*codec).str)
	table(c, &r.Labels, (*codec).str)
	table(c, &r.Resources, (*codec).float)
	if c.since(9) {
		c.str(&r.Package)
	}
}

func refFields(c *codec, r *lease.ResourceRef) {
	c.str(&r.ResourceID)
	c.str(&r.Worker)
	c.str(&r.Type)
	c.str(&r.Scope)
	num(c, &r.ExpiresAt)
	table(c, &r.Metadata, (*codec).str)
}

func affinityFields(c *codec, a *lease.Affinity) {
	c.str(&a.Key)
	num(c, &a.Mode)
	num(c, &a.TTL)
}

func traceFields(c *codec, t *lease.Trace) {
	c.str(&t.Host)
	list(c, &t.Chain, (*codec).str)
	optional(c, &t.Index, num[uint32])
}

func policyFields(c *codec, p *lease.RetryPolicy) {
	num(c, &p.MaxAttempts)
	num(c, &p.MaxLosses)
	num(c, &p.InitialBackoff)
	c.float(&p.Multiplier)
	num(c, &p.MaxBackoff)
	list(c, &p.NonRetryable, num[lease.Category])
}

// SmallPayload is the size in bytes up to which TaskWithoutLease reads a payload together with the
// task.
const SmallPayload = 1 << 10

// withoutPayload, withSmallPayload and withPayload read or write the specFields and the payload.
// All of them write the payload. They read no payload, a payload of at most SmallPayload bytes, or
// any payload.
func withoutPayload(c *codec, t *lease.Task) {
	specFields(c, t)
	c.payload(t.Spec, -1)
}

func withSmallPayload(c *codec, t *lease.Task) {
	specFields(c, t)
	c.payload(t.Spec, SmallPayload)
}

func withPayload(c *codec, t *lease.Task) {
	specFields(c, t)
	c.payload(t.Spec, math.MaxInt)
}

// payload reads or writes the payload, which is the rest of the record. Reading skips a payload of
// more than most bytes.
func (c *codec) payload(s *lease.Spec, most int) {
	if !c.reading {
		c.out = append(c.out, s.Payload...)
		return
	}
	s.Size = len(c.in)
	rest := c.take(uint64(len(c.in)))
	if s.Size <= most {
		s.Payload = append([]byte{}, rest...)
	}
}

// taskFields are the state of a task without its live lease. They are part of the spec record, and
// a record of their own from the first change on.
func taskFields(c *codec, t *lease.Task) {
	num(c, &t.Rest)
	num(c, &t.Reason)
	num(c, &t.Round)
	num(c, &t.Attempts)
	num(c, &t.Failures)
	num(c, &t.Losses)
	num(c, &t.Releases)
	num(c, &t.Unacked)
	c.str(&t.UnackedBy)
	num(c, &t.CreatedAt)
	num(c, &t.FinishedAt)
	num(c, &t.Deadline)
	num(c, &t.Place)
	num(c, &t.ReadyAt)
	num(c, &t.RunAt)
	num(c, &t.RetryAt)
	optional(c, &t.Cancel, cancelFields)
	num(c, &t.Last.Attempt)
	num(c, &t.Last.Nonce)
	num(c, &t.Last.Cause)
	num(c, &t.Last.At)
	if c.since(2) {
		c.str(&t.Last.Worker)
		num(c, &t.Last.GrantedAt)
		num(c, &t.Last.AckedAt)
		num(c, &t.Last.StartedAt)
		num(c, &t.Last.HeartbeatAt)
	}
	optional(c, &t.Outcome, committedFields)
	list(c, &t.History, eventFields)
	num(c, &t.Dropped)
	checkpointBits(c, &t.CheckpointBits)
	errorCategory(c, &t.ErrorCategory)
	if c.since(2) {
		c.bool(&t.Parked)
		list(c, &t.Discarded, discardedFields)
	}
}

// checkpointBits reads or writes the bits of the size of a checkpoint plus one, and 0 for no
// checkpoint. Builds that kept no size wrote 1 for any: it is read as the largest that the default
// limit allows.
func checkpointBits(c *codec, bits *uint8) {
	const unknown, largest, tooMany = 1, 17, 32
	n := uint32(*bits)
	if n > 0 {
		n++
	}
	num(c, &n)
	if !c.reading {
		return
	}
	switch n {
	case 0:
		*bits = 0
	case unknown:
		*bits = largest
	default:
		if *bits = uint8(n - 1); n > tooMany {
			c.fail()
		}
	}
}

// errorCategory reads or writes the category of an error as its number plus one, and 0 for no
// error. Builds that kept no category wrote 1 for any error.
func errorCategory(c *codec, category *lease.Category) {
	const unknown = 1
	var n uint32
	switch *category {
	case lease.NoCategory:
	case lease.UnknownCategory:
		n = unknown
	default:
		n = uint32(*category) + 1
	}
	num(c, &n)
	if !c.reading {
		return
	}
	switch {
	case n == 0:
		*category = lease.NoCategory
	case n == unknown:
		*category = lease.UnknownCategory
	case n > math.MaxUint8+1:
		c.broken = true
	default:
		*category = lease.Category(n - 1)
	}
}

func discardedFields(c *codec, d *lease.Discarded) {
	num(c, &d.Attempt)
	num(c, &d.Nonce)
	c.str(&d.Worker)
	num(c, &d.At)
	num(c, &d.Reason)
	num(c, &d.Size)
}

func cancelFields(c *codec, r *lease.CancelRequest) {
	c.str(&r.Reason)
	c.str(&r.By)
	num(c, &r.At)
}

func committedFields(c *codec, r *lease.Committed) {
	num(c, &r.Attempt)
	num(c, &r.Nonce)
	num(c, &r.Kind)
	c.fixed(r.Digest[:])
	num(c, &r.State)
	num(c, &r.RetryAt)
	num(c, &r.At)
}

func eventFields(c *codec, e *lease.Event) {
	num(c, &e.Seq)
	num(c, &e.Type)
	num(c, &e.At)
	num(c, &e.Attempt)
	c.str(&e.Actor)
	num(c, &e.Reason)
	c.str(&e.Detail)
	num(c, &e.State)
	if c.since(2) {
		num(c, &e.Kind)
	}
}

func leaseFields(c *codec, l *lease.Lease) {
	num(c, &l.Epoch)
	num(c, &l.Attempt)
	num(c, &l.Nonce)
	c.str(&l.Worker)
	c.str(&l.Session)
	c.str(&l.Request)
	num(c, &l.GrantedAt)
	num(c, &l.AckedAt)
	num(c, &l.StartedAt)
	num(c, &l.HeartbeatAt)
	num(c, &l.ExpiresAt)
	num(c, &l.AckBy)
	num(c, &l.AttemptBy)
	num(c, &l.CancelBy)
	num(c, &l.Stalled)
	list(c, &l.Events, eventFields)
}
