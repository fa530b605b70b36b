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
	e, err := Open(st, Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		_ = st.Close()
	})
	return e
}

// BenchmarkLifecycle takes tasks from submit over grant to COMMITTED: frames of so many submits, and a session whose every frame of grants is
// answered with a frame of completes. One operation is one task.
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
	payload := make([]byte, 256)
	b.ReportAllocs()
	b.ResetTimer()
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
	left.Wait()
}
