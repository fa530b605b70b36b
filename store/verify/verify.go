package verify

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/records"
)

// Finding is one problem of a record.
type Finding struct {
	Keyspace store.Keyspace
	Key      []byte
	Problem  string
}

// Task returns the task that the finding is about, if its key begins with the id of a task.
func (f Finding) Task() (id lease.TaskID, ok bool) {
	switch f.Keyspace {
	case store.Spec, store.Task, store.Lease, store.Output, store.Failure, store.Feedback, store.Checkpoint:
		id, err := store.ParseTaskKey(f.Keyspace, f.Key)
		return id, err == nil
	case store.Ledger, store.Discarded:
		id, _, err := store.ParseAttemptKey(f.Keyspace, f.Key)
		return id, err == nil
	}
	return id, false
}

// Summary counts what was checked.
type Summary struct {
	Epoch   uint32
	Records uint64
	Tasks   uint64
	Leases  uint64
}

// Store checks all records of r and calls found for each problem, in no particular order. An error
// means that reading failed; then Store has not checked the rest.
func Store(r store.Reader, found func(Finding)) (Summary, error) {
	v := &verifier{
		r:      r,
		report: found,
		queues: map[string]*records.Queue{},
		spaces: map[uint32]*records.Space{},
		unread: map[uint32]uint64{},
	}
	for _, check := range []func() error{
		v.checkRecords, v.checkMeta, v.loadSpaces, v.loadKeys, v.loadTimers, v.checkTasks, v.checkOwners,
		v.checkIndexes, v.checkOlderKeys, v.checkLedgers, v.checkCounters,
	} {
		if err := check(); err != nil {
			return v.sum, err
		}
	}
	return v.sum, nil
}

type verifier struct {
	r      store.Reader
	report func(Finding)
	sum    Summary

	spaces       map[uint32]*records.Space
	damagedSpace bool                      // a workspace cannot be read, so nobody knows its number
	queues       map[string]*records.Queue // recounted, by key in Queue
	// unread is the number of tasks in each space that cannot be read, so nobody knows how their
	// queues count them.
	unread      map[uint32]uint64
	deleted     map[lease.TaskID]struct{}   // tasks whose ledger a timer will remove
	byKey       *keyindex.Index             // of those entries that can be read
	damagedKeys bool                        // others cannot
	logged      map[store.TimerKey]struct{} // timers in TimerLog
	damagedLog  bool                        // others there cannot be read
}

func (v *verifier) addFinding(ks store.Keyspace, key []byte, format string, args ...any) {
	v.report(Finding{Keyspace: ks, Key: bytes.Clone(key), Problem: fmt.Sprintf(format, args...)})
}

// require reports a problem if ok is false.
func (v *verifier) require(ok bool, ks store.Keyspace, key []byte, format string, args ...any) {
	if !ok {
		v.addFinding(ks, key, format, args...)
	}
}

// ignoreCorrupt returns the error of reading a record, or nil if the error is a
// *store.CorruptError: v.checkRecords has already reported corrupt records.
func ignoreCorrupt(err error) error {
	if _, corrupt := errors.AsType[*store.CorruptError](err); corrupt {
		return nil
	}
	return err
}

// readable is a reader whose Scan leaves out records that cannot be read; v.checkRecords has
// already reported them. Without it, a scan of package records would end at the first of them.
type readable struct{ store.Reader }

func (r readable) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return r.Reader.Scan(ks, from, to, func(key, value []byte) bool {
		return records.CheckRecord(ks, key, value) != nil || fn(key, value)
	})
}

