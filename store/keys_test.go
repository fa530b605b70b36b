package store_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// borderNumber returns one of a few numbers at the borders of the integer types, so that random
// keys often share a part.
func borderNumber(rnd *rand.Rand) uint64 {
	borders := []uint64{
		0, 1, 255, 256, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64,
		math.MaxInt64 + 1, math.MaxUint64,
	}
	return borders[rnd.IntN(len(borders))]
}

func randomTaskID(rnd *rand.Rand) lease.TaskID {
	return lease.TaskID{Space: uint32(borderNumber(rnd)), Seq: borderNumber(rnd)}
}

// checkOrder checks that the keys of random values sort as compare sorts the values, that each key
// is parsed to its value, and that a key with a byte too many or too few is refused.
func checkOrder[T comparable](
	t *testing.T, random func(*rand.Rand) T, key func(T) []byte, parse func([]byte) (T, error), compare func(a, b T) int,
) {
	t.Helper()
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		a, b := random(rnd), random(rnd)
		if got, want := bytes.Compare(key(a), key(b)), compare(a, b); got != want {
			t.Fatalf("seed %d: keys of %+v and %+v compare as %d, want %d", seed, a, b, got, want)
		}
		if back, err := parse(key(a)); err != nil || back != a {
			t.Fatalf("seed %d: the key of %+v is parsed as %+v, error %v", seed, a, back, err)
		}
		if _, err := parse(append(key(a), 0)); err == nil {
			t.Fatalf("a key of %T with a byte too many is accepted", a)
		}
		if _, err := parse(key(a)[1:]); err == nil {
			t.Fatalf("a key of %T without its first byte is accepted", a)
		}
	}
}

// The keys of tasks sort by space, then by sequence.
func TestTaskKeys(t *testing.T) {
	checkOrder(t, randomTaskID,
		func(id lease.TaskID) []byte { return store.AppendTaskKey(nil, id) },
		func(key []byte) (lease.TaskID, error) { return store.ParseTaskKey(store.Task, key) },
		lease.TaskID.Compare)
}

// The keys of attempts sort by task, then by number.
func TestAttemptKeys(t *testing.T) {
	type attempt struct {
		task lease.TaskID
		n    uint32
	}
	checkOrder(t,
		func(rnd *rand.Rand) attempt { return attempt{randomTaskID(rnd), uint32(borderNumber(rnd))} },
		func(a attempt) []byte { return store.AppendAttemptKey(nil, a.task, a.n) },
		func(key []byte) (a attempt, err error) {
			a.task, a.n, err = store.ParseAttemptKey(store.Ledger, key)
			return a, err
		},
		func(a, b attempt) int { return cmp.Or(a.task.Compare(b.task), cmp.Compare(a.n, b.n)) })
}

// The keys of a segment sort by segment, then by hash.
func TestSegmentKeys(t *testing.T) {
	checkOrder(t,
		func(rnd *rand.Rand) store.SegmentKey {
			k := store.SegmentKey{Segment: uint32(borderNumber(rnd))}
			binary.BigEndian.PutUint64(k.Hash[:], borderNumber(rnd))
			binary.BigEndian.PutUint64(k.Hash[8:], borderNumber(rnd))
			return k
		},
		func(k store.SegmentKey) []byte { return k.Append(nil) },
		store.ParseSegmentKey,
		func(a, b store.SegmentKey) int {
			return cmp.Or(cmp.Compare(a.Segment, b.Segment), bytes.Compare(a.Hash[:], b.Hash[:]))
		})
	if k := (store.SegmentKey{Segment: 7}); !bytes.HasPrefix(k.Append(nil), store.AppendSegmentPrefix(nil, 7)) {
		t.Error("the key of an entry does not begin with the key of its segment")
	}
}

// The hashes of idempotency keys are on disk, so they must never change. Those of one key in two
// spaces differ.
func TestHashesOfKeysNeverChange(t *testing.T) {
	t.Attr("rules", "T1")
	for _, tt := range []struct {
		space     uint32
		key, want string
	}{
		{1, "key", "1fe4f2103409e0ba94587f7605998ac5"},
		{2, "key", "c490629124fb959337b7e766f6e692c0"},
		{1, strings.Repeat("long", 200), "0ff3befd4cf00b887af4fb4e951e7772"},
	} {
		if got := fmt.Sprintf("%x", store.HashOfKey(tt.space, tt.key)); got != tt.want {
			t.Errorf("the hash of key %.10q of space %d is %s, want %s", tt.key, tt.space, got, tt.want)
		}
	}
}

