package salvage

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/verify"
)

// loadKeys reads the index of idempotency keys.
func (s *salvager) loadKeys() error {
	return s.to.View(func(r store.Reader) (err error) {
		if s.keys, err = keyindex.Load(r, keyindex.DefaultSegmentSize); err != nil {
			return err
		}
		for _, segment := range s.keys.Unread() {
			f, err := keyindex.ReadFilter(func(fn func(store.Reader) error) error { return fn(r) }, segment)
			if err != nil {
				return err
			}
			s.keys.SetFilter(f)
		}
		return nil
	})
}

// tasks keeps each task or removes what was copied of it.
func (s *salvager) tasks() error {
	return s.each(store.Spec, func(r store.Reader, key []byte) error {
		id, err := store.ParseTaskKey(store.Spec, key)
		if err != nil {
			return err
		}
		t, err := records.Task(r, id)
		if err != nil && !errors.As(err, new(*store.CorruptError)) {
			return err
		}
		reason, kept, err := s.judge(r, key, t, err)
		if err != nil {
			return err
		}
		if reason == "" {
			s.keep(t, kept)
			return nil
		}
		s.leaveOut(id, t, reason)
		return s.remove(r, id, key)
	})
}

// judge says why a task is left out. If it is kept, judge returns the version to keep, which lacks
// the parts that are damaged. unread is why the task cannot be read.
func (s *salvager) judge(
	r store.Reader, key []byte, t *lease.Task, unread error,
) (reason string, kept *lease.Task, err error) {
	if corrupt, ok := errors.AsType[*store.CorruptError](unread); ok {
		return cmp.Or(s.bad[idOf(key)], noun(corrupt.Keyspace)+": "+corrupt.Problem), nil, nil
	}
	switch {
	case s.bad[t.ID] != "":
		return s.bad[t.ID], nil, nil
	case r.Get(store.Task, key) == nil && s.inGap(s.gaps[store.Task], key):
		return "state: it may be where the file cannot be read", nil, nil
	case t.Rest == lease.Ready && t.Lease == nil && s.inGap(s.gaps[store.Lease], key) && !s.waits(t):
		return "lease: it may be where the file cannot be read", nil, nil
	}
	space := s.spaceOf(t)
	if space == nil {
		return "workspace: its number belongs to another one", nil, nil
	}
	kept = withoutLost(r, t)
	open := *space
	open.NextSeq = math.MaxUint64 // putSpaces sets it beyond all tasks
	if reason, err = verify.TaskProblem(r, kept, open, s.epoch); reason != "" || err != nil {
		return reason, nil, err
	}
	if name := t.Spec.IdempotencyKey; name != "" {
		switch id, _, found, err := s.keys.Find(r, t.ID.Space, name); {
		case err != nil:
			return "", nil, err
		case found && id != t.ID:
			return "idempotency key: it is that of task " + id.String(), nil, nil
		case !found:
			// nobody knows the digest; that of no spec keeps the key from making another task
			records.PutInKeyLog(&s.b, records.EntryOfKey(t, lease.Digest{}))
			s.found(Item{
				Kind: KindKey, Task: t.ID, Name: name,
				Reason: "its record is damaged; the key still leads to the task, but a repeat of the submit is refused with ALREADY_EXISTS",
			})
		}
	}
	return "", kept, nil
}

func idOf(key []byte) lease.TaskID {
	id, _ := store.ParseTaskKey(store.Spec, key)
	return id
}

// waits reports whether the index of the damaged store says that a READY task waits, which it does
// not while it has a lease.
func (s *salvager) waits(t *lease.Task) bool {
	e, ok := records.Index(t)
	if !ok {
		return false
	}
	_, waits := s.waiting[string(e.Key())]
	return waits
}

// withoutLost returns a task without the parts that it should have and that are not there, if it
// can be without them.
func withoutLost(r store.Reader, t *lease.Task) *lease.Task {
	kept := *t
	if r.Get(store.Failure, store.AppendTaskKey(nil, t.ID)) == nil {
		kept.ErrorCategory = lease.NoCategory
	}
	kept.Discarded = slices.DeleteFunc(slices.Clone(t.Discarded), func(d lease.Discarded) bool {
		return r.Get(store.Discarded, store.AppendAttemptKey(nil, t.ID, d.Attempt)) == nil
	})
	return &kept
}

