package store_test

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// number returns one of few numbers, the borders among them, so that random keys often share a part.
func number(rnd *rand.Rand) uint64 {
	borders := []uint64{0, 1, 255, 256, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
	return borders[rnd.IntN(len(borders))]
}

func randomTask(rnd *rand.Rand) lease.TaskID {
	return lease.TaskID{Space: uint32(number(rnd)), Seq: number(rnd)}
}

// checkOrder compares the order of random values with the order of their keys, and reads each key back.
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
			t.Fatalf("seed %d: %+v came back as %+v, %v", seed, a, back, err)
		}
		if _, err := parse(append(key(a), 0)); err == nil {
			t.Fatalf("a key of %T with a byte too many was read", a)
		}
		if _, err := parse(key(a)[1:]); err == nil {
			t.Fatalf("a key of %T with a byte too few was read", a)
		}
	}
}

func compareTasks(a, b lease.TaskID) int {
	return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Seq, b.Seq))
}

func TestTaskKeys(t *testing.T) {
	checkOrder(t, randomTask,
		func(id lease.TaskID) []byte { return store.AppendTaskKey(nil, id) },
		func(key []byte) (lease.TaskID, error) { return store.ParseTaskKey(store.Task, key) },
		compareTasks)
}

func TestAttemptKeys(t *testing.T) {
	type attempt struct {
		task lease.TaskID
		n    uint32
	}
	checkOrder(t,
		func(rnd *rand.Rand) attempt { return attempt{randomTask(rnd), uint32(number(rnd))} },
		func(a attempt) []byte { return store.AppendAttemptKey(nil, a.task, a.n) },
		func(key []byte) (a attempt, err error) {
			a.task, a.n, err = store.ParseAttemptKey(store.Ledger, key)
			return a, err
		},
		func(a, b attempt) int { return cmp.Or(compareTasks(a.task, b.task), cmp.Compare(a.n, b.n)) })
}

