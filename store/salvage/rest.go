package salvage

import (
	"cmp"
	"crypto/rand"
	"maps"
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
)

// loadSpaces reads the workspaces, and the epoch.
func (s *salvager) loadSpaces() error {
	return s.to.View(func(r store.Reader) error {
		identity, _, err := records.ReadIdentity(r)
		if err != nil {
			return err
		}
		s.epoch = identity.Epoch
		return records.Spaces(r, func(space records.Space) error {
			s.spaces[space.Number] = &space
			return nil
		})
	})
}

// spaceOf returns the workspace of a task. If its record is damaged, the task says which it is.
// nil: its number belongs to another one.
func (s *salvager) spaceOf(t *lease.Task) *records.Space {
	if space := s.spaces[t.ID.Space]; space != nil {
		return space
	}
	for _, other := range s.spaces {
		if other.Tenant == t.Tenant && other.Workspace == t.Workspace {
			return nil
		}
	}
	space := &records.Space{Tenant: t.Tenant, Workspace: t.Workspace, Number: t.ID.Space}
	s.spaces[space.Number] = space
	s.rebuilt = append(s.rebuilt, space)
	return space
}

// orphans removes records whose tasks are not there, and tells of these tasks.
func (s *salvager) orphans() error {
	for _, ks := range store.TaskParts {
		err := s.each(ks, func(r store.Reader, key []byte) error {
			if r.Get(store.Spec, key) == nil {
				s.b.Delete(ks, key)
				s.loseSpec(idOf(key))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loseSpec tells of a task that is left out because its specification is not there.
func (s *salvager) loseSpec(id lease.TaskID) {
	reason := s.bad[id]
	if _, broken := s.badSpecs[id]; reason == "" && broken {
		reason = noun(store.Spec) + ": " + badSeal
	}
	if reason == "" {
		reason = "specification: it is where the file cannot be read"
	}
	s.last[id.Space] = max(s.last[id.Space], id.Seq)
	s.leaveOut(id, nil, reason)
}

// lateResults removes discarded results that no task keeps.
func (s *salvager) lateResults() error {
	return s.each(store.Discarded, func(r store.Reader, key []byte) error {
		id, attempt, err := store.ParseAttemptKey(store.Discarded, key)
		if err != nil {
			return err
		}
		t, err := records.Task(r, id)
		if err == nil && (t == nil || !t.KeepsResultOf(attempt)) {
			s.b.Delete(store.Discarded, key)
		}
		return err
	})
}

// ledgers has the reports of tasks that are not there replayed for another while, as those of
// deleted tasks (A10).
func (s *salvager) ledgers() error {
	serving, err := s.serving()
	if err != nil {
		return err
	}
	var last lease.TaskID
	return s.each(store.Ledger, func(r store.Reader, key []byte) error {
		id, _, err := store.ParseAttemptKey(store.Ledger, key)
		if err != nil || r.Get(store.Spec, store.AppendTaskKey(nil, id)) != nil {
			return err
		}
		if s.spaces[id.Space] == nil {
			s.b.Delete(store.Ledger, key)
			return nil
		}
		if id != last {
			records.PutTimer(&s.b, store.ServingTimer(serving.Add(lease.LedgerAfterDelete), id))
			last = id
		}
		s.last[id.Space] = max(s.last[id.Space], id.Seq)
		return nil
	})
}

// olderKeys removes idempotency keys in the form of older formats whose tasks are not there.
func (s *salvager) olderKeys() error {
	return s.each(store.Idempotency, func(r store.Reader, key []byte) error {
		space, name, err := store.ParseNameKey(store.Idempotency, key)
		if err != nil {
			return err
		}
		id, _, _, err := records.OlderTaskByKey(r, space, name)
		if err != nil {
			return err
		}
		has, err := records.HasKey(r, id, store.HashOfKey(space, name))
		if !has {
			s.b.Delete(store.Idempotency, key)
		}
		return err
	})
}

// putQueues counts the tasks of all queues anew.
func (s *salvager) putQueues() error {
	err := s.to.View(func(r store.Reader) error {
		err := records.Queues(r, func(q records.Queue) error {
			name := queueName{q.Space, q.Name}
			if s.spaces[q.Space] == nil {
				records.DeleteQueue(&s.b, q.Space, q.Name)
				s.found(Item{Kind: KindQueue, Name: q.Name, Reason: noWorkspace})
				return nil
			}
			is := records.Queue{Space: q.Space, Name: q.Name}
			if counted := s.queues[name]; counted != nil {
				is = *counted
			}
			is.CreatedAt, is.Bucket = q.CreatedAt, q.Bucket
			records.PutQueue(&s.b, is)
			delete(s.queues, name)
			return nil
		})
		if err != nil {
			return err
		}
		return records.Settings(r, func(space uint32, name string, _ *lease.Settings) error {
			if s.spaces[space] == nil {
				s.b.Delete(store.Settings, store.AppendNameKey(nil, space, name))
				s.found(Item{Kind: KindSettings, Name: name, Reason: noWorkspace})
				return nil
			}
			if at := (queueName{space, name}); s.queues[at] == nil &&
				r.Get(store.Queue, store.AppendNameKey(nil, space, name)) == nil {
				s.queues[at] = &records.Queue{Space: space, Name: name, CreatedAt: s.now}
			}
			return nil
		})
	})
	made := slices.SortedFunc(maps.Values(s.queues), func(a, b *records.Queue) int {
		return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Name, b.Name))
	})
	for _, q := range made { // a rate limit without a record counts as used up
		records.PutQueue(&s.b, *q)
		s.tell(KindQueue, q.Space, q.Name,
			"its record is damaged; it was made anew, and when the queue was made is not known exactly")
	}
	return err
}

const noWorkspace = "its workspace is not known"

// tell tells of something that belongs to a workspace.
func (s *salvager) tell(kind string, space uint32, name, reason string) {
	item := Item{Kind: kind, Name: name, Reason: reason}
	if of := s.spaces[space]; of != nil {
		item.Tenant, item.Workspace = of.Tenant, of.Workspace
	}
	s.found(item)
}

// putSpaces makes sure that no workspace gives out a sequence again, and that queues count their
// ended tasks by state, as putQueues did.
func (s *salvager) putSpaces() error {
	err := s.to.View(func(r store.Reader) error {
		for _, ks := range []store.Keyspace{store.KeyLog, store.Ledger} {
			err := r.Scan(ks, nil, nil, func(key, _ []byte) bool {
				if id, ok := store.TaskOf(ks, key); ok {
					s.last[id.Space] = max(s.last[id.Space], id.Seq)
				}
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for number, space := range s.spaces {
		if next := s.last[number] + 1; next > space.NextSeq || space.CountedFrom != 0 {
			space.NextSeq, space.CountedFrom = max(next, space.NextSeq), 0
			records.PutSpace(&s.b, *space)
		}
	}
	for _, space := range s.rebuilt {
		s.found(Item{
			Kind: KindWorkspace, Tenant: space.Tenant, Workspace: space.Workspace,
			Reason: "its record is damaged; it was made anew from its tasks, and all sequences that may have been given out are skipped",
		})
	}
	for _, b := range s.broken {
		s.tellOf(b)
	}
	return err
}

// tellOf tells of a broken record of a workspace or of the settings of a queue.
func (s *salvager) tellOf(b boltstore.Broken) {
	if b.Keyspace == store.Settings {
		space, name, _ := store.ParseNameKey(store.Settings, b.Key)
		s.tell(KindSettings, space, name, badSeal)
		return
	}
	tenant, workspace, err := store.ParseTenantKey(store.Space, b.Key)
	if err != nil || !s.wasRebuilt(tenant, workspace) {
		s.found(Item{
			Kind: KindWorkspace, Tenant: tenant, Workspace: workspace,
			Reason: badSeal + ", and it has no tasks that tell its number",
		})
	}
}

func (s *salvager) wasRebuilt(tenant, workspace string) bool {
	for _, space := range s.rebuilt {
		if space.Tenant == tenant && space.Workspace == workspace {
			return true
		}
	}
	return false
}

// serving returns the reading of the serving clock with which the new store begins.
func (s *salvager) serving() (serving lease.Instant, err error) {
	err = s.to.View(func(r store.Reader) error {
		if serving, err = records.ServingClock(r); err != nil || serving != 0 {
			return err
		}
		serving = s.lastRead
		return r.Scan(store.Audit, nil, nil, func(key, _ []byte) bool {
			if k, err := store.ParseAuditKey(key); err == nil {
				serving = max(serving, k.Serving)
			}
			return true
		})
	})
	return serving, err
}

// putMeta makes what every store has that was ever served. No epoch may come again: without the
// identity, the leases and the ids of tasks tell which the last one was at least, and if the newest
// commit is lost, that may have begun one.
func (s *salvager) putMeta() error {
	if len(s.spaces) == 0 && !s.metaLost && s.epoch == 0 { // never served
		return nil
	}
	serving, err := s.serving()
	if err != nil {
		return err
	}
	return s.to.View(func(r store.Reader) error {
		if r.Get(store.Meta, []byte(store.MetaClock)) == nil {
			records.PutClock(&s.b, serving)
			s.found(Item{
				Kind:   KindClock,
				Reason: "its record is damaged; it goes on from the last time that another record has: retries may wait longer",
			})
		}
		identity, found, err := records.ReadIdentity(r)
		if !found {
			identity = records.Identity{Epoch: max(s.seen, 1), Key: make([]byte, 32)}
			_, _ = rand.Read(identity.Key) // never fails
			s.found(Item{
				Kind:   KindIdentity,
				Reason: "its record is damaged; there is a new key, so that reports under earlier leases are REJECTED, INVALID_LEASE",
			})
		}
		if s.from.Older() != "" {
			identity.Epoch++
		}
		records.PutIdentity(&s.b, identity)
		return err
	})
}

// nameTheRest tells of the tasks of which only a damaged record or an index entry is left.
func (s *salvager) nameTheRest() error {
	ids := slices.Collect(maps.Keys(s.bad))
	ids = slices.AppendSeq(ids, maps.Keys(s.mentioned))
	slices.SortFunc(ids, lease.TaskID.Compare)
	return s.to.View(func(r store.Reader) error {
		for _, id := range ids {
			if r.Get(store.Spec, store.AppendTaskKey(nil, id)) == nil {
				s.loseSpec(id)
			}
		}
		for _, id := range slices.SortedFunc(maps.Keys(s.badSpecs), lease.TaskID.Compare) {
			if _, told := s.named[id]; !told {
				s.tellUncertain(store.Spec, store.AppendTaskKey(nil, id))
			}
		}
		return nil
	})
}
