package records

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// This file has the names by which several tasks are found: runs, and the hosts on which tasks are
// mounted. Idempotency keys are in keys.go.

// RunKey returns the key of a task in Run; nil if the task belongs to no run.
func RunKey(t *lease.Task) []byte {
	if t.Spec.RunID == "" {
		return nil
	}
	return store.AppendGroupKey(nil, keyID(t.Spec.RunID), t.ID)
}

// tasksOfRun is Tasks for the tasks of one run.
func tasksOfRun(r store.Reader, space uint32, run string, after uint64, fn func(*lease.Task) bool) error {
	older, err := OlderTasks(r, space)
	if err != nil {
		return err
	}
	if after < older {
		more := true
		err := allTasks(r, r.Scan, space, after, older, func(t *lease.Task) bool { more = fn(t); return more })
		if err != nil || !more {
			return err
		}
		after = older
	}
	return tasksOfGroup(r, r.Scan, group{store.Run, space, keyID(run)}, after, math.MaxUint64, fn)
}

// tasksOfRunBack is tasksOfRun in reverse order, from the task with the sequence last on.
func tasksOfRunBack(r store.Reader, space uint32, run string, last uint64, fn func(*lease.Task) bool) error {
	older, err := OlderTasks(r, space)
	if err != nil {
		return err
	}
	more := true
	err = tasksOfGroup(r, r.ScanBack, group{store.Run, space, keyID(run)}, older, last,
		func(t *lease.Task) bool { more = fn(t); return more })
	if err != nil || !more {
		return err
	}
	return allTasks(r, r.ScanBack, space, 0, min(older, last), fn)
}

// group is a group of tasks of a space in Run or Mounted. Another run or host may have the same
// number.
type group struct {
	ks     store.Keyspace
	space  uint32
	number uint64
}

// tasksOfGroup calls fn with the tasks of a group whose sequence is greater than after and at most
// last, until fn returns false.
func tasksOfGroup(r store.Reader, in order, g group, after, last uint64, fn func(*lease.Task) bool) error {
	from := append(store.AppendGroupKey(nil, g.number, lease.TaskID{Space: g.space, Seq: after}), 0)
	to := store.PrefixEnd(store.AppendGroupKey(nil, g.number, lease.TaskID{Space: g.space, Seq: last}))
	return scanIn(in, g.ks, from, to, func(key, _ []byte) (bool, error) {
		_, id, err := store.ParseGroupKey(g.ks, key)
		if err != nil {
			return false, err
		}
		t, err := taskOfKey(r, id, g.ks, key, "its task does not exist")
		return err == nil && fn(t), err
	})
}

// OlderTasks returns the sequence of the task of a space up to which tasks may be missing in Run; 0
// if all are there. See store.OlderTasks.
func OlderTasks(r store.Reader, space uint32) (last uint64, err error) {
	from := store.AppendGroupPrefix(nil, space, store.OlderTasks)
	err = scan(r, store.Run, from, store.PrefixEnd(from), func(key, _ []byte) (bool, error) {
		_, id, err := store.ParseGroupKey(store.Run, key)
		last = id.Seq
		return true, err
	})
	return last, err
}

// HostID returns the number that stands for a host of a run in keys, as LineID does for a line.
func HostID(run, host string) uint64 {
	var space [512]byte
	b := append(binary.AppendUvarint(space[:0], uint64(len(run))), run...)
	sum := sha256.Sum256(append(b, host...))
	return binary.BigEndian.Uint64(sum[:])
}

// MountedKey returns the key of a task in Mounted; nil if the task is not mounted.
func MountedKey(t *lease.Task) []byte {
	if trace := t.Spec.Trace; trace != nil && trace.Host != "" {
		return store.AppendGroupKey(nil, HostID(t.Spec.RunID, trace.Host), t.ID)
	}
	return nil
}

// Mounted calls fn with the tasks of a run that are mounted on a host, in the order of their
// submit, until fn returns false.
func Mounted(r store.Reader, space uint32, run, host string, fn func(*lease.Task) bool) error {
	return tasksOfGroup(r, r.Scan, group{store.Mounted, space, HostID(run, host)}, 0, math.MaxUint64, func(t *lease.Task) bool {
		other := t.Spec.RunID != run || t.Spec.Trace == nil || t.Spec.Trace.Host != host
		return other || fn(t)
	})
}
