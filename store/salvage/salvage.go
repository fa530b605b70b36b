package salvage

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/records"
)

// Bounds of what is in memory at once.
const (
	batchBytes = 16 << 20
	batchTasks = 10_000
)

// Fill fills to, which is new and empty, and calls found for everything that it leaves out or
// cannot restore as it was. now is when queues were made that are not known otherwise. The new
// store has the epoch of the old one: the caller begins a new one before anybody serves it.
//
// The error is a *store.DamagedError if no task and no workspace can be read although there may
// have been some, or one of writing to to. Then to is of no use.
func Fill(
	ctx context.Context, from *boltstore.Remains, to store.Store, now lease.Wall, found func(Item),
) (Report, error) {
	s := &salvager{
		ctx:       ctx,
		from:      from,
		to:        to,
		now:       now,
		found:     found,
		report:    Report{Tasks: map[lease.State]uint64{}},
		bad:       map[lease.TaskID]string{},
		badSpecs:  map[lease.TaskID]struct{}{},
		parts:     map[lease.TaskID][]Item{},
		named:     map[lease.TaskID]struct{}{},
		mentioned: map[lease.TaskID]struct{}{},
		waiting:   map[string]struct{}{},
		spaces:    map[uint32]*records.Space{},
		last:      map[uint32]uint64{},
		queues:    map[queueName]*records.Queue{},
	}
	for ks := range s.gaps {
		s.gaps[ks] = slices.Clone(from.Keyspace(store.Keyspace(ks)).Gaps)
	}
	for _, b := range from.Keyspace(store.Spec).Broken {
		if !b.KeyCertain {
			s.gaps[store.Spec] = append(s.gaps[store.Spec], b.Gap)
		}
	}
	s.metaLost = len(s.gaps[store.Meta]) > 0
	for _, step := range []func() error{
		s.copy, s.judgeBroken, s.loadSpaces, s.loadKeys, s.tasks, s.orphans, s.lateResults, s.nameTheRest,
		s.ledgers, s.olderKeys, s.putQueues, s.putSpaces, s.putMeta,
	} {
		if err := errors.Join(step(), s.commit()); err != nil {
			return s.report, err
		}
	}
	s.report.Unknown = from.Older() != "" || len(s.gaps[store.Spec]) > 0
	if s.isNothing() {
		return s.report, &store.DamagedError{Path: from.Path(), Problem: "no task and no workspace in it can be read"}
	}
	return s.report, nil
}

// isNothing reports whether the new store has no task and no workspace, although the damage may
// have hidden some. Such a store would be worth nothing to anybody.
func (s *salvager) isNothing() bool {
	spaces := s.from.Keyspace(store.Space)
	hidden := s.report.LeftOut > 0 || s.report.Unknown || len(spaces.Gaps)+len(spaces.Broken) > 0
	return s.report.Total == 0 && len(s.spaces) == 0 && hidden
}

type salvager struct {
	ctx    context.Context
	from   *boltstore.Remains
	to     store.Store
	now    lease.Wall
	found  func(Item)
	report Report
	b      store.Batch

	broken    []boltstore.Broken
	gaps      [store.NumKeyspaces][]boltstore.Gap // in which records of tasks may be missing
	bad       map[lease.TaskID]string             // why they are left out
	badSpecs  map[lease.TaskID]struct{}           // of broken specifications whose keys may be wrong
	parts     map[lease.TaskID][]Item             // damaged parts without which they are kept
	named     map[lease.TaskID]struct{}           // left out, and told so
	mentioned map[lease.TaskID]struct{}           // by an index, and their specification may be missing
	waiting   map[string]struct{}                 // keys in Ready and Parked, if a lease may be missing

	spaces   map[uint32]*records.Space
	rebuilt  []*records.Space  // those of them whose record is damaged or missing
	last     map[uint32]uint64 // last sequence in each space
	lastRead lease.Instant     // the latest reading of the serving clock
	metaLost bool              // a record of Meta may be missing or is damaged
	epoch    uint32            // of the store; 0: it cannot be read
	seen     uint32            // the highest epoch that leases and ids of tasks prove
	keys     *keyindex.Index
	queues   map[queueName]*records.Queue // recounted
}

