package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Put adds to b everything that c changes. A submit writes the spec, which is never written again.
// A renewal writes only the lease. A grant writes the lease and the index.
func Put(b *store.Batch, c *lease.Change) {
	id, _ := c.Subject()
	var space [16]byte
	key := store.AppendTaskKey(space[:0], id)
	putIndex(b, c.Old, c.New)
	switch {
	case c.New == nil:
		remove(b, key, c)
	case c.Old == nil:
		put(b, store.Spec, key, c.New, withPayload)
		if c.New.Spec.IdempotencyKey != "" {
			PutInKeyLog(b, EntryOfKey(c.New, c.Key))
		}
		if run := RunKey(c.New); run != nil {
			b.Put(store.Run, run, nil)
		}
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
	if c.Result != nil && !omitsResult(c) {
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
		if c.New.KeepsResultOf(attempt) { // dropped, and then reported and kept again
			continue
		}
		b.Delete(store.Discarded, store.AppendAttemptKey(nil, id, attempt))
	}
}

// omitsResult reports whether the result is empty and the outcome says so. Then the result gets no
// record. Many handlers return nothing; a record of that would be one of the six changes of a grant
// and the end of the task.
func omitsResult(c *lease.Change) bool {
	return c.Result.Empty() && c.New.Outcome != nil && c.New.Outcome.EmptyComplete()
}

// remove deletes the records of a task. It deletes none that the task does not have, because each
// delete costs a search. The ledger remains for a while (A10), until a timer that remove adds to
// the index.
func remove(b *store.Batch, key []byte, c *lease.Change) {
	t := c.Old
	b.Delete(store.Spec, key)
	b.Delete(store.Task, key) // the task does not say whether it has this record; most removed tasks have it
	if t.Lease != nil {
		b.Delete(store.Lease, key)
	}
	if t.Rest == lease.Completed {
		b.Delete(store.Output, key)
	}
	if t.HasFailure() {
		b.Delete(store.Failure, key)
	}
	if t.HasCheckpoint() {
		b.Delete(store.Checkpoint, key)
	}
	b.Delete(store.Feedback, key) // the task does not say whether it has this record
	for i := range t.Discarded {
		b.Delete(store.Discarded, store.AppendAttemptKey(nil, t.ID, t.Discarded[i].Attempt))
	}
	// what KeyLog and KeySegment have of it leads to no task from now on, and is cleaned up later:
	// see package keyindex
	if t.Spec.IdempotencyKey != "" {
		b.Delete(store.Idempotency, store.AppendNameKey(nil, t.ID.Space, t.Spec.IdempotencyKey))
	}
	if run := RunKey(t); run != nil {
		b.Delete(store.Run, run)
	}
	if host := MountedKey(t); host != nil {
		b.Delete(store.Mounted, host)
	}
	if c.ForgetAt != 0 {
		b.Put(store.Timer, store.ServingTimer(c.ForgetAt, t.ID).Append(nil), nil)
	}
}
