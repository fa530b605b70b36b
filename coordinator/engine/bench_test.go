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

// bench starts an engine on a store of its own, in real time.
func bench(b *testing.B, st store.Store) *Engine {
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

// BenchmarkLifecycle takes tasks from submit over grant to COMMITTED: each submit call has so many tasks, and the session answers each batch of
// grants with one batch of completes. One operation is one task.
func BenchmarkLifecycle(b *testing.B) {
	for _, frame := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("bolt/frame=%d", frame), func(b *testing.B) {
			st, err := boltstore.Open(b.TempDir(), boltstore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			lifecycle(b, bench(b, st), frame)
		})
		b.Run(fmt.Sprintf("mem/frame=%d", frame), func(b *testing.B) { lifecycle(b, bench(b, memstore.New()), frame) })
	}
}

func lifecycle(b *testing.B, e *Engine, frame int) {
	var left sync.WaitGroup
	left.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	consume(b, e, frame, &left)
	produce(b, e, frame)
	left.Wait()
}

// BenchmarkDrain takes tasks that were submitted before a restart from grant to COMMITTED: each is read from the store. One operation is one task.
func BenchmarkDrain(b *testing.B) {
	const frame = 500
	st, err := boltstore.Open(b.TempDir(), boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	before, stop := serve(b, st)
	produce(b, before, frame)
	stop()
	e := bench(b, st)
	var left sync.WaitGroup
	left.Add(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	consume(b, e, frame, &left)
	left.Wait()
}

// consume completes whatever is granted, and calls left.Done for each task.
func consume(b *testing.B, e *Engine, frame int, left *sync.WaitGroup) {
	b.Helper()
	complete := func(granted []Granted) {
		reports := make([]*lease.Report, len(granted))
		for i, g := range granted {
			reports[i] = &lease.Report{
				Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Result: &lease.Result{Output: []byte("ok")},
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
		Session: NewSessionID("t", "w", "i"), Slots: 2 * frame, Deliver: complete, Notify: func([]Notice) {}, Displaced: func() {},
		Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}},
	}
	if err := e.Join(m); err != nil {
		b.Fatal(err)
	}
}

// produce submits b.N tasks.
func produce(b *testing.B, e *Engine, frame int) {
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

// BenchmarkMatch hands out waiting tasks to sessions with free slots. One operation is one grant, with its step and what it changes in memory. The
// cost must not rise with the number of waiting sessions.
func BenchmarkMatch(b *testing.B) {
	const tasks = 1000
	for _, takers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("takers=%d", takers), func(b *testing.B) {
			h := newHand(b, takers, tasks/takers)
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= tasks {
				b.StopTimer()
				n := min(left, tasks)
				h.put(h.specs(n))
				h.committed()
				b.StartTimer()
				h.match(h.now)
				b.StopTimer()
				reports := h.completions(n)
				h.committed()
				h.complete(reports)
				h.committed()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkShortLife judges the Start and the Complete of a short task, which come in one frame. One operation is one task.
func BenchmarkShortLife(b *testing.B) {
	const tasks = 500
	h := newHand(b, 1, tasks)
	b.ReportAllocs()
	for left := b.N; left > 0; left -= tasks {
		b.StopTimer()
		h.put(h.specs(tasks))
		h.committed()
		h.match(h.now)
		reports := withStarts(h.completions(tasks))
		h.committed()
		b.StartTimer()
		h.complete(reports)
		b.StopTimer()
		h.committed()
		b.StartTimer()
	}
}

// BenchmarkEncode encodes the steps in the lives of 500 tasks as store operations, one kind of step after the other. One operation is one task.
func BenchmarkEncode(b *testing.B) {
	const tasks = 500
	h := newHand(b, 1, tasks)
	part := func(name string) {
		h.batch.seal(h.now.Serving)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for left := b.N; left > 0; left -= tasks {
				h.encodeBatch()
			}
		})
	}
	h.put(h.specs(tasks))
	part("submit")
	h.committed()
	h.match(h.now)
	part("grant")
	reports := h.completions(tasks)
	h.committed()
	h.complete(reports)
	part("complete")
}
