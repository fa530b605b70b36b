package store_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

var trail = []byte("trail")

// migrationThatAppends returns a migration that appends its name to the record trail.
func migrationThatAppends(name string) store.Migration {
	return store.Migration{Name: name, Apply: func(r store.Reader, b *store.Batch) error {
		b.Put(store.Meta, trail, append(append([]byte{}, r.Get(store.Meta, trail)...), name...))
		return nil
	}}
}

var migrations = store.Migrations{migrationThatAppends("a"), migrationThatAppends("b"), migrationThatAppends("c")}

// storeWithFormatOf returns a store of the newest format of m.
func storeWithFormatOf(t *testing.T, m store.Migrations) *memstore.Store {
	t.Helper()
	s := memstore.New()
	var b store.Batch
	m.Stamp(&b)
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return s
}

func wantTrail(t *testing.T, s store.Store, want string) {
	t.Helper()
	err := s.View(func(r store.Reader) error {
		if got := string(r.Get(store.Meta, trail)); got != want {
			t.Errorf("migrations that ran: %q, want %q", got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Upgrade runs the migrations that are newer than the store's format, in order and once.
func TestUpgradeRunsTheMissingMigrations(t *testing.T) {
	for have, want := range []string{"abc", "bc", "c", ""} {
		s := storeWithFormatOf(t, migrations[:have])
		for range 2 { // the second Upgrade finds nothing to do
			if err := migrations.Upgrade(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		wantTrail(t, s, want)
	}
}

// Each migration is one commit. So a crash during an upgrade leaves a store of one of the formats,
// and the next Upgrade continues from that.
func TestUpgradeContinuesAfterACrash(t *testing.T) {
	for crashAt := range len(migrations) {
		s := storeWithFormatOf(t, nil)
		crash := errors.New("crash")
		commits := 0
		s.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
			if commits == crashAt {
				return crash
			}
			commits++
			apply()
			return nil
		})
		if err := migrations.Upgrade(t.Context(), s); !errors.Is(err, crash) || !strings.Contains(err.Error(), migrations[crashAt].Name) {
			t.Fatalf("Upgrade = %v, want %v and the name of the migration, %q", err, crash, migrations[crashAt].Name)
		}
		s = s.Reopen()
		wantTrail(t, s, "abc"[:crashAt])
		if err := migrations.Upgrade(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		wantTrail(t, s, "abc")
	}
}

// Upgrade refuses a store of a newer format with a NewerFormatError, and does not change it.
func TestUpgradeRefusesNewerStore(t *testing.T) {
	s := storeWithFormatOf(t, migrations)
	err := migrations[:1].Upgrade(t.Context(), s)
	if newer := new(store.NewerFormatError); !errors.As(err, &newer) || newer.Have != 4 || newer.Want != 2 {
		t.Errorf("Upgrade = %v, want a NewerFormatError of 4 and 2", err)
	}
	wantTrail(t, s, "")
}

// Upgrade refuses a store without a format, or with format 0, as corrupt.
func TestUpgradeRefusesStoreWithoutFormat(t *testing.T) {
	wrong := memstore.New()
	var b store.Batch
	b.PutSealed(store.Meta, []byte(store.MetaFormat), 1, []byte{0, 0, 0, 0})
	if err := wrong.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]store.Store{"no format": memstore.New(), "format 0": wrong} {
		err := migrations.Upgrade(t.Context(), s)
		if damage := new(store.CorruptError); !errors.As(err, &damage) {
			t.Errorf("%s: Upgrade = %v, want a CorruptError", name, err)
		}
	}
}

// Format 8 finds tasks by their run. The upgrade notes, for each space, the newest of the tasks
// that are there already.
func TestUpgradeNotesTheOlderTasks(t *testing.T) {
	before := store.Current()[:6]
	for name, tasks := range map[string][]lease.TaskID{
		"none":       nil,
		"one":        {{Space: 1, Seq: 1}},
		"the lowest": {{}},
		"some": {
			{Space: 0, Seq: 1},
			{Space: 0, Seq: 2},
			{Space: 3, Seq: 5},
			{Space: 3, Seq: 1 << 40},
			{Space: 3, Seq: 1<<40 + 7},
			{Space: 4, Seq: 9},
			{Space: math.MaxUint32, Seq: 3},
			{Space: math.MaxUint32, Seq: math.MaxUint64},
		},
	} {
		s := storeWithFormatOf(t, before)
		var b store.Batch
		newest := map[uint32]lease.TaskID{}
		for _, id := range tasks {
			b.Put(store.Spec, store.AppendTaskKey(nil, id), []byte("spec"))
			newest[id.Space] = id
		}
		err := s.Commit(t.Context(), &b)
		if err == nil {
			err = store.Current().Upgrade(t.Context(), s)
		}
		if err != nil {
			t.Fatal(err)
		}
		noted := map[uint32]lease.TaskID{}
		err = s.View(func(r store.Reader) error {
			return r.Scan(store.Run, nil, nil, func(key, _ []byte) bool {
				group, id, err := store.ParseGroupKey(store.Run, key)
				if group != store.OlderTasks || err != nil {
					t.Errorf("%s: key %x of group %d (%v), want those of OlderTasks only", name, key, group, err)
				}
				noted[id.Space] = id
				return true
			})
		})
		if err != nil || !maps.Equal(noted, newest) {
			t.Errorf("%s: noted %v (%v), want %v", name, noted, err, newest)
		}
	}
}