type queueName struct {
	space uint32
	name  string
}

func (s *salvager) commit() error {
	if s.b.Len() == 0 {
		return nil
	}
	err := s.to.Commit(s.ctx, &s.b)
	s.b.Reset()
	return err
}

// copy copies all records that are sound by themselves and cannot be computed.
func (s *salvager) copy() error {
	err := s.from.Records(func(ks store.Keyspace, key, value []byte, inOrder bool) error {
		switch {
		case ks.Index():
			s.hint(ks, key)
			return nil
		case ks == store.TimerLog, ks == store.Line:
			return nil
		case ks == store.Meta && (string(key) == store.MetaFormat || string(key) == store.MetaPosition):
			// the new store has the newest format, and no standby
			return nil
		}
		if corrupt, ok := errors.AsType[*store.CorruptError](records.CheckRecord(ks, key, value)); ok {
			s.addBroken(boltstore.Broken{Keyspace: ks, Key: key, KeyCertain: true}, corrupt.Problem)
			return nil
		}
		if !inOrder {
			twice, err := s.hasOther(ks, key, value)
			if twice {
				s.addBroken(boltstore.Broken{Keyspace: ks, Key: key, KeyCertain: true},
					"it is there twice, with different contents")
				s.b.Delete(ks, key)
			}
			if twice || err != nil {
				return err
			}
		}
		s.b.Put(ks, key, value)
		if s.b.Bytes() < batchBytes {
			return nil
		}
		return s.commit()
	})
	return err
}

// hasOther reports whether the new store has another value under a key.
func (s *salvager) hasOther(ks store.Keyspace, key, value []byte) (other bool, err error) {
	if err := s.commit(); err != nil {
		return false, err
	}
	err = s.to.View(func(r store.Reader) error {
		has := r.Get(ks, key)
		other = has != nil && !bytes.Equal(has, value)
		return nil
	})
	return other, err
}

// hint remembers of an index entry what cannot be known otherwise, if records are missing.
func (s *salvager) hint(ks store.Keyspace, key []byte) {
	if ks == store.Ready || ks == store.Parked {
		if len(s.from.Keyspace(store.Lease).Gaps)+len(s.from.Keyspace(store.Lease).Broken) > 0 {
			s.waiting[string(key)] = struct{}{}
		}
	}
	if len(s.gaps[store.Spec]) == 0 {
		return
	}
	if id, ok := store.TaskOf(ks, key); ok && s.inGap(s.gaps[store.Spec], store.AppendTaskKey(nil, id)) {
		if k, err := store.ParseTimerKey(key); ks == store.Timer && (err != nil || k.Clock == store.ServingClock) {
			return // it may be the one that ends the ledger of a task that was deleted
		}
		s.mentioned[id] = struct{}{}
	}
}

func (*salvager) inGap(gaps []boltstore.Gap, key []byte) bool {
	for _, g := range gaps {
		if g.Holds(key) {
			return true
		}
	}
	return false
}

// each calls fn with each key of a keyspace of the new store; fn may add changes to the batch,
// which are committed now and then.
func (s *salvager) each(ks store.Keyspace, fn func(r store.Reader, key []byte) error) error {
	for from := []byte{}; from != nil; {
		at := from
		from = nil
		n := 0
		var failed error
		err := s.to.View(func(r store.Reader) error {
			return r.Scan(ks, at, nil, func(key, _ []byte) bool {
				if n++; n > batchTasks || s.b.Bytes() > batchBytes {
					from = bytes.Clone(key)
					return false
				}
				failed = fn(r, key)
				return failed == nil
			})
		})
		if err := errors.Join(failed, err, s.commit()); err != nil {
			return err
		}
	}
	return nil
}