// keep adds what is computed from a task. was is the task with all its parts.
func (s *salvager) keep(was, t *lease.Task) {
	if was.ErrorCategory != t.ErrorCategory || len(was.Discarded) != len(t.Discarded) {
		records.Put(&s.b, &lease.Change{Old: was, New: t, Row: true})
	}
	s.tellParts(was, t)
	if e, ok := records.Index(t); ok {
		s.b.Put(e.Keyspace, e.Key(), nil)
	}
	for _, k := range records.WaitingTimers(t) {
		records.PutTimer(&s.b, k)
	}
	if run := records.RunKey(t); run != nil {
		s.b.Put(store.Run, run, nil)
	}
	if host := records.MountedKey(t); host != nil {
		s.b.Put(store.Mounted, host, nil)
	}
	s.count(t)
	s.last[t.ID.Space] = max(s.last[t.ID.Space], t.ID.Seq, t.Place, t.LastSeq())
	s.lastRead = max(s.lastRead, t.ReadyAt)
	s.seen = max(s.seen, lease.EpochOfSeq(t.ID.Seq))
}

// tellParts tells without which parts a task is kept.
func (s *salvager) tellParts(was, t *lease.Task) {
	told := map[string]bool{}
	for _, part := range s.parts[t.ID] {
		told[part.Kind] = true
		s.found(part)
	}
	const gone = "it is missing"
	if was.HasFailure() && !t.HasFailure() && !told[KindError] {
		s.found(Item{Kind: KindError, Task: t.ID, Reason: gone})
	}
	if len(was.Discarded) != len(t.Discarded) && !told[KindLateResult] {
		s.found(Item{Kind: KindLateResult, Task: t.ID, Reason: gone})
	}
}

// count counts a task in its queue and in the report.
func (s *salvager) count(t *lease.Task) {
	s.report.Total++
	s.report.Tasks[t.State()]++
	name := queueName{t.ID.Space, t.Spec.Queue}
	q := s.queues[name]
	if q == nil {
		q = &records.Queue{Space: name.space, Name: name.name, CreatedAt: t.CreatedAt}
		s.queues[name] = q
	}
	q.CreatedAt = min(q.CreatedAt, t.CreatedAt)
	q.Add(t, 0) // putSpaces makes this right
	if t.Lease != nil {
		s.seen = max(s.seen, t.Lease.Epoch)
		s.report.Leases++
	}
}

// leaveOut tells of a task that is left out; t is nil if it cannot be read.
func (s *salvager) leaveOut(id lease.TaskID, t *lease.Task, reason string) {
	if _, told := s.named[id]; told {
		return
	}
	s.named[id] = struct{}{}
	s.report.LeftOut++
	item := Item{Kind: KindTask, Task: id, Reason: reason}
	if space := s.spaces[id.Space]; space != nil {
		item.Tenant, item.Workspace = space.Tenant, space.Workspace
	}
	if t != nil {
		item.State, item.Queue, item.RunID, item.IdempotencyKey = t.State().String(), t.Spec.Queue,
			t.Spec.RunID, t.Spec.IdempotencyKey
		item.Tenant, item.Workspace = t.Tenant, t.Workspace
	}
	s.found(item)
}

// remove removes what was copied of a task, but its ledger, as if the task had been deleted now.
func (s *salvager) remove(r store.Reader, id lease.TaskID, key []byte) error {
	s.last[id.Space] = max(s.last[id.Space], id.Seq)
	s.b.Delete(store.Spec, key)
	for _, ks := range store.TaskParts {
		s.b.Delete(ks, key)
	}
	return r.Scan(store.Discarded, key, store.PrefixEnd(key), func(key, _ []byte) bool {
		s.b.Delete(store.Discarded, key)
		return true
	})
}