// T2: within a line, the keys of READY tasks sort by priority, the highest first, then by place,
// then by sequence.
func TestReadyKeys(t *testing.T) {
	t.Attr("rules", "T2")
	checkOrder(t,
		func(rnd *rand.Rand) store.ReadyKey {
			return store.ReadyKey{
				Space: uint32(borderNumber(rnd)), Line: borderNumber(rnd), Priority: int32(borderNumber(rnd)),
				Place: borderNumber(rnd), Seq: borderNumber(rnd),
			}
		},
		func(k store.ReadyKey) []byte { return k.Append(nil) },
		store.ParseReadyKey,
		func(a, b store.ReadyKey) int {
			return cmp.Or(
				cmp.Compare(a.Space, b.Space), cmp.Compare(a.Line, b.Line), cmp.Compare(b.Priority, a.Priority),
				cmp.Compare(a.Place, b.Place), cmp.Compare(a.Seq, b.Seq),
			)
		})
	k := store.ReadyKey{Space: 7, Line: 8, Priority: -1, Place: 9, Seq: 10}
	if !bytes.HasPrefix(k.Append(nil), store.AppendLinePrefix(nil, 7, 8)) {
		t.Error("the key of a ready task does not begin with the key of its line")
	}
	if want := (lease.TaskID{Space: 7, Seq: 10}); k.Task() != want {
		t.Errorf("task = %v, want %v", k.Task(), want)
	}
}

// The keys of parked tasks sort by their concurrency key, and under one concurrency key as they do
// in their line.
func TestParkedKeys(t *testing.T) {
	checkOrder(t,
		func(rnd *rand.Rand) store.ParkedKey {
			return store.ParkedKey{Key: borderNumber(rnd), ReadyKey: store.ReadyKey{
				Space: uint32(borderNumber(rnd)), Line: borderNumber(rnd), Priority: int32(borderNumber(rnd)),
				Place: borderNumber(rnd), Seq: borderNumber(rnd),
			}}
		},
		func(k store.ParkedKey) []byte { return k.Append(nil) },
		store.ParseParkedKey,
		func(a, b store.ParkedKey) int {
			return cmp.Or(
				cmp.Compare(a.Space, b.Space), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Line, b.Line),
				cmp.Compare(b.Priority, a.Priority),
				cmp.Compare(a.Place, b.Place), cmp.Compare(a.Seq, b.Seq),
			)
		})
	k := store.ParkedKey{Key: 6, ReadyKey: store.ReadyKey{Space: 7, Line: 8, Priority: -1, Place: 9, Seq: 10}}
	if !bytes.HasPrefix(k.Append(nil), store.AppendParkedPrefix(nil, 7, 6, 8)) {
		t.Error("the key of a parked task does not begin with its space, concurrency key and line")
	}
}

// The keys of groups sort by space, then by group, then by sequence.
func TestGroupKeys(t *testing.T) {
	type member struct {
		group uint64
		task  lease.TaskID
	}
	checkOrder(t,
		func(rnd *rand.Rand) member { return member{borderNumber(rnd), randomTaskID(rnd)} },
		func(m member) []byte { return store.AppendGroupKey(nil, m.group, m.task) },
		func(key []byte) (m member, err error) {
			m.group, m.task, err = store.ParseGroupKey(store.Run, key)
			return m, err
		},
		func(a, b member) int {
			return cmp.Or(cmp.Compare(a.task.Space, b.task.Space), cmp.Compare(a.group, b.group),
				cmp.Compare(a.task.Seq, b.task.Seq))
		})
}

// T8: the keys of the timers of one clock sort by the time at which they are due.
func TestTimerKeys(t *testing.T) {
	t.Attr("rules", "T8")
	checkOrder(t,
		func(rnd *rand.Rand) store.TimerKey {
			if rnd.IntN(2) == 0 {
				return store.ServingTimer(lease.Instant(borderNumber(rnd)), randomTaskID(rnd))
			}
			return store.WallTimer(lease.Wall(borderNumber(rnd)), randomTaskID(rnd))
		},
		func(k store.TimerKey) []byte { return k.Append(nil) },
		store.ParseTimerKey,
		func(a, b store.TimerKey) int {
			return cmp.Or(cmp.Compare(a.Clock, b.Clock), cmp.Compare(a.Due, b.Due), a.Task.Compare(b.Task))
		})
	if _, err := store.ParseTimerKey(append([]byte{9}, make([]byte, 20)...)); err == nil {
		t.Error("the key of a timer on an unknown clock is accepted")
	}
}

