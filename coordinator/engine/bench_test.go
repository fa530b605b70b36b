package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/memstore"
)

// startEngine starts an engine on the store, in real time, and stops it when the benchmark ends.
func startEngine(b *testing.B, st store.Store) *Engine {
	b.Helper()
	e, stop := serve(b, st)
	b.Cleanup(func() {
		stop()
		_ = st.Close()
	})
	return e
}

func serve(b *testing.B, st store.Store) (e *Engine, stop func()) {
	b.Helper()
	e, err := Open(st, Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return e, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkLifecycle takes tasks from submit over grant to COMMITTED: each submit call has so many
// tasks, and the session answers each batch of grants with one batch of completes. One operation is
// one task.
func BenchmarkLifecycle(b *testing.B) {
	for _, frame := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("bolt/frame=%d", frame), func(b *testing.B) {
			st, err := boltstore.Open(b.TempDir(), boltstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			lifecycle(b, startEngine(b, st), frame)
		})
		b.Run(fmt.Sprintf("mem/frame=%d", frame), func(b *testing.B) { lifecycle(b, startEngine(b, memstore.New()), frame) })
	}
}

func lifecycle(b *testing.B, e *Engine, frame int) {
	var left sync.WaitGroup
	left.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	completeAll(b, e, frame, &left)
	submitAll(b, e, frame)
	left.Wait()
}

// BenchmarkDrain takes tasks that were submitted before a restart from grant to COMMITTED: each is
// read from the store. One operation is one task.
func BenchmarkDrain(b *testing.B) {
	const frame = 500
	st, err := boltstore.Open(b.TempDir(), boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	before, stop := serve(b, st)
	submitAll(b, before, frame)
	stop()
	e := startEngine(b, st)
	var left sync.WaitGroup
	left.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	completeAll(b, e, frame, &left)
	left.Wait()
}

// completeAll joins a session that completes every task that it is granted, and calls left.Done for
// each.
func completeAll(b *testing.B, e *Engine, frame int, left *sync.WaitGroup) {
	b.Helper()
	complete := func(granted []Granted) {
		reports := make([]*lease.Report, len(granted))
		for i, g := range granted {
			reports[i] = &lease.Report{
				Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID,
				Result: &lease.Result{Output: []byte("ok")},
			}
		}
		err := e.Post(home.Tenant, reports, func(answers []lease.Answer, err error) {
			for _, a := range answers {
				if err != nil || a.Verdict != lease.VerdictCommitted {
					b.Error(err, a)
				}
				left.Done()
			}
		})
		if err != nil {
			b.Error(err)
		}
	}
	m := &Member{
		Session: NewSessionID("t", "w", "i"), Slots: 2 * frame, Deliver: complete, Notify: func([]Notice) {},
		Displaced: func(string) {},
		Wants:     Wants{Space: home, Worker: "w", Queues: []string{"q"}},
	}
	e.Join(m)
}

// submitAll submits b.N tasks.
func submitAll(b *testing.B, e *Engine, frame int) {
	b.Helper()
	payload := make([]byte, 256)
	for sent := 0; sent < b.N; {
		n := min(frame, b.N-sent)
		specs := make([]*lease.Spec, n)
		for i := range specs {
			specs[i] = &lease.Spec{Queue: "q", Payload: payload}
			if err := specs[i].Fill(lease.DefaultLimits()); err != nil {
				b.Fatal(err)
			}
		}
		if _, _, err := e.Submit(b.Context(), home, specs, make([]lease.Digest, n)); err != nil {
			b.Fatal(err)
		}
		sent += n
	}
}

// BenchmarkMatch hands out waiting tasks to sessions with free slots. One operation is one grant,
// with its step and what it changes in memory. The cost must not rise with the number of waiting
// sessions.
func BenchmarkMatch(b *testing.B) {
	const tasks = 1000
	bound(b, tasks+1, &takersPerBatch) // a batch hands out all of them
	for _, takers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("takers=%d", takers), func(b *testing.B) {
			h := newManualEngine(b, takers, tasks/takers)
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= tasks {
				b.StopTimer()
				n := min(left, tasks)
				h.submitSpecs(h.specs(n))
				h.endBatch()
				b.StartTimer()
				h.match()
				b.StopTimer()
				reports := h.completions(n)
				h.endBatch()
				h.complete(reports)
				h.endBatch()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkRevoke revokes the leases of many instances of a worker, each of which has a session
// with one lease. One operation is one instance. The cost must not rise with their number.
func BenchmarkRevoke(b *testing.B) {
	for _, most := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("instances=%d", most), func(b *testing.B) {
			e := startEngine(b, memstore.New())
			submitAll(b, e, 100)
			for left := b.N; left > 0; left -= most {
				b.StopTimer()
				instances := joinAndLease(b, e, min(left, most))
				b.StartTimer()
				if removed, _, err := e.Revoke(b.Context(), home.Tenant, instances, false, ""); err != nil || len(removed) != len(instances) {
					b.Fatal(len(removed), err)
				}
			}
		})
	}
}

// joinAndLease joins sessions of so many instances, and returns the instances when each of them has
// leased a task.
func joinAndLease(b *testing.B, e *Engine, n int) (instances []string) {
	b.Helper()
	var granted sync.WaitGroup
	granted.Add(n)
	for i := range n {
		m := &Member{
			Session: NewSessionID("t", "w", fmt.Sprint(i)), Slots: 1, Deliver: func([]Granted) { granted.Done() },
			Notify:    func([]Notice) {},
			Displaced: func(string) {}, Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}},
		}
		e.Join(m)
		instances = append(instances, lease.InstanceOf(m.Session))
	}
	granted.Wait()
	return instances
}

// BenchmarkPublish passes the news of 500 tasks of a run to its watchers, which read nothing. One
// operation is one task.
func BenchmarkPublish(b *testing.B) {
	const tasks = 500
	spec, changes := &lease.Spec{RunID: "run"}, make([]*change, tasks)
	for i := range changes {
		task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: uint64(i + 1)}, Spec: spec}
		changes[i] = &change{Change: lease.Change{New: task}, id: task.ID}
	}
	for _, watchers := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			h, of := newHub(), Watching{Run: "run"}
			for range watchers {
				h.topic(of).subscribe(h, of)
			}
			b.ReportAllocs()
			for left := b.N; left > 0; left -= tasks {
				h.publish(&batch{changes: changes})
			}
		})
	}
}

