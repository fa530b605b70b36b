package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Entry is one key of an index without values. Entries compare with ==.
type Entry struct {
	Keyspace store.Keyspace
	key      [maxIndexKey]byte
	size     int
}

// maxIndexKey is the length of the longer of the keys in Ready and Timer.
const maxIndexKey = 32

// Key of the entry, part of e.
func (e *Entry) Key() []byte { return e.key[:e.size] }

// maxEntries is how many entries a task may have: its place in line, and its next timer on either clock.
const maxEntries = 3

// Index lists the entries of a task in the indexes of waiting tasks and of timers, computed from this version alone; none for nil. A leased
// task has none: its timers move with every heartbeat, and are known from its lease.
func Index(t *lease.Task) []Entry { return index(nil, t) }

// index appends to all.
func index(all []Entry, t *lease.Task) []Entry {
	if t == nil || t.Lease != nil {
		return all
	}
	if t.Rest == lease.Ready {
		key := store.ReadyKey{
			Space: t.ID.Space, Line: LineID(t.Line()), Priority: t.Spec.Priority, Place: t.Place, Seq: t.ID.Seq,
		}
		all = append(all, entry(store.Ready, key))
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

// LineID names a line in keys: the first 8 bytes of a SHA-256 over queue and type, for ever. A name of a fixed length keeps the keys
// short and the lines of a space apart.
func LineID(l lease.Line) uint64 {
	var space [256]byte
	b := binary.AppendUvarint(space[:0], uint64(len(l.Queue)))
	b = append(b, l.Queue...)
	b = append(b, l.Type...)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

func lineFields(c *codec, l *lease.Line) {
	c.str(&l.Queue)
	c.str(&l.Type)
}

// PutLine keeps what a line's id stands for.
func PutLine(b *store.Batch, space uint32, l lease.Line) {
	put(b, store.Line, store.AppendLineKey(nil, space, LineID(l)), &l, lineFields)
}

// WaitingLines calls fn with every line in which a task waits. It reads one key of each, however long they are.
func WaitingLines(r store.Reader, fn func(space uint32, l lease.Line) error) error {
	var from []byte
	for {
		var first []byte
		err := r.Scan(store.Ready, from, nil, func(key, _ []byte) bool {
			first = bytes.Clone(key)
			return false
		})
		if err != nil || first == nil {
			return err
		}
		k, err := store.ParseReadyKey(first)
		if err != nil {
			return err
		}
		key := store.AppendLineKey(nil, k.Space, k.Line)
		l, err := read(r, store.Line, key, lineFields)
		switch {
		case err != nil:
			return err
		case l == nil:
			return corrupt(store.Line, key, "tasks wait in a line that nobody knows")
		}
		if err := fn(k.Space, *l); err != nil {
			return err
		}
		if from = store.PrefixEnd(key); from == nil {
			return nil
		}
	}
}

// Ready calls fn with the places of a line behind after, in their order, until fn returns false. Of after, Space and Line are
// left to l.
func Ready(r store.Reader, space uint32, l lease.Line, after store.ReadyKey, fn func(store.ReadyKey) (bool, error)) error {
	after.Space, after.Line = space, LineID(l)
	from := append(after.Append(nil), 0)
	to := store.PrefixEnd(store.AppendLineKey(nil, space, after.Line))
	return scan(r, store.Ready, from, to, func(key, _ []byte) (bool, error) {
		k, err := store.ParseReadyKey(key)
		if err != nil {
			return false, err
		}
		return fn(k)
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

type keyRow struct {
	Seq    uint64
	Digest lease.Digest
}

func keyFields(c *codec, k *keyRow) {
	num(c, &k.Seq)
	c.fixed(k.Digest[:])
}

func putKey(b *store.Batch, c *lease.Change) {
	t := c.New
	if t.Spec.IdempotencyKey == "" {
		return
	}
	row := keyRow{Seq: t.ID.Seq, Digest: c.Key}
	put(b, store.Idempotency, store.AppendNameKey(nil, t.ID.Space, t.Spec.IdempotencyKey), &row, keyFields)
}

// Key finds the task that an idempotency key made, and the digest of its spec.
func Key(r store.Reader, space uint32, key string) (id lease.TaskID, d lease.Digest, found bool, err error) {
	row, err := read(r, store.Idempotency, store.AppendNameKey(nil, space, key), keyFields)
	if row == nil {
		return lease.TaskID{}, lease.Digest{}, false, err
	}
	return lease.TaskID{Space: space, Seq: row.Seq}, row.Digest, true, nil
}
