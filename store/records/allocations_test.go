//go:build !race

package records_test

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// A batch that is used again takes in the life of a task without allocations. The race detector lets go of pooled memory, so that it would count some.
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
		t.Errorf("ten lives allocated %v times", allocs)
	}
}

// What is read of a waiting task is its two parts, the payload and the key that is looked for; the names are shared with the task before.
func TestRestingAllocatesLittle(t *testing.T) {
	st := memstore.New()
	commit(t, st, func(b *store.Batch) {
		records.Put(b, lifecycle(lease.Spec{Queue: "mail", Type: "send", Payload: make([]byte, 100)})["submit"])
	})
	view(t, st, func(r store.Reader) error {
		const most = 4
		allocs := testing.AllocsPerRun(100, func() { _, _ = records.Resting(r, id(1)) })
		if allocs > most {
			t.Errorf("a waiting task allocated %v times, want at most %d", allocs, most)
		}
		return nil
	})
}
