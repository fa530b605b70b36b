package records_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// TaskWithoutLease returns the same task as Task, and the payload if that has at most SmallPayload
// bytes. It does not read a larger payload, but Size has its length.
func TestTaskWithoutLeaseHasSmallPayload(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	sizes := []int{0, 1, records.SmallPayload, records.SmallPayload + 1}
	for _, size := range sizes {
		w.submit(lease.Spec{Queue: "q", Payload: make([]byte, size)})
		w.flush(t)
	}
	view(t, w.store, func(r store.Reader) error {
		for i, size := range sizes {
			want, err := records.Task(r, id(uint64(i+1)))
			if err != nil {
				return err
			}
			if size > 0 && size <= records.SmallPayload {
				want.Spec.Payload = make([]byte, size)
			}
			got, err := records.TaskWithoutLease(r, want.ID)
			if err != nil {
				return err
			}
			if len(got.Spec.Payload) == 0 {
				got.Spec.Payload = nil
			}
			if diff := cmp.Diff(want, got); diff != "" || got.Spec.Size != size {
				t.Errorf("payload of %d bytes: Size is %d, -want +got:\n%s", size, got.Spec.Size, diff)
			}
		}
		none, err := records.TaskWithoutLease(r, id(99))
		if none != nil || err != nil {
			t.Errorf("TaskWithoutLease of a task that does not exist = %v, error %v; want nil and no error", none, err)
		}
		return nil
	})
}

// Tasks that are read one after the other share the strings of equal names. A task must not get the
// name of the task before it, or a name of another field.
func TestSharedNamesAreNotMixedUp(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	queues := []string{"a", "b", "ab", "a", "a"}
	types := []string{"a", "a", "", "b", ""}
	for i := range queues {
		w.submit(lease.Spec{Queue: queues[i], Type: types[i]})
		w.flush(t)
	}
	view(t, w.store, func(r store.Reader) error {
		return records.Tasks(r, space, "", 0, func(task *lease.Task) bool {
			i := task.ID.Seq - 1
			if want := (lease.Line{Queue: queues[i], Type: types[i]}); task.Line() != want {
				t.Errorf("task %d is in line %+v, want %+v", i, task.Line(), want)
			}
			return true
		})
	})
}

// A workspace is found by its name, without reading the others.
func TestSpaceOf(t *testing.T) {
	st, want := memstore.New(), records.Space{Tenant: "acme", Workspace: "main", Number: 2, NextSeq: 7, LostFrom: 3, LostTo: 5}
	commit(t, st, func(b *store.Batch) {
		records.PutSpace(b, records.Space{Tenant: "acme", Workspace: "mai", Number: 1, NextSeq: 2})
		records.PutSpace(b, want)
	})
	view(t, st, func(r store.Reader) error {
		got, err := records.SpaceOf(r, "acme", "main")
		if err != nil || got == nil || *got != want {
			t.Errorf("got %+v (%v), want %+v", got, err, want)
		}
		if got, err := records.SpaceOf(r, "acme", "other"); err != nil || got != nil {
			t.Errorf("a workspace that there is not: %+v (%v), want nil", got, err)
		}
		return nil
	})
}
