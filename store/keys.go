package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/lessor-dev/lessor/lease"
)

// The keys of Meta.
const (
	MetaFormat   = "format"   // version of the layout; see Migrations
	MetaIdentity = "identity" // epoch and the key that signs leases
	MetaClock    = "clock"    // serving clock
	MetaBackups  = "backups"  // when the last backups ended
	MetaPosition = "position" // number of the last commit, in a store that has or had a standby; see package standby
	MetaLineage  = "lineage"  // the commits of earlier runs that such a store has
)

// Sizes of the parts of keys in bytes.
const (
	spaceSize = 4
	taskSize  = spaceSize + 8
)

func parseError(ks Keyspace, key []byte) error { return Corrupt(ks, key, "the key has no such form") }

// AppendTenantKey appends the key of something that belongs to a tenant: name is a workspace in
// Space, or an id in SigningKey and Token. Names hold no control characters, so the separator is
// unambiguous. The keys of one tenant are adjacent.
func AppendTenantKey(dst []byte, tenant, name string) []byte {
	dst = append(dst, tenant...)
	dst = append(dst, 0)
	return append(dst, name...)
}

// ParseTenantKey reverses AppendTenantKey.
func ParseTenantKey(ks Keyspace, key []byte) (tenant, name string, err error) {
	t, n, found := bytes.Cut(key, []byte{0})
	if !found {
		return "", "", parseError(ks, key)
	}
	return string(t), string(n), nil
}

// AppendSpacePrefix appends the prefix of all keys of one space, in every keyspace whose keys begin
// with the space.
func AppendSpacePrefix(dst []byte, space uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, space)
}

// AppendNameKey appends the key of a name within a space: of a queue in Queue and Settings, of an
// idempotency key in Idempotency.
func AppendNameKey(dst []byte, space uint32, name string) []byte {
	return append(AppendSpacePrefix(dst, space), name...)
}

// ParseNameKey reverses AppendNameKey.
func ParseNameKey(ks Keyspace, key []byte) (space uint32, name string, err error) {
	if len(key) < spaceSize {
		return 0, "", parseError(ks, key)
	}
	return binary.BigEndian.Uint32(key), string(key[spaceSize:]), nil
}

// AppendTaskKey appends the key of a task in Spec, Task, Lease, Output, Failure, Checkpoint,
// Feedback and KeyLog. It is also the prefix of the keys of the task's attempts.
func AppendTaskKey(dst []byte, id lease.TaskID) []byte {
	return binary.BigEndian.AppendUint64(AppendSpacePrefix(dst, id.Space), id.Seq)
}

// ParseTaskKey reverses AppendTaskKey.
func ParseTaskKey(ks Keyspace, key []byte) (lease.TaskID, error) {
	if len(key) != taskSize {
		return lease.TaskID{}, parseError(ks, key)
	}
	return taskID(key), nil
}

func taskID(key []byte) lease.TaskID {
	return lease.TaskID{Space: binary.BigEndian.Uint32(key), Seq: binary.BigEndian.Uint64(key[spaceSize:])}
}

// AppendAttemptKey appends the key of one attempt of a task in Ledger and Discarded.
func AppendAttemptKey(dst []byte, id lease.TaskID, attempt uint32) []byte {
	return binary.BigEndian.AppendUint32(AppendTaskKey(dst, id), attempt)
}

// ParseAttemptKey reverses AppendAttemptKey.
func ParseAttemptKey(ks Keyspace, key []byte) (id lease.TaskID, attempt uint32, err error) {
	if len(key) != taskSize+4 {
		return lease.TaskID{}, 0, parseError(ks, key)
	}
	return taskID(key), binary.BigEndian.Uint32(key[taskSize:]), nil
}

// AppendLinePrefix appends the prefix of the keys in Ready of the tasks of one line.
func AppendLinePrefix(dst []byte, space uint32, line uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendSpacePrefix(dst, space), line)
}

// ReadyKey is the place of a READY task in its line. Higher priorities come first, then lower
// places, then lower sequences (T2).
type ReadyKey struct {
	Space    uint32
	Line     uint64
	Priority int32
	Place    uint64
	Seq      uint64 // of the task
}

// Task returns the id of the task that waits at this place.
func (k ReadyKey) Task() lease.TaskID { return lease.TaskID{Space: k.Space, Seq: k.Seq} }

