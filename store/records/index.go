package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Entry is one key of an index without values. Entries compare with ==.
type Entry struct {
	Keyspace store.Keyspace
	key      [maxIndexKey]byte
	size     int
}

// maxIndexKey is the length of the longest of the keys in Ready, Parked and Timer.
const maxIndexKey = 40

// Key of the entry, part of e.
func (e *Entry) Key() []byte { return e.key[:e.size] }

// maxEntries is how many entries a task may have: its place in line, and its next timer on either clock.
const maxEntries = 3

// Index lists the entries of a version of a task in the indexes of waiting tasks and of timers, computed from this version alone; nil has none. A leased
// task has none either: its timers change with every heartbeat, and follow from its lease.
func Index(t *lease.Task) []Entry { return index(nil, t) }

// index appends to all.
func index(all []Entry, t *lease.Task) []Entry {
	if t == nil || t.Lease != nil {
		return all
	}
	if t.Rest == lease.Ready {
		all = append(all, place(t))
	}
	serving, wall := t.Due()
	if serving != 0 {
		all = append(all, entry(store.Timer, store.ServingTimer(serving, t.ID)))
	}
	if wall != 0 {
		all = append(all, entry(store.Timer, store.WallTimer(wall, t.ID)))
	}
	return all
}

// place is where a READY task waits: in its line, or under its concurrency key.
func place(t *lease.Task) Entry {
	key := store.ReadyKey{Space: t.ID.Space, Line: LineID(t.Line()), Priority: t.Spec.Priority, Place: t.Place, Seq: t.ID.Seq}
	if t.Parked {
		return entry(store.Parked, store.ParkedKey{Key: KeyID(t.Spec.ConcurrencyKey), ReadyKey: key})
	}
	return entry(store.Ready, key)
}

func entry(ks store.Keyspace, key interface{ Append([]byte) []byte }) (e Entry) {
	e.Keyspace = ks
	e.size = len(key.Append(e.key[:0]))
	return e
}

// putIndex writes the difference between the entries of two versions.
func putIndex(b *store.Batch, before, after *lease.Task) {
	var space [2][maxEntries]Entry
	was, is := index(space[0][:0], before), index(space[1][:0], after)
	for i := range was {
		if !slices.Contains(is, was[i]) {
			b.Delete(was[i].Keyspace, was[i].Key())
		}
	}
	for i := range is {
		if !slices.Contains(was, is[i]) {
			b.Put(is[i].Keyspace, is[i].Key(), nil)
		}
	}
}

// LineID returns the name of a line in keys: the first 8 bytes of a SHA-256 over queue, type, fairness key and class. It must never change. The fixed
// length keeps the keys short, and keeps the keys of one line apart from those of others.
func LineID(l lease.Line) uint64 {
	n := namedLines.Get().(*namedLine)
	if n.line != l {
		n.line, n.id = l, hashLine(l)
	}
	id := n.id
	namedLines.Put(n)
	return id
}

// namedLine remembers the line that was named last: tasks that are written one after the other are mostly of one line, and the hash takes longer
// than all else in an entry.
type namedLine struct {
	line lease.Line
	id   uint64
}

var namedLines = sync.Pool{New: func() any { return &namedLine{id: hashLine(lease.Line{})} }}

