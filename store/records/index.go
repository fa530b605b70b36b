package records

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Entry is one key of an index. The values of an index are empty. Entries can be compared with ==.
type Entry struct {
	Keyspace store.Keyspace
	key      [maxIndexKey]byte
	size     int
}

// maxIndexKey is the length in bytes of the longest keys in Ready, Parked and Timer.
const maxIndexKey = 40

// Key returns the key of the entry, which shares the memory of e.
func (e *Entry) Key() []byte { return e.key[:e.size] }

// Index returns the entry of a version of a task that Put writes: its place among the waiting
// tasks, or the timer that ends its retention. It depends on this version alone. ok is false for a
// task that has none, and for nil. A leased task has none: its timers change with every heartbeat,
// and can be computed from its lease. The timers of a task that waits are not written by Put: see
// WaitingTimers.
func Index(t *lease.Task) (e Entry, ok bool) {
	if t == nil || t.Lease != nil {
		return Entry{}, false
	}
	if t.Rest == lease.Ready {
		return place(t), true
	}
	if _, wall := t.Due(); t.Rest.Final() && wall != 0 {
		return entry(store.Timer, store.WallTimer(wall, t.ID)), true
	}
	return Entry{}, false
}

// place returns the entry of a READY task: in its line, or under its concurrency key if the task is
// parked.
func place(t *lease.Task) Entry {
	key := store.ReadyKey{
		Space: t.ID.Space, Line: LineID(t.Line()), Priority: t.Spec.Priority,
		Place: t.Place, Seq: t.ID.Seq,
	}
	if t.Parked {
		return entry(store.Parked, store.ParkedKey{Key: keyID(t.Spec.ConcurrencyKey), ReadyKey: key})
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
	was, had := Index(before)
	is, has := Index(after)
	if had && was != is {
		b.Delete(was.Keyspace, was.Key())
	}
	if has && is != was {
		b.Put(is.Keyspace, is.Key(), nil)
	}
}

// LineID returns the number that stands for a line in keys: the first 8 bytes of a SHA-256 over
// queue, type, fairness key and class. The algorithm must never change. The fixed length keeps the
// keys short, and no line is a prefix of another one.
func LineID(l lease.Line) uint64 {
	n := lineIDCaches.Get().(*lineIDCache)
	if n.line != l {
		n.line, n.id = l, hashLine(l)
	}
	id := n.id
	lineIDCaches.Put(n)
	return id
}

// lineIDCache caches the result of the last LineID: tasks that are written in sequence mostly
// belong to the same line, and the hash takes longer than everything else in an entry.
type lineIDCache struct {
	line lease.Line
	id   uint64
}

var lineIDCaches = sync.Pool{New: func() any { return &lineIDCache{id: hashLine(lease.Line{})} }}

func hashLine(l lease.Line) uint64 {
	var space [512]byte
	b := binary.AppendUvarint(space[:0], uint64(len(l.Queue)))
	b = append(b, l.Queue...)
	if l.Fairness != "" { // without a fairness key, the hash is the same as before there were fairness keys
		b = binary.AppendUvarint(b, uint64(len(l.Fairness)))
		b = append(b, l.Fairness...)
		b = append(b, 0)
	}
	b = append(b, l.Type...)
	// without a class, the hash is the same as before there were classes; a type is UTF-8, which
	// never contains the byte 0xff
	if l.Class != "" {
		b = append(b, 0xff)
		b = append(b, l.Class...)
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// keyID returns the number that stands for a concurrency key or a run in keys, as LineID does for a
// line. If two concurrency keys had the same number, their parked tasks would be listed together,
// without other effects.
func keyID(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
}

// WaitingLines calls fn with every line in which a task waits, and the place of its first task. It
// reads one key and one spec of each line, however long the line is.
func WaitingLines(r store.Reader, fn func(first store.ReadyKey, l lease.Line) error) error {
	var first store.ReadyKey
	return firstOfEachGroup(r, store.Ready, func(key []byte) (_ lease.TaskID, _ []byte, err error) {
		first, err = store.ParseReadyKey(key)
		return first.Task(), store.AppendLinePrefix(nil, first.Space, first.Line), err
	}, func(_ lease.TaskID, s *lease.Spec) error {
		return fn(first, lineOf(s))
	})
}

// ParkedLines calls fn with every concurrency key under which a task is parked, once for each line
// of such tasks.
func ParkedLines(r store.Reader, fn func(space uint32, key string, l lease.Line) error) error {
	return firstOfEachGroup(r, store.Parked, func(key []byte) (lease.TaskID, []byte, error) {
		k, err := store.ParseParkedKey(key)
		return k.Task(), store.AppendParkedPrefix(nil, k.Space, k.Key, k.Line), err
	}, func(t lease.TaskID, s *lease.Spec) error {
		return fn(t.Space, s.ConcurrencyKey, lineOf(s))
	})
}

func lineOf(s *lease.Spec) lease.Line { return (&lease.Task{Spec: s}).Line() }

// firstOfEachGroup calls fn with the first task of each group of an index. parse returns the task
// of a key, and the prefix of all keys of its group.
func firstOfEachGroup(
	r store.Reader, ks store.Keyspace, parse func(key []byte) (lease.TaskID, []byte, error),
	fn func(lease.TaskID, *lease.Spec) error,
) error {
	for from := []byte{}; from != nil; {
		first, err := store.FirstKey(r, ks, from)
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
			return store.Corrupt(ks, first, "its task does not exist")
		}
		if err := fn(id, t.Spec); err != nil {
			return err
		}
		from = store.PrefixEnd(group)
	}
	return nil
}

// NextReady returns the first place in Ready behind another one, of whatever line; found is false
// if there is none. The zero place is before all.
func NextReady(r store.Reader, after store.ReadyKey) (at store.ReadyKey, found bool, err error) {
	first, err := store.FirstKey(r, store.Ready, append(after.Append(nil), 0))
	if err != nil || first == nil {
		return at, false, err
	}
	at, err = store.ParseReadyKey(first)
	return at, err == nil, err
}

// ReadyTask returns the task that waits at a place, without its payload.
func ReadyTask(r store.Reader, at store.ReadyKey) (*lease.Task, error) {
	id := at.Task()
	key := store.AppendTaskKey(nil, id)
	t, err := taskWithoutLease(r, id, key, r.Get(store.Spec, key), withoutPayload)
	if err == nil && t == nil {
		err = store.Corrupt(store.Ready, at.Append(nil), "its task does not exist")
	}
	return t, err
}

// Ready calls fn with the places of a line that come after the place after, in order, until fn
// returns false. It ignores Space and Line of after.
func Ready(
	r store.Reader, space uint32, l lease.Line, after store.ReadyKey, fn func(store.ReadyKey) (bool, error),
) error {
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

// Parked calls fn with the places of the tasks of a line that are parked under a concurrency key
// and come after the place after, in order, until fn returns false. It ignores Space and Line of
// after.
func Parked(
	r store.Reader, space uint32, key string, l lease.Line, after store.ReadyKey, fn func(store.ReadyKey) bool,
) error {
	after.Space, after.Line = space, LineID(l)
	first := store.ParkedKey{Key: keyID(key), ReadyKey: after}
	from := append(first.Append(nil), 0)
	to := store.PrefixEnd(store.AppendParkedPrefix(nil, space, first.Key, after.Line))
	return scan(r, store.Parked, from, to, func(key, _ []byte) (bool, error) {
		k, err := store.ParseParkedKey(key)
		return err == nil && fn(k.ReadyKey), err
	})
}