// Append appends the key in Ready.
func (k ReadyKey) Append(dst []byte) []byte {
	return k.appendPlace(AppendLinePrefix(dst, k.Space, k.Line))
}

func (k ReadyKey) appendPlace(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, ^orderedInt32(k.Priority))
	dst = binary.BigEndian.AppendUint64(dst, k.Place)
	return binary.BigEndian.AppendUint64(dst, k.Seq)
}

// ParseReadyKey reverses ReadyKey.Append.
func ParseReadyKey(key []byte) (ReadyKey, error) {
	if len(key) != spaceSize+8+placeSize {
		return ReadyKey{}, parseError(Ready, key)
	}
	return parsePlace(binary.BigEndian.Uint32(key), key[spaceSize:]), nil
}

// placeSize is the length of priority, place and sequence in keys.
const placeSize = 4 + 8 + 8

// parsePlace reads a line and a place in it.
func parsePlace(space uint32, key []byte) ReadyKey {
	return ReadyKey{
		Space:    space,
		Line:     binary.BigEndian.Uint64(key),
		Priority: int32(^binary.BigEndian.Uint32(key[8:]) ^ 1<<31),
		Place:    binary.BigEndian.Uint64(key[12:]),
		Seq:      binary.BigEndian.Uint64(key[20:]),
	}
}

// ParkedKey is the place of a parked task: its place in its line, under its concurrency key (T11).
type ParkedKey struct {
	Key uint64
	ReadyKey
}

// AppendParkedPrefix appends the prefix of the keys in Parked of the tasks of one line under one
// concurrency key.
func AppendParkedPrefix(dst []byte, space uint32, key, line uint64) []byte {
	dst = binary.BigEndian.AppendUint64(AppendSpacePrefix(dst, space), key)
	return binary.BigEndian.AppendUint64(dst, line)
}

// Append appends the key in Parked.
func (k ParkedKey) Append(dst []byte) []byte {
	return k.appendPlace(AppendParkedPrefix(dst, k.Space, k.Key, k.Line))
}

// ParseParkedKey reverses ParkedKey.Append.
func ParseParkedKey(key []byte) (ParkedKey, error) {
	if len(key) != spaceSize+8+8+placeSize {
		return ParkedKey{}, parseError(Parked, key)
	}
	return ParkedKey{
		Key:      binary.BigEndian.Uint64(key[spaceSize:]),
		ReadyKey: parsePlace(binary.BigEndian.Uint32(key), key[spaceSize+8:]),
	}, nil
}

// AppendGroupPrefix appends the prefix of the keys of one group of tasks: in Run of those of a run,
// in Mounted of those that are mounted on one host.
func AppendGroupPrefix(dst []byte, space uint32, group uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendSpacePrefix(dst, space), group)
}

// AppendGroupKey appends the key of a task in Run or Mounted.
func AppendGroupKey(dst []byte, group uint64, id lease.TaskID) []byte {
	return binary.BigEndian.AppendUint64(AppendGroupPrefix(dst, id.Space, group), id.Seq)
}

// ParseGroupKey reverses AppendGroupKey.
func ParseGroupKey(ks Keyspace, key []byte) (group uint64, id lease.TaskID, err error) {
	if len(key) != spaceSize+8+8 {
		return 0, id, parseError(ks, key)
	}
	id = lease.TaskID{Space: binary.BigEndian.Uint32(key), Seq: binary.BigEndian.Uint64(key[spaceSize+8:])}
	return binary.BigEndian.Uint64(key[spaceSize:]), id, nil
}

// KeyHash stands for an idempotency key of a space: the first 16 bytes of a SHA-256 over the space
// and the key. The algorithm must never change.
type KeyHash [16]byte

// HashOfKey returns the hash of an idempotency key of a space.
func HashOfKey(space uint32, key string) KeyHash {
	var room [512]byte
	sum := sha256.Sum256(AppendNameKey(room[:0], space, key))
	return KeyHash(sum[:])
}

// SegmentKey is the place of an idempotency key in a segment.
type SegmentKey struct {
	Segment uint32
	Hash    KeyHash
}

// AppendSegmentPrefix appends the prefix of the keys of one segment in KeySegment.
func AppendSegmentPrefix(dst []byte, segment uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, segment)
}