func hashLine(l lease.Line) uint64 {
	var space [512]byte
	b := binary.AppendUvarint(space[:0], uint64(len(l.Queue)))
	b = append(b, l.Queue...)
	if l.Fairness != "" { // else as it was before there were any
		b = binary.AppendUvarint(b, uint64(len(l.Fairness)))
		b = append(b, l.Fairness...)
		b = append(b, 0)
	}
	b = append(b, l.Type...)
	if l.Class != "" { // else as it was before there were any; a type is UTF-8, which has no such byte
		b = append(b, 0xff)
		b = append(b, l.Class...)
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// KeyID returns the name of a concurrency key in keys, as LineID does for a line. If two concurrency keys had the same name, their parked tasks would lie
// together, and nothing else would happen.
func KeyID(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
}

// WaitingLines calls fn with every line in which a task waits. It reads one key and one spec of each line, however long the line is.
func WaitingLines(r store.Reader, fn func(space uint32, l lease.Line) error) error {
	return leaders(r, store.Ready, func(key []byte) (lease.TaskID, []byte, error) {
		k, err := store.ParseReadyKey(key)
		return k.Task(), store.AppendLinePrefix(nil, k.Space, k.Line), err
	}, func(t lease.TaskID, s *lease.Spec) error {
		return fn(t.Space, lineOf(s))
	})
}

// ParkedLines calls fn with every concurrency key under which a task is parked, once for each line of such tasks.
func ParkedLines(r store.Reader, fn func(space uint32, key string, l lease.Line) error) error {
	return leaders(r, store.Parked, func(key []byte) (lease.TaskID, []byte, error) {
		k, err := store.ParseParkedKey(key)
		return k.Task(), store.AppendParkedPrefix(nil, k.Space, k.Key, k.Line), err
	}, func(t lease.TaskID, s *lease.Spec) error {
		return fn(t.Space, s.ConcurrencyKey, lineOf(s))
	})
}

func lineOf(s *lease.Spec) lease.Line { return (&lease.Task{Spec: s}).Line() }

// leaders calls fn with the first task of each group of an index. parse tells a key's task, and what the keys of its group begin with.
func leaders(r store.Reader, ks store.Keyspace, parse func(key []byte) (lease.TaskID, []byte, error), fn func(lease.TaskID, *lease.Spec) error) error {
	for from := []byte{}; from != nil; {
		var first []byte
		err := r.Scan(ks, from, nil, func(key, _ []byte) bool {
			first = bytes.Clone(key)
			return false
		})
		if err != nil || first == nil {
			return err
		}
		id, group, err := parse(first)
		if err != nil {
			return err
		}
		var t lease.Task
		found, err := readSpec(r, store.AppendTaskKey(nil, id), &t, withoutPayload)
		switch {
		case err != nil:
			return err
		case !found:
			return corrupt(ks, first, "its task does not exist")
		}
		if err := fn(id, t.Spec); err != nil {
			return err
		}
		from = store.PrefixEnd(group)
	}
	return nil
}

// Ready calls fn with the places of a line behind after, in their order, until fn returns false. Of after, Space and Line are
// left to l.
func Ready(r store.Reader, space uint32, l lease.Line, after store.ReadyKey, fn func(store.ReadyKey) (bool, error)) error {
	after.Space, after.Line = space, LineID(l)
	from := append(after.Append(nil), 0)
	to := store.PrefixEnd(store.AppendLinePrefix(nil, space, after.Line))
	return scan(r, store.Ready, from, to, func(key, _ []byte) (bool, error) {
		k, err := store.ParseReadyKey(key)
		if err != nil {
			return false, err
		}
		return fn(k)
	})
}

// Parked calls fn with the places of a line's tasks that are parked under a concurrency key, behind after, in their order, until fn returns
// false. Of after, Space and Line are left to l.
func Parked(r store.Reader, space uint32, key string, l lease.Line, after store.ReadyKey, fn func(store.ReadyKey) bool) error {
	after.Space, after.Line = space, LineID(l)
	first := store.ParkedKey{Key: KeyID(key), ReadyKey: after}
	from := append(first.Append(nil), 0)
	to := store.PrefixEnd(store.AppendParkedPrefix(nil, space, first.Key, after.Line))
	return scan(r, store.Parked, from, to, func(key, _ []byte) (bool, error) {
		k, err := store.ParseParkedKey(key)
		return err == nil && fn(k.ReadyKey), err
	})
}

// Timers calls fn with the timers of a clock behind after, in their order, until fn returns false.
func Timers(r store.Reader, after store.TimerKey, fn func(store.TimerKey) bool) error {
	from := append(after.Append(nil), 0)
	return scan(r, store.Timer, from, store.PrefixEnd([]byte{byte(after.Clock)}), func(key, _ []byte) (bool, error) {
		k, err := store.ParseTimerKey(key)
		if err != nil {
			return false, err
		}
		return fn(k), nil
	})
}
