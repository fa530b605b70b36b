package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// KeyEntry says which task was submitted with an idempotency key. Once written, it is true for
// ever: when the task has been removed, its id leads to no task. So an entry may be in several
// places, and whoever finds one asks HasKey about the task.
type KeyEntry struct {
	Hash   store.KeyHash
	Task   lease.TaskID
	Digest lease.Digest // of the spec
}

// EntryOfKey returns the entry of the idempotency key of a task, whose spec has that digest.
func EntryOfKey(t *lease.Task, d lease.Digest) KeyEntry {
	return KeyEntry{Hash: store.HashOfKey(t.ID.Space, t.Spec.IdempotencyKey), Task: t.ID, Digest: d}
}

// HasKey reports whether a task exists and has the idempotency key that hash stands for.
func HasKey(r store.Reader, id lease.TaskID, hash store.KeyHash) (bool, error) {
	var space [16]byte
	var t lease.Task
	found, err := readSpec(r, store.AppendTaskKey(space[:0], id), &t, withoutPayload)
	return found && err == nil && t.Spec.IdempotencyKey != "" &&
		store.HashOfKey(id.Space, t.Spec.IdempotencyKey) == hash, err
}

// loggedFields are those of a record in KeyLog, whose key has the task.
func loggedFields(c *codec, k *KeyEntry) {
	c.fixed(k.Hash[:])
	c.fixed(k.Digest[:])
}

// segmentFields are those of a record in KeySegment, whose key has the hash.
func segmentFields(c *codec, k *KeyEntry) {
	num(c, &k.Task.Space)
	num(c, &k.Task.Seq)
	c.fixed(k.Digest[:])
}

// PutInKeyLog adds an entry to KeyLog.
func PutInKeyLog(b *store.Batch, k KeyEntry) {
	var space [16]byte
	put(b, store.KeyLog, store.AppendTaskKey(space[:0], k.Task), &k, loggedFields)
}

// DeleteFromKeyLog removes the entry of a task from KeyLog.
func DeleteFromKeyLog(b *store.Batch, id lease.TaskID) {
	var space [16]byte
	b.Delete(store.KeyLog, store.AppendTaskKey(space[:0], id))
}

// KeyLog calls fn with the entries in KeyLog from a task on, in the order of their tasks, until fn
// returns false.
func KeyLog(r store.Reader, from lease.TaskID, fn func(KeyEntry) bool) error {
	return scan(r, store.KeyLog, store.AppendTaskKey(nil, from), nil, func(key, value []byte) (bool, error) {
		id, err := store.ParseTaskKey(store.KeyLog, key)
		if err != nil {
			return false, err
		}
		k := KeyEntry{Task: id}
		err = decode(store.KeyLog, key, value, &k, loggedFields)
		return err == nil && fn(k), err
	})
}

// PutInSegment adds an entry to a segment.
func PutInSegment(b *store.Batch, segment uint32, k KeyEntry) {
	var space [32]byte
	put(b, store.KeySegment, store.SegmentKey{Segment: segment, Hash: k.Hash}.Append(space[:0]), &k, segmentFields)
}

// DeleteFromSegment removes the entry of a hash from a segment.
func DeleteFromSegment(b *store.Batch, segment uint32, hash store.KeyHash) {
	var space [32]byte
	b.Delete(store.KeySegment, store.SegmentKey{Segment: segment, Hash: hash}.Append(space[:0]))
}

// InSegment returns the entry of a hash in a segment; nil if there is none.
func InSegment(r store.Reader, segment uint32, hash store.KeyHash) (*KeyEntry, error) {
	var space [32]byte
	k, err := read(r, store.KeySegment, store.SegmentKey{Segment: segment, Hash: hash}.Append(space[:0]), segmentFields)
	if k != nil {
		k.Hash = hash
	}
	return k, err
}

// Segment calls fn with the entries of a segment whose hashes come after a hash, in order, until fn
// returns false. The zero hash comes before all.
func Segment(r store.Reader, segment uint32, after store.KeyHash, fn func(KeyEntry) (bool, error)) error {
	return scanSegment(r, segment, after, func(key, value []byte, hash store.KeyHash) (bool, error) {
		k := KeyEntry{Hash: hash}
		if err := decode(store.KeySegment, key, value, &k, segmentFields); err != nil {
			return false, err
		}
		return fn(k)
	})
}

// HashesOfSegment is Segment for the hashes alone. It does not care whether the rest of an entry is
// damaged.
func HashesOfSegment(r store.Reader, segment uint32, after store.KeyHash, fn func(store.KeyHash) bool) error {
	return scanSegment(r, segment, after, func(_, _ []byte, hash store.KeyHash) (bool, error) { return fn(hash), nil })
}

func scanSegment(
	r store.Reader, segment uint32, after store.KeyHash, fn func(key, value []byte, hash store.KeyHash) (bool, error),
) error {
	from := append(store.SegmentKey{Segment: segment, Hash: after}.Append(nil), 0)
	return scan(r, store.KeySegment, from, store.PrefixEnd(store.AppendSegmentPrefix(nil, segment)), func(key, value []byte) (bool, error) {
		at, err := store.ParseSegmentKey(key)
		if err != nil {
			return false, err
		}
		return fn(key, value, at.Hash)
	})
}

// Segments returns the numbers of all segments, in order. It reads one key of each.
func Segments(r store.Reader) (all []uint32, err error) {
	for from := []byte{}; from != nil; {
		first, err := store.FirstKey(r, store.KeySegment, from)
		if err != nil || first == nil {
			return all, err
		}
		at, err := store.ParseSegmentKey(first)
		if err != nil {
			return all, err
		}
		all = append(all, at.Segment)
		from = store.PrefixEnd(store.AppendSegmentPrefix(nil, at.Segment))
	}
	return all, nil
}

// olderKey is the record of an idempotency key in Idempotency, where stores of older formats have
// them.
type olderKey struct {
	Seq    uint64
	Digest lease.Digest
}

func olderKeyFields(c *codec, k *olderKey) {
	num(c, &k.Seq)
	c.fixed(k.Digest[:])
}

// HasOlderKeys reports whether Idempotency has any keys.
func HasOlderKeys(r store.Reader) (bool, error) {
	key, err := store.FirstKey(r, store.Idempotency, nil)
	return key != nil, err
}

// OlderTaskByKey returns the task that was submitted with an idempotency key, and the digest of its
// spec, if Idempotency has the key.
func OlderTaskByKey(r store.Reader, space uint32, key string) (id lease.TaskID, d lease.Digest, found bool, err error) {
	row, err := read(r, store.Idempotency, store.AppendNameKey(nil, space, key), olderKeyFields)
	if row == nil {
		return lease.TaskID{}, lease.Digest{}, false, err
	}
	return lease.TaskID{Space: space, Seq: row.Seq}, row.Digest, true, nil
}
