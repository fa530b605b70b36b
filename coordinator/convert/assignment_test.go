package convert

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
)

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
