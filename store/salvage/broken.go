package salvage

import (
	"fmt"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

const badSeal = "the checksum does not match"

// judgeBroken decides what the damage means that the file shows: which tasks are left out, and what
// else is.
func (s *salvager) judgeBroken() error {
	if older := s.from.Older(); older != "" {
		s.found(Item{Kind: KindCommit, Reason: older + ": what was acknowledged last may be missing, so that tasks that ended then run again"})
	}
	for ks := range store.Keyspace(store.NumKeyspaces) {
		state := s.from.Keyspace(ks)
		if tellsGaps(ks) {
			for _, g := range state.Gaps {
				s.found(Item{Kind: KindRecords, Name: ks.String(), Reason: rangeText(ks, g.After, g.Before)})
			}
		}
		for _, b := range state.Broken {
			certain, err := s.addUncertain(b)
			if err != nil {
				return err
			}
			if !certain {
				s.tellUncertain(ks, b.Key)
				continue
			}
			s.addBroken(b, badSeal)
		}
	}
	return nil
}

// tellsGaps reports whether what is missing in a keyspace may be missing in the new store as well,
// and be named nowhere else.
func tellsGaps(ks store.Keyspace) bool {
	switch ks {
	case store.TimerLog, store.Line, store.KeyLog, store.KeySegment, store.Idempotency:
		return false
	}
	return !ks.Index()
}

// addUncertain reports whether a broken record is that of its key. If nobody knows, a specification
// is that of its key only if something else tells of the task, and another record that decides
// something only if the task exists and the key is between those around it. Otherwise a state or a
// lease may be missing in any task of the gap.
func (s *salvager) addUncertain(b boltstore.Broken) (certain bool, err error) {
	if b.KeyCertain {
		return true, nil
	}
	id, ok := store.TaskOf(b.Keyspace, b.Key)
	switch b.Keyspace {
	case store.Spec:
		if ok {
			s.badSpecs[id] = struct{}{}
		}
		return true, nil
	case store.Task, store.Lease, store.Output, store.Checkpoint:
		err = s.to.View(func(r store.Reader) error {
			certain = ok && !b.KeyWrong && b.Gap.Holds(b.Key) && r.Get(store.Spec, b.Key) != nil
			return nil
		})
		if !certain {
			s.gaps[b.Keyspace] = append(s.gaps[b.Keyspace], b.Gap)
		}
		return certain, err
	}
	return partKinds[b.Keyspace] == "", nil
}

// tellUncertain tells of a broken record of which nobody knows whose it is.
func (s *salvager) tellUncertain(ks store.Keyspace, key []byte) {
	of := fmt.Sprintf("%x", key)
	if id, ok := store.TaskOf(ks, key); ok {
		of = id.String()
	}
	s.found(Item{
		Kind: KindRecords, Name: ks.String(),
		Reason: badSeal + " under the key of " + of + ", which may be that of another one",
	})
}

// addBroken notes what a damaged record costs. The new store does not have it.
func (s *salvager) addBroken(b boltstore.Broken, problem string) {
	ks, key := b.Keyspace, b.Key
	switch ks {
	case store.Spec, store.Task, store.Lease, store.Output, store.Checkpoint:
		if id, ok := store.TaskOf(ks, key); ok {
			if _, uncertain := s.badSpecs[id]; uncertain && ks == store.Spec {
				return
			}
			if s.bad[id] == "" {
				s.bad[id] = noun(ks) + ": " + problem
			}
			return
		}
	case store.Failure, store.Feedback, store.Ledger, store.Discarded:
		if id, ok := store.TaskOf(ks, key); ok {
			s.parts[id] = append(s.parts[id], Item{Kind: partKinds[ks], Task: id, Reason: problem})
			return
		}
	case store.Meta:
		s.metaLost = true
		if string(key) == store.MetaBackups {
			s.found(Item{Kind: KindBackups, Reason: problem})
		}
		return // putMeta tells of the others
	case store.Space, store.Settings:
		s.broken = append(s.broken, b) // told when the workspaces are known
		return
	case store.SigningKey:
		if tenant, id, err := store.ParseTenantKey(ks, key); err == nil {
			s.found(Item{
				Kind: KindSigningKey, Tenant: tenant, Name: id,
				Reason: problem + "; tokens that it signed are refused",
			})
			return
		}
	case store.Token:
		if tenant, id, err := store.ParseTenantKey(ks, key); err == nil {
			s.found(Item{
				Kind: KindToken, Tenant: tenant, Name: id,
				Reason: problem + "; a token is refused now, but a certificate that was revoked is valid again",
			})
			return
		}
	case store.Audit:
		if k, err := store.ParseAuditKey(key); err == nil {
			s.found(Item{
				Kind: KindAudit, Tenant: k.Tenant,
				Name: k.At.Time().UTC().Format("2006-01-02T15:04:05Z"), Reason: problem,
			})
			return
		}
	default: // what is computed anew, or of no use any more; a lost idempotency key is noticed with its task
		return
	}
	s.found(Item{Kind: KindRecords, Name: ks.String(), Reason: fmt.Sprintf("key %x: %s", key, problem)})
}