// Append appends the key in KeySegment.
func (k SegmentKey) Append(dst []byte) []byte {
	return append(AppendSegmentPrefix(dst, k.Segment), k.Hash[:]...)
}

// ParseSegmentKey reverses SegmentKey.Append.
func ParseSegmentKey(key []byte) (k SegmentKey, err error) {
	if len(key) != 4+len(k.Hash) {
		return k, parseError(KeySegment, key)
	}
	return SegmentKey{binary.BigEndian.Uint32(key), KeyHash(key[4:])}, nil
}

// Clock is the clock of a timer.
type Clock uint8

// The clocks. The serving clock reads a lease.Instant, the wall clock a lease.Wall.
const (
	ServingClock Clock = iota
	WallClock
)

// TimerKey is a timer of a task.
type TimerKey struct {
	Clock Clock
	Due   int64 // a lease.Instant on the serving clock, a lease.Wall on the wall clock
	Task  lease.TaskID
}

// ServingTimer is a timer on the serving clock.
func ServingTimer(due lease.Instant, id lease.TaskID) TimerKey {
	return TimerKey{Clock: ServingClock, Due: int64(due), Task: id}
}

// WallTimer is a timer on the wall clock.
func WallTimer(due lease.Wall, id lease.TaskID) TimerKey {
	return TimerKey{Clock: WallClock, Due: int64(due), Task: id}
}

// Append appends the key in Timer.
func (k TimerKey) Append(dst []byte) []byte {
	dst = append(dst, byte(k.Clock))
	dst = binary.BigEndian.AppendUint64(dst, orderedInt64(k.Due))
	return AppendTaskKey(dst, k.Task)
}

// ParseTimerKey reverses TimerKey.Append.
func ParseTimerKey(key []byte) (TimerKey, error) {
	const dueEnd = 1 + 8
	if len(key) != dueEnd+taskSize || key[0] > byte(WallClock) {
		return TimerKey{}, parseError(Timer, key)
	}
	return TimerKey{
		Clock: Clock(key[0]),
		Due:   int64(binary.BigEndian.Uint64(key[1:]) ^ 1<<63),
		Task:  taskID(key[dueEnd:]),
	}, nil
}

// AppendTimerLogKey appends the key of a record in TimerLog.
func AppendTimerLogKey(dst []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, number)
}

// ParseTimerLogKey reverses AppendTimerLogKey.
func ParseTimerLogKey(key []byte) (number uint64, err error) {
	if len(key) != 8 {
		return 0, parseError(TimerLog, key)
	}
	return binary.BigEndian.Uint64(key), nil
}

// PrefixEnd returns the end of a scan over all keys with the prefix: the lowest key that is greater
// than all of them. If there is no such key, it returns nil, which means the end of the keyspace.
func PrefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// FirstKey returns the first key of a keyspace from a key on; nil if there is none.
func FirstKey(r Reader, ks Keyspace, from []byte) (first []byte, err error) {
	err = r.Scan(ks, from, nil, func(key, _ []byte) bool {
		first = bytes.Clone(key)
		return false
	})
	return first, err
}

// orderedInt32 maps signed numbers to unsigned numbers of the same order.
func orderedInt32(n int32) uint32 { return uint32(n) ^ 1<<31 }

// orderedInt64 is orderedInt32 for 64 bits.
func orderedInt64(n int64) uint64 { return uint64(n) ^ 1<<63 }

// TaskOf returns the task whose id is in a key; ok is false if keys of the keyspace have none, or
// the key has another form.
func TaskOf(ks Keyspace, key []byte) (id lease.TaskID, ok bool) {
	var err error
	switch ks {
	case Spec, Task, Lease, Output, Failure, Checkpoint, Feedback, KeyLog:
		id, err = ParseTaskKey(ks, key)
	case Ledger, Discarded:
		id, _, err = ParseAttemptKey(ks, key)
	case Ready:
		var k ReadyKey
		k, err = ParseReadyKey(key)
		id = k.Task()
	case Parked:
		var k ParkedKey
		k, err = ParseParkedKey(key)
		id = k.Task()
	case Run, Mounted:
		_, id, err = ParseGroupKey(ks, key)
	case Timer:
		var k TimerKey
		k, err = ParseTimerKey(key)
		id = k.Task
	default:
		return id, false
	}
	return id, err == nil
}
