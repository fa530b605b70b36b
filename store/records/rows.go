package records

import (
	"math"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// specFields are what was submitted, by whom, and how the task was then, but for the payload, which is the rest of the record. The names are those
// that many tasks share.
func specFields(c *codec, t *lease.Task) {
	s := t.Spec
	c.name(0, &t.Tenant)
	c.name(1, &t.Workspace)
	c.name(2, &s.Queue)
	c.name(3, &s.Type)
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
	if c.second() {
		c.str(&s.ConcurrencyKey)
		num(c, &s.ConcurrencyLimit)
		c.str(&s.FairnessKey)
	}
	if c.third() {
		optional(c, &s.Requirements, requirementsFields)
		list(c, &s.ResourceRefs, refFields)
		optional(c, &s.Affinity, affinityFields)
		optional(c, &s.Trace, traceFields)
	}
	if tellsState(c.version) {
		taskFields(c, t)
	}
}

// tellsState reports whether a spec record of the version has the state of its task. Those of before have a record of it beside them from the first.
func tellsState(version byte) bool { return version >= 5 }

func requirementsFields(c *codec, r *lease.Requirements) {
	list(c, &r.Runtimes, (*codec).str)
	list(c, &r.Features, (*codec).str)
	table(c, &r.Labels, (*codec).str)
	table(c, &r.Resources, (*codec).float)
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

// SmallPayload is the size in bytes up to which a payload is read along with its task by Resting.
const SmallPayload = 1 << 10

// withoutPayload, withSmallPayload and withPayload are specFields and the payload, whole in what is written.
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

// payload is the rest of the record. It is passed over in reading where it is larger than most.
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

// taskFields are what changes in a task, but for its live lease. They are a record of their own from the first change on.
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
	if c.second() {
		c.str(&t.Last.Worker)
		num(c, &t.Last.GrantedAt)
		num(c, &t.Last.AckedAt)
		num(c, &t.Last.StartedAt)
		num(c, &t.Last.HeartbeatAt)
	}
	optional(c, &t.Outcome, committedFields)
	list(c, &t.History, eventFields)
	num(c, &t.Dropped)
	c.bool(&t.HasCheckpoint)
	c.bool(&t.HasFailure)
	if c.second() {
		c.bool(&t.Parked)
		list(c, &t.Discarded, discardedFields)
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
	if c.second() {
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

// Put adds to b all that c changes. A submit writes the spec, which is not written again, a renewal the lease alone, a grant the lease and the
// index.
func Put(b *store.Batch, c *lease.Change) {
	id := idOf(c)
	var space [16]byte
	key := store.AppendTaskKey(space[:0], id)
	putIndex(b, c.Old, c.New)
	switch {
	case c.New == nil:
		remove(b, key, c)
	case c.Old == nil:
		put(b, store.Spec, key, c.New, withPayload)
		putKey(b, c)
		if host := MountedKey(c.New); host != nil {
			b.Put(store.Mounted, host, nil)
		}
	case c.Row:
		put(b, store.Task, key, c.New, taskFields)
	}
	if c.New != nil {
		putLease(b, key, c)
		putBlobs(b, key, c)
	}
	for i := range c.Ledger {
		done := &c.Ledger[i]
		put(b, store.Ledger, store.AppendAttemptKey(nil, id, done.Attempt), done, committedFields)
	}
}

func idOf(c *lease.Change) lease.TaskID {
	if c.New != nil {
		return c.New.ID
	}
	return c.Old.ID
}

func putLease(b *store.Batch, key []byte, c *lease.Change) {
	had := c.Old != nil && c.Old.Lease != nil
	switch l := c.New.Lease; {
	case l != nil && (!had || l != c.Old.Lease):
		put(b, store.Lease, key, l, leaseFields)
	case l == nil && had:
		b.Delete(store.Lease, key)
	}
}

func putBlobs(b *store.Batch, key []byte, c *lease.Change) {
	if c.Result != nil && !omitted(c) {
		put(b, store.Output, key, c.Result, resultFields)
	}
	if c.Failure != nil {
		put(b, store.Failure, key, c.Failure, failureFields)
	}
	if c.Checkpoint != nil {
		b.PutSealed(store.Checkpoint, key, version, c.Checkpoint)
	}
	id := c.New.ID
	for _, k := range c.Kept {
		put(b, store.Discarded, store.AppendAttemptKey(nil, id, k.Attempt), k.Result, resultFields)
	}
	for _, attempt := range c.Dropped {
		b.Delete(store.Discarded, store.AppendAttemptKey(nil, id, attempt))
	}
}

// omitted reports whether a result carries nothing, and the outcome tells as much: it has no record then. Many handlers return nothing, and a record
// that says so would be one of six changes that the grant and the end of their task cost.
func omitted(c *lease.Change) bool {
	return c.Result.Empty() && c.New.Outcome != nil && c.New.Outcome.Bare()
}

// remove deletes a task, and no record that it does not have: each delete is a search. Its ledger stays for a while (A10); the timer of that is part
// of the index.
func remove(b *store.Batch, key []byte, c *lease.Change) {
	t := c.Old
	b.Delete(store.Spec, key)
	b.Delete(store.Task, key) // nothing in the task tells whether it has ever changed; most have that are removed
	if t.Lease != nil {
		b.Delete(store.Lease, key)
	}
	if t.Rest == lease.Completed {
		b.Delete(store.Output, key)
	}
	if t.HasFailure {
		b.Delete(store.Failure, key)
	}
	if t.HasCheckpoint {
		b.Delete(store.Checkpoint, key)
	}
	b.Delete(store.Feedback, key) // nothing in the task tells whether there is one
	for i := range t.Discarded {
		b.Delete(store.Discarded, store.AppendAttemptKey(nil, t.ID, t.Discarded[i].Attempt))
	}
	if t.Spec.IdempotencyKey != "" {
		b.Delete(store.Idempotency, store.AppendNameKey(nil, t.ID.Space, t.Spec.IdempotencyKey))
	}
	if host := MountedKey(t); host != nil {
		b.Delete(store.Mounted, host)
	}
	if c.ForgetAt != 0 {
		b.Put(store.Timer, store.ServingTimer(c.ForgetAt, t.ID).Append(nil), nil)
	}
}

// Task reads the newest committed version of a task, its payload left out; nil where there is none.
func Task(r store.Reader, id lease.TaskID) (*lease.Task, error) {
	var space [16]byte
	key := store.AppendTaskKey(space[:0], id)
	return task(r, id, key, r.Get(store.Spec, key))
}

func task(r store.Reader, id lease.TaskID, key, spec []byte) (*lease.Task, error) {
	t, err := resting(r, id, key, spec, withoutPayload)
	if t == nil {
		return nil, err
	}
	if t.Lease, err = read(r, store.Lease, key, leaseFields); err != nil {
		return nil, err
	}
	return t, nil
}

// Resting is Task for one that is known to have no lease, so that none is looked for. It comes with its payload, if that is small.
func Resting(r store.Reader, id lease.TaskID) (*lease.Task, error) {
	var space [16]byte
	key := store.AppendTaskKey(space[:0], id)
	return resting(r, id, key, r.Get(store.Spec, key), withSmallPayload)
}

// resting reads a task that was submitted with spec, nil where none was. What has changed since takes the place of how the task was then.
func resting(r store.Reader, id lease.TaskID, key, spec []byte, fields func(*codec, *lease.Task)) (*lease.Task, error) {
	changed := r.Get(store.Task, key)
	switch {
	case spec == nil && changed == nil:
		return nil, nil
	case spec == nil:
		return nil, corrupt(store.Spec, key, "a task has no spec")
	}
	t := &lease.Task{ID: id, Spec: new(lease.Spec)}
	if err := decode(store.Spec, key, spec, t, fields); err != nil {
		return nil, err
	}
	switch {
	case changed == nil && tellsState(spec[0]): // its version, see store.Seal
		return t, nil
	case changed == nil:
		return nil, corrupt(store.Task, key, "a task has no state")
	}
	if err := decode(store.Task, key, changed, t, taskFields); err != nil {
		return nil, err
	}
	return t, nil
}

// readSpec reads into t what was submitted, if there is any.
func readSpec(r store.Reader, key []byte, t *lease.Task, fields func(*codec, *lease.Task)) (found bool, err error) {
	value := r.Get(store.Spec, key)
	if value == nil {
		return false, nil
	}
	t.Spec = new(lease.Spec)
	return true, decode(store.Spec, key, value, t, fields)
}

// Payload reads the payload of a task; nil where there is no task, empty where it has none.
func Payload(r store.Reader, id lease.TaskID) ([]byte, error) {
	var t lease.Task
	found, err := readSpec(r, store.AppendTaskKey(nil, id), &t, withPayload)
	if err != nil || !found {
		return nil, err
	}
	return t.Spec.Payload, nil
}

// Tasks calls fn with the tasks of a space whose sequence is greater than after, in their order, until fn returns false.
func Tasks(r store.Reader, space uint32, after uint64, fn func(*lease.Task) bool) error {
	from := append(store.AppendTaskKey(nil, lease.TaskID{Space: space, Seq: after}), 0)
	return scan(r, store.Spec, from, store.PrefixEnd(store.AppendSpacePrefix(nil, space)), func(key, spec []byte) (bool, error) {
		id, err := store.ParseTaskKey(store.Spec, key)
		if err != nil {
			return false, err
		}
		t, err := task(r, id, key, spec)
		if err != nil {
			return false, err
		}
		return fn(t), nil
	})
}

// TaskIDs is Tasks for those who need no more than the ids.
func TaskIDs(r store.Reader, space uint32, after uint64, fn func(lease.TaskID) bool) error {
	from := append(store.AppendTaskKey(nil, lease.TaskID{Space: space, Seq: after}), 0)
	return scan(r, store.Spec, from, store.PrefixEnd(store.AppendSpacePrefix(nil, space)), func(key, _ []byte) (bool, error) {
		id, err := store.ParseTaskKey(store.Spec, key)
		return err == nil && fn(id), err
	})
}

// Leases calls fn with every task that has a live lease.
func Leases(r store.Reader, fn func(*lease.Task) error) error {
	return scan(r, store.Lease, nil, nil, func(key, _ []byte) (bool, error) {
		id, err := store.ParseTaskKey(store.Lease, key)
		if err != nil {
			return false, err
		}
		t, err := indexed(r, id, store.Lease, key, "a lease has no task")
		if err != nil {
			return false, err
		}
		return true, fn(t)
	})
}

// indexed is the task that a key of another keyspace names, which must be there.
func indexed(r store.Reader, id lease.TaskID, ks store.Keyspace, key []byte, missing string) (*lease.Task, error) {
	t, err := Task(r, id)
	if err == nil && t == nil {
		err = corrupt(ks, key, missing)
	}
	return t, err
}

// scan is Reader.Scan with a callback that may fail.
func scan(r store.Reader, ks store.Keyspace, from, to []byte, fn func(key, value []byte) (bool, error)) error {
	var failed error
	err := r.Scan(ks, from, to, func(key, value []byte) bool {
		var more bool
		more, failed = fn(key, value)
		return more && failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}
