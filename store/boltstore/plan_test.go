package boltstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// The ledger takes little space in the file, whether its records come in the order of the task ids,
// nearly in that order, or in a very different order.
func TestLedgerTakesLittleSpace(t *testing.T) {
	const (
		rows   = 2000
		commit = 10
		size   = 44  // of a committed report
		most   = 150 // bytes of the file for each report; 53 of them fill a page
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the order is to be repeatable
	for _, window := range []float64{0, 100, 1000} {
		t.Run(fmt.Sprintf("%.0f tasks under way", window), func(t *testing.T) {
			s, err := Open(t.TempDir(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ended, order := make([]float64, rows), make([]int, rows)
			for i := range order {
				ended[i], order[i] = float64(i)+window*random.Float64(), i
			}
			slices.SortFunc(order, func(a, b int) int {
				if ended[a] < ended[b] {
					return -1
				}
				return 1
			})
			for part := range slices.Chunk(order, commit) {
				var b store.Batch
				for _, i := range part {
					b.Put(store.Ledger, store.AppendAttemptKey(nil, lease.TaskID{Space: 1, Seq: uint64(i)}, 1),
						make([]byte, size))
				}
				if err := s.Commit(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}
			if each := bytesInFile(t, s, store.Ledger) / rows; each > most {
				t.Errorf("the ledger takes %d bytes of the file for each report, want at most %d", each, most)
			}
		})
	}
}

// bytesInFile returns how many bytes of the file the pages of a keyspace take.
func bytesInFile(t *testing.T, s *Store, ks store.Keyspace) (n int) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		stats := tx.Bucket([]byte(ks.String())).Stats()
		n = stats.LeafAlloc + stats.BranchAlloc
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// commitInParts commits rows changes, part of them at a time; put adds number i.
func commitInParts(t *testing.T, s *Store, rows, part int, put func(b *store.Batch, i int)) {
	t.Helper()
	for first := 0; first < rows; first += part {
		var b store.Batch
		for i := first; i < min(first+part, rows); i++ {
			put(&b, i)
		}
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
}

// Timers take little space in the file, whether they come in the order of their times, as those of
// retention do, or in any order, as those of delayed tasks do.
func TestTimersTakeLittleSpace(t *testing.T) {
	const (
		rows   = 20_000
		commit = 500
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the order is to be repeatable
	for name, tt := range map[string]struct {
		due  func(i int) lease.Wall
		most int // bytes of the file for each timer; an entry has 37, and a page 4 KiB
	}{
		"in order":     {func(i int) lease.Wall { return lease.Wall(i) }, 42},
		"in any order": {func(int) lease.Wall { return lease.Wall(random.Int64()) }, 70},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.TempDir(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			commitInParts(t, s, rows, commit, func(b *store.Batch, i int) {
				b.Put(store.Timer, store.WallTimer(tt.due(i), lease.TaskID{Space: 1, Seq: uint64(i)}).Append(nil), nil)
			})
			if each := bytesInFile(t, s, store.Timer) / rows; each > tt.most {
				t.Errorf("timers take %d bytes of the file each, want at most %d", each, tt.most)
			}
		})
	}
}

// Tasks take little space in the file, also if they come in many workspaces at once, so that the
// keys of most are between others.
func TestTasksOfManySpacesTakeLittleSpace(t *testing.T) {
	const (
		rows   = 20_000
		commit = 500
		spaces = 10
		value  = 150
		most   = 200 // bytes of the file for each; an entry has 178
	)
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	commitInParts(t, s, rows, commit, func(b *store.Batch, i int) {
		b.Put(store.Spec, store.AppendTaskKey(nil, lease.TaskID{Space: uint32(i % spaces), Seq: uint64(i)}), make([]byte, value)) //nolint:gosec // small
	})
	if each := bytesInFile(t, s, store.Spec) / rows; each > most {
		t.Errorf("specs take %d bytes of the file each, want at most %d", each, most)
	}
}