// The key of a tenant and a workspace is parsed to both. Two tenants never share a key, even if
// tenant and workspace are equal when joined.
func TestTenantKeys(t *testing.T) {
	key := store.AppendTenantKey(nil, "acme", "default")
	tenant, workspace, err := store.ParseTenantKey(store.Space, key)
	if err != nil || tenant != "acme" || workspace != "default" {
		t.Errorf("key %q is parsed as %q, %q, error %v; want acme, default and no error", key, tenant, workspace, err)
	}
	if bytes.Equal(store.AppendTenantKey(nil, "ab", "c"), store.AppendTenantKey(nil, "a", "bc")) {
		t.Error(`tenant "ab" with workspace "c" and tenant "a" with workspace "bc" have the same key, want two`)
	}
	if _, _, err := store.ParseTenantKey(store.Space, []byte("acme")); err == nil {
		t.Error("a key without a separator is accepted")
	}
}

// X4: the keys of audit entries sort by tenant, then by time.
func TestAuditKeys(t *testing.T) {
	t.Attr("rules", "X4")
	tenants := []string{"a", "b", "\xff"}
	checkOrder(t,
		func(rnd *rand.Rand) store.AuditKey {
			return store.AuditKey{
				Tenant: tenants[rnd.IntN(len(tenants))], At: lease.Wall(borderNumber(rnd)),
				Serving: lease.Instant(borderNumber(rnd)),
			}
		},
		func(k store.AuditKey) []byte { return k.Append(nil) },
		store.ParseAuditKey,
		func(a, b store.AuditKey) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.At, b.At), cmp.Compare(a.Serving, b.Serving))
		})
}

// The key of a name in a space is parsed to both, and begins with the prefix of its space.
func TestNameKeys(t *testing.T) {
	key := store.AppendNameKey(nil, 7, "mail")
	if space, name, err := store.ParseNameKey(store.Queue, key); err != nil || space != 7 || name != "mail" {
		t.Errorf("key %q is parsed as %d, %q, error %v; want 7, mail and no error", key, space, name, err)
	}
	if !bytes.HasPrefix(key, store.AppendSpacePrefix(nil, 7)) {
		t.Error("the key of a name does not begin with its space")
	}
	if _, _, err := store.ParseNameKey(store.Queue, key[:3]); err == nil {
		t.Error("a key that is shorter than a space is accepted")
	}
}

// PrefixEnd returns the first key behind all keys with the prefix; nil if there is none.
func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string][]byte{
		"a": []byte("b"), "a\xff": []byte("b"), "a\xff\xff": []byte("b"), "\xff": nil, "": nil, "a\x00": []byte("a\x01"),
	} {
		if got := store.PrefixEnd([]byte(prefix)); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("PrefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// A new keyspace needs a new format, so that a program that does not know the keyspace refuses the
// store. This test fails if somebody adds a keyspace, to remind them of the format.
func TestNewKeyspaceNeedsANewFormat(t *testing.T) {
	if keyspaces, format := store.NumKeyspaces, store.Current().Format(); keyspaces != 26 || format != 10 {
		t.Errorf("there are %d keyspaces in format %d, want 26 in format 10; a new keyspace needs a new format: then change the numbers here", keyspaces, format)
	}
}

// The number of a keyspace is part of every checksum on disk, so it must never change.
func TestKeyspaceNumbersNeverChange(t *testing.T) {
	want := []string{
		"meta", "space", "queue", "line", "spec", "task", "lease", "ready", "timer", "idempotency", "ledger", "output",
		"failure", "checkpoint", "discarded", "parked", "settings", "mounted", "feedback", "signingkey", "token", "audit", "run",
		"keylog", "keysegment", "timerlog",
	}
	var got []string
	for ks := range store.Keyspace(store.NumKeyspaces) {
		got = append(got, ks.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("keyspaces = %v, want %v", got, want)
	}
}
