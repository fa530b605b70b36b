package records

import (
	"math"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Task reads the newest committed version of a task, without its payload; nil if there is no such
// task.
func Task(r store.Reader, id lease.TaskID) (*lease.Task, error) {
	var space [16]byte
	key := store.AppendTaskKey(space[:0], id)
	return taskOfSpec(r, id, key, r.Get(store.Spec, key))
}

// taskOfSpec is Task for a caller that has read the spec record already.
func taskOfSpec(r store.Reader, id lease.TaskID, key, spec []byte) (*lease.Task, error) {
	t, err := taskWithoutLease(r, id, key, spec, withoutPayload)
	if t == nil {
		return nil, err
	}
	if t.Lease, err = read(r, store.Lease, key, leaseFields); err != nil {
		return nil, err
	}
	return t, nil
}

// TaskWithoutLease reads a task as Task does, but reads no lease: the caller knows that the task
// has none. It also reads the payload if that is small (SmallPayload).
func TaskWithoutLease(r store.Reader, id lease.TaskID) (*lease.Task, error) {
	var space [16]byte
	key := store.AppendTaskKey(space[:0], id)
	return taskWithoutLease(r, id, key, r.Get(store.Spec, key), withSmallPayload)
}

// taskWithoutLease reads a task without its lease; spec is its spec record, or nil if there is
// none. If the task has a record of its present state, that record replaces the first state, which
// the spec record contains. taskWithoutLease returns nil if the task does not exist.
func taskWithoutLease(
	r store.Reader, id lease.TaskID, key, spec []byte, fields func(*codec, *lease.Task),
) (*lease.Task, error) {
	changed := r.Get(store.Task, key)
	switch {
	case spec == nil && changed == nil:
		return nil, nil
	case spec == nil:
		return nil, store.Corrupt(store.Spec, key, "a task has no spec")
	}
	t := &lease.Task{ID: id, Spec: new(lease.Spec)}
	if err := decode(store.Spec, key, spec, t, fields); err != nil {
		return nil, err
	}
	switch {
	case changed == nil && specHasState(spec[0]): // spec[0] is the version, see store.Batch.PutSealed
		return t, nil
	case changed == nil:
		return nil, store.Corrupt(store.Task, key, "a task has no state")
	}
	if err := decode(store.Task, key, changed, t, taskFields); err != nil {
		return nil, err
	}
	return t, nil
}

// readSpec reads the spec record under key into t; found is false if there is none.
func readSpec(r store.Reader, key []byte, t *lease.Task, fields func(*codec, *lease.Task)) (found bool, err error) {
	value := r.Get(store.Spec, key)
	if value == nil {
		return false, nil
	}
	t.Spec = new(lease.Spec)
	return true, decode(store.Spec, key, value, t, fields)
}

// Payload reads the payload of a task. It is nil if there is no such task, and empty but not nil if
// the task has no payload.
func Payload(r store.Reader, id lease.TaskID) ([]byte, error) {
	var t lease.Task
	found, err := readSpec(r, store.AppendTaskKey(nil, id), &t, withPayload)
	if err != nil || !found {
		return nil, err
	}
	return t.Spec.Payload, nil
}

// Tasks calls fn with the tasks of a space whose sequence is greater than after, in order, until fn
// returns false. If run is not empty, it leaves out the tasks of other runs and of none that it
// need not read. Those that it has to read, it passes to fn, so that fn can limit how many it
// reads: see store.OlderTasks.
func Tasks(r store.Reader, space uint32, run string, after uint64, fn func(*lease.Task) bool) error {
	if run != "" {
		return tasksOfRun(r, space, run, after, fn)
	}
	return allTasks(r, r.Scan, space, after, math.MaxUint64, fn)
}

// TasksBack is Tasks in reverse order, the newest task first: it calls fn with those whose sequence
// is less than before, or with all if before is 0.
func TasksBack(r store.Reader, space uint32, run string, before uint64, fn func(*lease.Task) bool) error {
	if run != "" {
		return tasksOfRunBack(r, space, run, lastBefore(before), fn)
	}
	return allTasks(r, r.ScanBack, space, 0, lastBefore(before), fn)
}

// lastBefore returns the highest sequence that is less than before, of all if before is 0.
func lastBefore(before uint64) uint64 { return before - 1 }

// allTasks calls fn with the tasks of a space, of all runs, whose sequence is greater than after
// and at most last.
func allTasks(r store.Reader, in order, space uint32, after, last uint64, fn func(*lease.Task) bool) error {
	from, to := taskKeys(space, after, last)
	return scanIn(in, store.Spec, from, to, func(key, spec []byte) (bool, error) {
		id, err := store.ParseTaskKey(store.Spec, key)
		if err != nil {
			return false, err
		}
		t, err := taskOfSpec(r, id, key, spec)
		return err == nil && fn(t), err
	})
}

// LeasedTasks calls fn with every task that has a live lease.
func LeasedTasks(r store.Reader, fn func(*lease.Task) error) error {
	return leasedTasks(r, r.Scan, nil, nil, func(t *lease.Task) (bool, error) { return true, fn(t) })
}

// LeasedTasksOf is Tasks for those with a live lease, of all runs. It reads no others.
func LeasedTasksOf(r store.Reader, space uint32, after uint64, fn func(*lease.Task) bool) error {
	from, to := taskKeys(space, after, math.MaxUint64)
	return leasedTasks(r, r.Scan, from, to, func(t *lease.Task) (bool, error) { return fn(t), nil })
}

// LeasedTasksBackOf is TasksBack for those with a live lease, of all runs. It reads no others.
func LeasedTasksBackOf(r store.Reader, space uint32, before uint64, fn func(*lease.Task) bool) error {
	from, to := taskKeys(space, 0, lastBefore(before))
	return leasedTasks(r, r.ScanBack, from, to, func(t *lease.Task) (bool, error) { return fn(t), nil })
}

// taskKeys returns the range of keys, as a scan takes it, of the tasks of a space whose sequence is
// greater than after and at most last. Keys without the form of their keyspace are in it, too, so
// that they are noticed.
func taskKeys(space uint32, after, last uint64) (from, to []byte) {
	from = append(store.AppendTaskKey(nil, lease.TaskID{Space: space, Seq: after}), 0)
	return from, store.PrefixEnd(store.AppendTaskKey(nil, lease.TaskID{Space: space, Seq: last}))
}

// leasedTasks calls fn with the tasks that have a live lease and a key in [from, to), until fn
// returns false.
func leasedTasks(r store.Reader, in order, from, to []byte, fn func(*lease.Task) (bool, error)) error {
	return scanIn(in, store.Lease, from, to, func(key, _ []byte) (bool, error) {
		id, err := store.ParseTaskKey(store.Lease, key)
		if err != nil {
			return false, err
		}
		t, err := taskOfKey(r, id, store.Lease, key, "a lease has no task")
		if err != nil {
			return false, err
		}
		return fn(t)
	})
}

// taskOfKey reads a task whose id is part of a key of another keyspace. If the task does not exist,
// that key is corrupt, and missing is the problem.
func taskOfKey(r store.Reader, id lease.TaskID, ks store.Keyspace, key []byte, missing string) (*lease.Task, error) {
	t, err := Task(r, id)
	if err == nil && t == nil {
		err = store.Corrupt(ks, key, missing)
	}
	return t, err
}

// order is the order of a scan: Scan or ScanBack of a Reader.
type order func(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error

// scan is Reader.Scan with a callback that may fail.
func scan(r store.Reader, ks store.Keyspace, from, to []byte, fn func(key, value []byte) (bool, error)) error {
	return scanIn(r.Scan, ks, from, to, fn)
}

// scanIn is scan in an order.
func scanIn(in order, ks store.Keyspace, from, to []byte, fn func(key, value []byte) (bool, error)) error {
	var failed error
	err := in(ks, from, to, func(key, value []byte) bool {
		var more bool
		more, failed = fn(key, value)
		return more && failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// each calls fn with every record of a keyspace. named sets the fields of a record that are in its
// key.
func each[T any](
	r store.Reader, ks store.Keyspace, fields func(*codec, *T), named func(key []byte, v *T) error, fn func(T) error,
) error {
	return scan(r, ks, nil, nil, func(key, value []byte) (bool, error) {
		var v T
		if err := decode(ks, key, value, &v, fields); err != nil {
			return false, err
		}
		if err := named(key, &v); err != nil {
			return false, err
		}
		return true, fn(v)
	})
}
