package verify

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// checkOwners checks that the task of each record that belongs to a task exists.
func (v *verifier) checkOwners() error {
	for _, ks := range store.TaskParts {
		err := v.eachTask(ks, func(_ lease.TaskID, key []byte) error {
			v.require(v.has(store.Spec, key), ks, key, "its task does not exist")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return v.each(store.Discarded, func(key []byte) error {
		id, attempt, err := store.ParseAttemptKey(store.Discarded, key)
		if err != nil {
			return nil
		}
		t, err := v.task(id)
		keeps := t != nil && t.KeepsResultOf(attempt)
		v.require(keeps || err != nil, store.Discarded, key, "no task keeps this result (V15)")
		return ignoreCorrupt(err)
	})
}

// task reads the task of an id that a record contains; nil if there is no such task.
func (v *verifier) task(id lease.TaskID) (*lease.Task, error) { return records.Task(v.r, id) }

// checkIndexes checks that the task of each index entry exists, and that the present version of the
// task has this entry.
func (v *verifier) checkIndexes() error {
	v.deleted = map[lease.TaskID]struct{}{}
	for ks, parse := range map[store.Keyspace]func(key []byte) (lease.TaskID, error){
		store.Ready: func(key []byte) (lease.TaskID, error) {
			k, err := store.ParseReadyKey(key)
			return k.Task(), err
		},
		store.Parked: func(key []byte) (lease.TaskID, error) {
			k, err := store.ParseParkedKey(key)
			return k.Task(), err
		},
		store.Timer: func(key []byte) (lease.TaskID, error) {
			k, err := store.ParseTimerKey(key)
			return k.Task, err
		},
	} {
		err := v.each(ks, func(key []byte) error {
			id, err := parse(key)
			if err != nil {
				return nil
			}
			return v.checkEntry(ks, key, id)
		})
		if err != nil {
			return err
		}
	}
	if err := v.each(store.Run, v.checkRun); err != nil {
		return err
	}
	return v.each(store.Mounted, v.checkMounted)
}

func (v *verifier) checkEntry(ks store.Keyspace, key []byte, id lease.TaskID) error {
	t, err := v.task(id)
	switch {
	case err != nil:
		return ignoreCorrupt(err)
	case t == nil && ks == store.Timer && key[0] == byte(store.ServingClock) && v.mayHaveExisted(id):
		// the timer that removes its ledger (A10)
		v.deleted[id] = struct{}{}
		return nil
	case t == nil:
		v.addFinding(ks, key, "task %v does not exist", id)
		return nil
	}
	e, has := records.Index(t)
	has = has && e.Keyspace == ks && string(e.Key()) == string(key)
	for _, k := range records.WaitingTimers(t) {
		has = has || ks == store.Timer && string(k.Append(nil)) == string(key)
	}
	v.require(has, ks, key, "task %v is %v and has no such entry", id, t.State())
	return nil
}

// mayHaveExisted reports whether a task with that id can have existed.
func (v *verifier) mayHaveExisted(id lease.TaskID) bool {
	if s := v.spaces[id.Space]; s != nil {
		return id.Seq < s.NextSeq
	}
	return v.mayBeSpace(id.Space)
}

func (v *verifier) checkRun(key []byte) error {
	group, id, err := store.ParseGroupKey(store.Run, key)
	switch {
	case err != nil:
		return nil
	case group == store.OlderTasks:
		v.require(v.mayHaveExisted(id), store.Run, key, "the older tasks end at task %v, which has never existed", id)
		return nil
	}
	t, err := v.task(id)
	v.require(err != nil || t != nil && string(records.RunKey(t)) == string(key), store.Run, key,
		"task %v is of another run", id)
	return ignoreCorrupt(err)
}

func (v *verifier) checkMounted(key []byte) error {
	_, id, err := store.ParseGroupKey(store.Mounted, key)
	if err != nil {
		return nil
	}
	t, err := v.task(id)
	v.require(err != nil || t != nil && string(records.MountedKey(t)) == string(key), store.Mounted, key,
		"task %v is not mounted there", id)
	return ignoreCorrupt(err)
}

// checkOlderKeys checks that the task of each idempotency key in Idempotency exists and has this
// key (T1). In KeyLog and KeySegment, those of removed tasks remain for a while.
func (v *verifier) checkOlderKeys() error {
	return v.each(store.Idempotency, func(key []byte) error {
		space, name, err := store.ParseNameKey(store.Idempotency, key)
		if err != nil {
			return nil
		}
		id, _, _, err := records.OlderTaskByKey(v.r, space, name)
		if err != nil {
			return ignoreCorrupt(err)
		}
		t, err := v.task(id)
		v.require(err != nil || t != nil && t.Spec.IdempotencyKey == name, store.Idempotency, key,
			"key %q leads to task %v, which has another key (T1)", name, id)
		return ignoreCorrupt(err)
	})
}
