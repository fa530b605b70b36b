//go:build !race

package boltstore

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// A View allocates memory for the first record that it reads of a keyspace, and none for the
// others.
func TestGetAllocatesOnce(t *testing.T) {
	s, l := openWithSteps(t)
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
				t.Errorf("Get of task %d = nil, want its record", seq)
			}
			seq++
		}
		if allocs := testing.AllocsPerRun(2000, get); allocs > 0 {
			t.Errorf("Get makes %v allocations for each record, want 0", allocs)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What a commit allocates for each record is what bbolt does: a copy of the key and the path to its
// page. Everything else is allocated once for the commit or for a page. The test does not run with
// the race detector, which drops pooled memory and so would count more.
func TestCommitAllocatesLittle(t *testing.T) {
	const tasks, records, most = 500, 2, 4 // a submit writes two records
	s, l := openWithSteps(t)
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
		t.Errorf("a commit makes %.2f allocations for each record, want at most %v", each, most)
	}
}

func openWithSteps(t *testing.T) (*Store, *taskSteps) {
	t.Helper()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, new(taskSteps)
}
