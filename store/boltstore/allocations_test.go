//go:build !race

package boltstore

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// However many records a View reads, it takes memory for the first of a keyspace only.
func TestGetAllocatesOnce(t *testing.T) {
	s, l := openLives(t)
	var b store.Batch
	for seq := range uint64(1000) {
		l.submit(&b, lease.TaskID{Space: 1, Seq: seq})
	}
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	err := s.View(func(r store.Reader) error {
		seq := uint64(0)
		get := func() {
			l.key = store.AppendTaskKey(l.key[:0], lease.TaskID{Space: 1, Seq: seq % 1000})
			if r.Get(store.Spec, l.key) == nil {
				t.Errorf("task %d is not there", seq)
			}
			seq++
		}
		if allocs := testing.AllocsPerRun(2000, get); allocs > 0 {
			t.Errorf("each record allocated %v times", allocs)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What a commit allocates for a record is what bbolt does: a copy of the key and the path to its page. All else is once for the commit, or for
// a page. The race detector lets go of pooled memory, so that it would count more.
func TestCommitAllocatesLittle(t *testing.T) {
	const tasks, records, most = 500, 3, 4
	s, l := openLives(t)
	var b store.Batch
	seq := uint64(0)
	allocs := testing.AllocsPerRun(20, func() {
		b.Reset()
		for range tasks {
			l.submit(&b, lease.TaskID{Space: 1, Seq: seq})
			seq++
		}
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	})
	if each := allocs / (tasks * records); each > most {
		t.Errorf("a record allocated %.2f times, want at most %v", each, most)
	}
}

func openLives(t *testing.T) (*Store, *lives) {
	t.Helper()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, new(lives)
}
