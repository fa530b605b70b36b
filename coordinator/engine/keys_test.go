package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// keyed returns a task with an idempotency key.
func keyed(key string) *lease.Spec {
	s := work()
	s.IdempotencyKey = key
	_ = s.Fill(lease.DefaultLimits())
	return s
}

// T1: while recent entries become a segment, each key leads to its task, also if no commit ends for
// a long time. A commit has one part of that work at most, however many batches it has.
func TestKeysAreKnownWhileTheyMove(t *testing.T) {
	t.Attr("rules", "T1")
	runWith(t, Config{KeySegment: 3}, func(r *rig) {
		r.submit(keyed("a"))
		r.submit(keyed("b"))
		synctest.Wait()
		release := r.holdCommit()
		for i := range 5 {
			go func() {
				_, _, _ = r.Submit(r.Context(), home, []*lease.Spec{keyed(fmt.Sprint(i))}, []lease.Digest{{9}})
			}()
			// the third task makes the entries a segment; each further one is a batch of the next
			// commit
			synctest.Wait()
		}
		moves := onLoopLater(r, func() (n int) {
			for _, b := range append(r.pipeline.inflight, r.batch()) {
				n += len(b.puts)
			}
			return n
		})
		repeat := make(chan error, 1)
		go func() {
			_, _, err := r.Submit(r.Context(), home, []*lease.Spec{keyed("a")}, []lease.Digest{{9}})
			repeat <- err
		}()
		synctest.Wait()
		release()
		if _, exists := errors.AsType[*lease.ExistsError](<-repeat); !exists {
			r.Error("a submit of another spec with a key that exists is not refused")
		}
		if n := <-moves; n != 1 {
			r.Errorf("the batches under way have %d parts of what moves keys, want 1", n)
		}
		synctest.Wait()
	})
}

// onLoopLater is onLoop for a loop whose answers have to wait for a commit.
func onLoopLater[T any](r *rig, read func() T) <-chan T {
	found := make(chan T, 1)
	_ = r.inbox.put(home.Tenant, op{must: true, run: func() { found <- read() }})
	synctest.Wait()
	return found
}

// slowlyRead is a store that takes a second for each view.
type slowlyRead struct{ store.Store }

func (s slowlyRead) View(fn func(store.Reader) error) error {
	time.Sleep(time.Second)
	return s.Store.View(fn)
}

// withSegments calls do with an engine over a store with many segments of keys, which it reads
// slowly, and which is not served yet.
func withSegments(t *testing.T, segments int, do func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, cfg := &rig{T: t, st: memstore.New()}, Config{KeySegment: 2}
		r.start(cfg)
		for i := range 2 * segments {
			r.submit(keyed(fmt.Sprint("key", i)))
			synctest.Wait() // until a segment that this makes is durable: otherwise the next one may be larger
		}
		r.stop()
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		r.open(cfg)
		if n := len(r.set.byKey.Unread()); n < segments-1 {
			t.Fatalf("there are %d segments, want %d", n, segments)
		}
		r.Engine.st = slowlyRead{r.st} // the loop has the store itself
		do(r)
	})
}

// T1, A10: a start does not wait for the filters of the segments, and keys are known without them.
// An end does not wait for them either, and what was read by then does not make it a failure.
func TestFiltersHoldUpNothing(t *testing.T) {
	t.Attr("rules", "A10 T1")
	const segments = 20
	for name, end := range map[string]func(r *rig) error{
		"stop": func(r *rig) error { r.stop(); return nil },
		"a failed commit": func(r *rig) error {
			r.st.(*memstore.Store).SetHook(func(context.Context, *store.Batch, func()) error { return errors.New("EIO") })
			_, _, _ = r.Submit(r.Context(), home, []*lease.Spec{work()}, []lease.Digest{{1}})
			return ErrStore
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSegments(t, segments, func(r *rig) {
				began := time.Now()
				r.serve()
				r.wantKeys("key0", "key20", "key39")
				if took := time.Since(began); took > time.Second {
					r.Errorf("three submits right after a start took %v", took)
				}
				want := end(r)
				if err := <-r.done; !errors.Is(err, want) {
					r.Errorf("Run returned %v, want %v", err, want)
				}
				if took := time.Since(began); took > 3*time.Second {
					r.Errorf("the end came after %v, want it before the other filters are read, which takes %d s", took, segments)
				}
			})
		})
	}
}

// A filter that cannot be read ends the engine, and no other is read after it.
func TestUnreadableFilterEndsTheEngine(t *testing.T) {
	withSegments(t, 20, func(r *rig) {
		st := &unreadableStore{Store: r.st.(*memstore.Store)}
		st.on.Store(true)
		r.Engine.st = slowlyRead{st}
		began := time.Now()
		r.serve()
		if err := <-r.done; !errors.Is(err, ErrStore) {
			r.Errorf("Run returned %v, want ErrStore", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			r.Errorf("the end came after %v", took)
		}
	})
}

// When the filters are read, a look-up of a new key reads nothing.
func TestFiltersAreRead(t *testing.T) {
	withSegments(t, 20, func(r *rig) {
		r.serve()
		time.Sleep(time.Minute)
		n := onLoop(r, func() int { return len(r.set.byKey.Unread()) })
		if n != 0 {
			r.Errorf("%d filters are not read after a minute", n)
		}
		r.wantKeys("key0", "key20", "key39")
		r.shutDown()
	})
}