// checkRecords checks each record by itself.
func (v *verifier) checkRecords() error {
	for ks := range store.Keyspace(store.NumKeyspaces) {
		err := v.r.Scan(ks, nil, nil, func(key, value []byte) bool {
			v.sum.Records++
			if corrupt, ok := errors.AsType[*store.CorruptError](records.CheckRecord(ks, key, value)); ok {
				v.addFinding(ks, key, "%s", corrupt.Problem)
				v.damagedSpace = v.damagedSpace || ks == store.Space
				v.damagedKeys = v.damagedKeys || ks == store.KeyLog || ks == store.KeySegment
				v.damagedLog = v.damagedLog || ks == store.TimerLog
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMeta checks the identity and the serving clock, which every store has that a coordinator
// ever served.
func (v *verifier) checkMeta() error {
	identity, named, err := records.ReadIdentity(v.r)
	if err != nil {
		return ignoreCorrupt(err)
	}
	v.sum.Epoch = identity.Epoch
	served := false
	err = v.r.Scan(store.Space, nil, nil, func(_, _ []byte) bool { served = true; return false })
	v.require(named || !served, store.Meta, []byte(store.MetaIdentity),
		"there are workspaces, but no key that signs their leases")
	// Without it, the clock would begin at 0 again, and every lease would live on for as long as
	// the coordinator has served (A3).
	v.require(v.has(store.Meta, []byte(store.MetaClock)) || !served, store.Meta, []byte(store.MetaClock),
		"there are workspaces, but no serving clock")
	v.require(!named || identity.Epoch > 0, store.Meta, []byte(store.MetaIdentity), "the epoch is 0")
	return err
}

// loadSpaces reads all workspaces and checks that their numbers differ.
func (v *verifier) loadSpaces() error {
	return records.Spaces(readable{v.r}, func(s records.Space) error {
		key := store.AppendTenantKey(nil, s.Tenant, s.Workspace)
		other := v.spaces[s.Number]
		v.require(other == nil, store.Space, key, "its number %d also belongs to another workspace", s.Number)
		v.spaces[s.Number] = &s
		return nil
	})
}

// loadKeys reads the index of idempotency keys, with all filters.
func (v *verifier) loadKeys() (err error) {
	r := readable{v.r}
	if v.byKey, err = keyindex.Load(r, keyindex.DefaultSegmentSize); err != nil {
		return err
	}
	for _, segment := range v.byKey.Unread() {
		f, err := keyindex.ReadFilter(func(fn func(store.Reader) error) error { return fn(r) }, segment)
		if err != nil {
			return err
		}
		v.byKey.SetFilter(f)
	}
	return nil
}

// loadTimers reads TimerLog.
func (v *verifier) loadTimers() error {
	v.logged = map[store.TimerKey]struct{}{}
	return records.TimerLog(readable{v.r}, func(_ uint64, all []store.TimerKey) {
		for _, k := range all {
			v.logged[k] = struct{}{}
		}
	})
}

// mayBeSpace reports whether a workspace may have that number.
func (v *verifier) mayBeSpace(number uint32) bool { return v.spaces[number] != nil || v.damagedSpace }

// eachTask calls fn with each key of a keyspace whose keys are task ids. It skips keys of another
// form, which v.checkRecords has reported.
func (v *verifier) eachTask(ks store.Keyspace, fn func(id lease.TaskID, key []byte) error) error {
	return v.each(ks, func(key []byte) error {
		id, err := store.ParseTaskKey(ks, key)
		if err != nil {
			return nil
		}
		return fn(id, key)
	})
}

// each calls fn with each key of a keyspace.
func (v *verifier) each(ks store.Keyspace, fn func(key []byte) error) error {
	return v.eachIn(ks, nil, nil, fn)
}

// eachIn is each for the keys in [from, to).
func (v *verifier) eachIn(ks store.Keyspace, from, to []byte, fn func(key []byte) error) error {
	var failed error
	err := v.r.Scan(ks, from, to, func(key, _ []byte) bool {
		failed = fn(key)
		return failed == nil
	})
	return errors.Join(failed, err)
}

func (v *verifier) has(ks store.Keyspace, key []byte) bool { return v.r.Get(ks, key) != nil }
