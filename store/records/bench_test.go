package records_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// lifecycle returns the changes of a task from its submit to its complete, by name.
func lifecycle(spec lease.Spec) map[string]*lease.Change {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	changes := map[string]*lease.Change{}
	keep := func(name string, out lease.Step) { changes[name] = &out.Changes[0] }
	spec.StartTimeout = time.Hour
	_ = spec.Fill(w.rules.Limits)
	keep("submit", w.step(lease.Submit{Space: space, Tenant: "acme", Workspace: "main", Specs: []*lease.Spec{&spec}}))
	task := id(1)
	keep("grant", w.step(lease.Grant{Task: task, Worker: "worker-1", Session: "session-1"}))
	say := func(name string, r lease.Report) {
		t := w.tasks[task]
		r.TaskID = task.String()
		r.LeaseID = w.rules.Authority.Issue(t.Tenant, lease.Ticket{Epoch: 1, Task: task, Attempt: 1, Nonce: t.Lease.Nonce})
		keep(name, w.step(lease.Judge{Tenant: t.Tenant, Reports: []*lease.Report{&r}}))
	}
	say("start", lease.Report{Kind: lease.KindStart})
	say("renewal", lease.Report{Kind: lease.KindHeartbeat})
	say("complete", lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: make([]byte, 100)}})
	return changes
}

// ordinary returns the spec of an ordinary task.
func ordinary() lease.Spec {
	return lease.Spec{Queue: "mail", Type: "send", Payload: make([]byte, 100), Labels: map[string]string{"team": "blue"}}
}

func BenchmarkPut(b *testing.B) {
	changes := lifecycle(ordinary())
	for _, name := range []string{"submit", "grant", "renewal", "complete"} {
		b.Run(name, func(b *testing.B) {
			var batch store.Batch
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				records.Put(&batch, changes[name])
			}
			b.SetBytes(int64(batch.Bytes()))
		})
	}
}

func BenchmarkTask(b *testing.B) {
	w := fullWorld(b)
	plain := memstore.New()
	var batch store.Batch
	records.Put(&batch, lifecycle(ordinary())["submit"])
	if err := plain.Commit(b.Context(), &batch); err != nil {
		b.Fatal(err)
	}
	for name, task := range map[string]struct {
		in store.Store
		id lease.TaskID
	}{"plain": {plain, id(1)}, "waiting": {w.store, id(2)}, "leased": {w.store, id(1)}} {
		b.Run(name, func(b *testing.B) {
			view(b, task.in, func(r store.Reader) error {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := records.Task(r, task.id); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