// T2: within a line the higher priority goes first, then who is longer in line.
func TestReadyKeys(t *testing.T) {
	t.Attr("rules", "T2")
	checkOrder(t,
		func(rnd *rand.Rand) store.ReadyKey {
			return store.ReadyKey{
				Space: uint32(number(rnd)), Line: number(rnd), Priority: int32(number(rnd)), Place: number(rnd), Seq: number(rnd),
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

// Parked tasks lie by their concurrency key, and there as in their line.
func TestParkedKeys(t *testing.T) {
	checkOrder(t,
		func(rnd *rand.Rand) store.ParkedKey {
			return store.ParkedKey{Key: number(rnd), ReadyKey: store.ReadyKey{
				Space: uint32(number(rnd)), Line: number(rnd), Priority: int32(number(rnd)), Place: number(rnd), Seq: number(rnd),
			}}
		},
		func(k store.ParkedKey) []byte { return k.Append(nil) },
		store.ParseParkedKey,
		func(a, b store.ParkedKey) int {
			return cmp.Or(
				cmp.Compare(a.Space, b.Space), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Line, b.Line), cmp.Compare(b.Priority, a.Priority),
				cmp.Compare(a.Place, b.Place), cmp.Compare(a.Seq, b.Seq),
			)
		})
	k := store.ParkedKey{Key: 6, ReadyKey: store.ReadyKey{Space: 7, Line: 8, Priority: -1, Place: 9, Seq: 10}}
	if !bytes.HasPrefix(k.Append(nil), store.AppendParkedPrefix(nil, 7, 6, 8)) {
		t.Error("the key of a parked task does not begin with its space, key and line")
	}
}

func TestMountedKeys(t *testing.T) {
	type mounted struct {
		host uint64
		task lease.TaskID
	}
	checkOrder(t,
		func(rnd *rand.Rand) mounted { return mounted{number(rnd), randomTask(rnd)} },
		func(m mounted) []byte { return store.AppendMountedKey(nil, m.host, m.task) },
		func(key []byte) (m mounted, err error) {
			m.host, m.task, err = store.ParseMountedKey(key)
			return m, err
		},
		func(a, b mounted) int {
			return cmp.Or(cmp.Compare(a.task.Space, b.task.Space), cmp.Compare(a.host, b.host), cmp.Compare(a.task.Seq, b.task.Seq))
		})
}

func TestTimerKeys(t *testing.T) {
	t.Attr("rules", "T8")
	checkOrder(t,
		func(rnd *rand.Rand) store.TimerKey {
			if rnd.IntN(2) == 0 {
				return store.ServingTimer(lease.Instant(number(rnd)), randomTask(rnd))
			}
			return store.WallTimer(lease.Wall(number(rnd)), randomTask(rnd))
		},
		func(k store.TimerKey) []byte { return k.Append(nil) },
		store.ParseTimerKey,
		func(a, b store.TimerKey) int {
			return cmp.Or(cmp.Compare(a.Clock, b.Clock), cmp.Compare(a.Due, b.Due), compareTasks(a.Task, b.Task))
		})
	if _, err := store.ParseTimerKey(append([]byte{9}, make([]byte, 20)...)); err == nil {
		t.Error("a timer on an unknown clock was read")
	}
}

func TestTenantKeys(t *testing.T) {
	key := store.AppendTenantKey(nil, "acme", "default")
	tenant, workspace, err := store.ParseTenantKey(store.Space, key)
	if err != nil || tenant != "acme" || workspace != "default" {
		t.Errorf("%q came back as %q, %q, %v", key, tenant, workspace, err)
	}
	if bytes.Equal(store.AppendTenantKey(nil, "ab", "c"), store.AppendTenantKey(nil, "a", "bc")) {
		t.Error("workspaces of two tenants share a key")
	}
	if _, _, err := store.ParseTenantKey(store.Space, []byte("acme")); err == nil {
		t.Error("a key without a workspace was read")
	}
}

// X4: the audit of a tenant lies in the order of time.
func TestAuditKeys(t *testing.T) {
	t.Attr("rules", "X4")
	tenants := []string{"a", "b", "\xff"}
	checkOrder(t,
		func(rnd *rand.Rand) store.AuditKey {
			return store.AuditKey{
				Tenant: tenants[rnd.IntN(len(tenants))], At: lease.Wall(number(rnd)), Serving: lease.Instant(number(rnd)),
			}
		},
		func(k store.AuditKey) []byte { return k.Append(nil) },
		store.ParseAuditKey,
		func(a, b store.AuditKey) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.At, b.At), cmp.Compare(a.Serving, b.Serving))
		})
}

func TestNameKeys(t *testing.T) {
	key := store.AppendNameKey(nil, 7, "mail")
	if space, name, err := store.ParseNameKey(store.Queue, key); err != nil || space != 7 || name != "mail" {
		t.Errorf("%q came back as %d, %q, %v", key, space, name, err)
	}
	if !bytes.HasPrefix(key, store.AppendSpacePrefix(nil, 7)) {
		t.Error("the key does not begin with its space")
	}
	if _, _, err := store.ParseNameKey(store.Queue, key[:3]); err == nil {
		t.Error("a key without a whole space was read")
	}
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string][]byte{
		"a": []byte("b"), "a\xff": []byte("b"), "a\xff\xff": []byte("b"), "\xff": nil, "": nil, "a\x00": []byte("a\x01"),
	} {
		if got := store.PrefixEnd([]byte(prefix)); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("PrefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// A store with keyspaces that a program does not know has a format that this program refuses: each change of the table is one.
func TestKeyspacesCameWithAFormat(t *testing.T) {
	if keyspaces, format := store.NumKeyspaces, store.Current().Format(); keyspaces != 22 || format != 6 {
		t.Errorf("%d keyspaces in format %d; a new one wants a new format, and a line here", keyspaces, format)
	}
}

// The number of a keyspace is part of every checksum on disk.
func TestKeyspaceNumbersStay(t *testing.T) {
	want := []string{
		"meta", "space", "queue", "line", "spec", "task", "lease", "ready", "timer", "idempotency", "ledger", "output",
		"failure", "checkpoint", "discarded", "parked", "settings", "mounted", "feedback", "signingkey", "token", "audit",
	}
	var got []string
	for ks := range store.Keyspace(store.NumKeyspaces) {
		got = append(got, ks.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("keyspaces = %v, want %v", got, want)
	}
}
