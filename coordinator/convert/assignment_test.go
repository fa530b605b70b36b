package convert

import (
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// An assignment has the payload of its task, whether the engine has kept the payload or not. A task that was deleted since its grant is left out: its worker
// must not run it without its payload.
func TestAssignmentsHaveTheirPayloads(t *testing.T) {
	st := memstore.New()
	kept := granted(t, st)
	with := func(seq uint64, size int) engine.Granted {
		task, spec := *kept.Task, *kept.Task.Spec
		spec.Payload, spec.Size = nil, size
		task.ID.Seq, task.Spec = seq, &spec
		return engine.Granted{Task: &task}
	}
	const size, deleted = 256, 2
	a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
	err := st.View(func(r store.Reader) error {
		all, err := a.Assignments(r, lease.Now{Serving: 1, Wall: 1}, []engine.Granted{with(deleted, size), *kept, with(1, size), with(3, 0)})
		var got []int
		for _, m := range all {
			got = append(got, len(m.GetTask().GetSpec().GetPayload()))
		}
		if want := []int{size, size, 0}; !slices.Equal(got, want) {
			t.Errorf("payloads of %d bytes, want %d", got, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkAssignment makes the assignment for a grant, with the payload in memory or on disk. One operation is one task.
func BenchmarkAssignment(b *testing.B) {
	st, err := boltstore.Open(b.TempDir(), boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
	kept, onDisk := granted(b, st), granted(b, st)
	spec := *onDisk.Task.Spec
	spec.Payload = nil
	onDisk.Task.Spec = &spec
	for name, g := range map[string]*engine.Granted{"memory": kept, "disk": onDisk} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			at := new(Times) // one for each frame
			err := st.View(func(r store.Reader) error {
				for b.Loop() {
					if _, err := a.assignment(r, at, g, new(assigned)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// granted stores a task with a payload of 256 bytes, and returns it as it is right after its grant.
func granted(b testing.TB, st store.Store) *engine.Granted {
	b.Helper()
	spec := &lease.Spec{Queue: "q", Payload: make([]byte, 256)}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		b.Fatal(err)
	}
	t := &lease.Task{ID: lease.TaskID{Space: 1, Seq: 1}, Tenant: "t", Workspace: "w", Spec: spec, Lease: &lease.Lease{Attempt: 1}}
	var batch store.Batch
	records.Put(&batch, &lease.Change{New: t})
	if err := st.Commit(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	return &engine.Granted{Task: t}
}