// BenchmarkPublishEnds tells those who listen of the ends of 500 tasks. One operation is one task.
func BenchmarkPublishEnds(b *testing.B) {
	const tasks = 500
	changes := make([]*change, tasks)
	for i := range changes {
		task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: uint64(i + 1)}}
		task.Rest = lease.Completed
		changes[i] = &change{Change: lease.Change{New: task}, id: task.ID}
	}
	for _, listeners := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("listeners=%d", listeners), func(b *testing.B) {
			e := &Engine{hub: newHub()}
			all := make([]*Ends, listeners)
			for i := range all {
				all[i] = e.Ends()
			}
			b.ReportAllocs()
			for left := b.N; left > 0; left -= tasks {
				b.StopTimer()
				for _, ends := range all {
					ends.Take()
					for _, c := range changes {
						ends.Listen(c.id)
					}
				}
				b.StartTimer()
				e.hub.publish(&batch{changes: changes})
			}
		})
	}
}

// BenchmarkParked completes the one task whose concurrency key has room, grants the next one, and
// submits another, while tasks of so many fairness keys wait for the concurrency key. One operation
// is one task.
func BenchmarkParked(b *testing.B) {
	for _, lines := range []int{1, 100, 1000, 100_000} {
		b.Run(fmt.Sprintf("lines=%d", lines), func(b *testing.B) {
			h := newManualEngine(b, 1, 10)
			submit := func(first, n int) {
				specs, digests := h.specs(n)
				for i, s := range specs {
					s.ConcurrencyKey, s.ConcurrencyLimit, s.FairnessKey = "k", 1, fmt.Sprint((first+i)%lines)
				}
				h.submitSpecs(specs, digests)
			}
			matchAll := func() {
				for h.match(); !h.agenda.empty() || len(h.parking.roomy) > 0; h.match() {
				}
			}
			submit(0, 1)
			matchAll()
			granted := h.completions(1)
			for i, n := 0, min(1000, lines); i < 2*lines; i += n {
				submit(i, n)
				matchAll()
				h.endBatch()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				h.complete(granted)
				submit(i, 1)
				matchAll()
				granted = h.completions(1)
				h.endBatch()
			}
		})
	}
}

// BenchmarkShortLife judges the Start and the Complete of a short task, which come in one frame.
// One operation is one task.
func BenchmarkShortLife(b *testing.B) {
	const tasks = 500
	h := newManualEngine(b, 1, tasks)
	b.ReportAllocs()
	for left := b.N; left > 0; left -= tasks {
		b.StopTimer()
		h.submitSpecs(h.specs(tasks))
		h.endBatch()
		h.match()
		reports := withStarts(h.completions(tasks))
		h.endBatch()
		b.StartTimer()
		h.complete(reports)
		b.StopTimer()
		h.endBatch()
		b.StartTimer()
	}
}

// BenchmarkEncode encodes the steps in the lives of 500 tasks as store operations, one kind of step
// after the other. One operation is one task.
func BenchmarkEncode(b *testing.B) {
	const tasks = 500
	h := newManualEngine(b, 1, tasks)
	part := func(name string) {
		h.batch().seal(h.now().Serving)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for left := b.N; left > 0; left -= tasks {
				h.encodeBatch()
			}
		})
	}
	h.submitSpecs(h.specs(tasks))
	part("submit")
	h.endBatch()
	h.match()
	part("grant")
	reports := h.completions(tasks)
	h.endBatch()
	h.complete(reports)
	part("complete")
}
