//go:build !race

package records_test

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// Put does not allocate in a batch that is reused, for any change from the submit of a task to its
// complete. The test does not run with the race detector, which sometimes drops pooled memory.
func TestPutDoesNotAllocate(t *testing.T) {
	changes := lifecycle(lease.Spec{Queue: "mail", Type: "send", Payload: make([]byte, 100)})
	var b store.Batch
	allocs := testing.AllocsPerRun(100, func() {
		b.Reset()
		for range 10 {
			for _, c := range changes {
				records.Put(&b, c)
			}
		}
	})
	if allocs > 0 {
		t.Errorf("Put made %v allocations for ten lives of a task, want 0", allocs)
	}
}

// TaskWithoutLease allocates a task, its spec, its payload and the key, and nothing else: it reuses
// the strings of the task that was read before, if they are equal.
func TestTaskWithoutLeaseAllocatesLittle(t *testing.T) {
	st := memstore.New()
	commit(t, st, func(b *store.Batch) {
		records.Put(b, lifecycle(lease.Spec{Queue: "mail", Type: "send", Payload: make([]byte, 100)})["submit"])
	})
	view(t, st, func(r store.Reader) error {
		const most = 4
		allocs := testing.AllocsPerRun(100, func() { _, _ = records.TaskWithoutLease(r, id(1)) })
		if allocs > most {
			t.Errorf("TaskWithoutLease made %v allocations for a waiting task, want at most %d", allocs, most)
		}
		return nil
	})
}
