package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// slowReads is a store that scans lines slowly: a scan returns 10 to 49 ms after its View took the
// state that it reads. Each commit takes 1 ms.
type slowReads struct {
	*memstore.Store
	reads atomic.Int64
}

// Begin implements store.Store.
func (s *slowReads) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, s.Commit), nil
}

func (s *slowReads) Commit(ctx context.Context, b *store.Batch) error {
	time.Sleep(time.Millisecond)
	return s.Store.Commit(ctx, b)
}

func (s *slowReads) View(fn func(store.Reader) error) error {
	return s.Store.View(func(r store.Reader) error { return fn(slowReader{r, s}) })
}

type slowReader struct {
	store.Reader
	s *slowReads
}

func (r slowReader) Scan(k store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	if k == store.Ready {
		time.Sleep(time.Duration(10+7*r.s.reads.Add(1)%40) * time.Millisecond)
	}
	return r.Reader.Scan(k, from, to, fn)
}

// countedReads counts the calls of View.
type countedReads struct {
	*memstore.Store
	views atomic.Int64
}

func (s *countedReads) View(fn func(store.Reader) error) error {
	s.views.Add(1)
	return s.Store.View(fn)
}

// A line that is too long for memory is read from the store in large pieces, also while it grows:
// here at most one read per 60 tasks. New tasks at the end of the line must not use the memory that
// the next tasks need.
func TestLongLineIsNotReadTaskByTask(t *testing.T) {
	bound(t, 512, &lineHead)
	bound(t, 2048, &maxIdle)
	synctest.Test(t, func(t *testing.T) {
		st := &countedReads{Store: memstore.New()}
		r := &rig{T: t, st: st}
		r.start(Config{})
		const part, parts = 60, 40
		for range maxIdle/part + 1 {
			r.submit(many(part)...)
		}
		before := st.views.Load()
		for range parts {
			granted := r.lease(part, 0)
			r.submit(many(part)...)
			reports := make([]*lease.Report, len(granted))
			for i, g := range granted {
				reports[i] = &lease.Report{Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID}
			}
			if _, err := r.Judge(r.Context(), home.Tenant, reports); err != nil {
				t.Fatal(err)
			}
		}
		if views := st.views.Load() - before; views > parts {
			t.Errorf("the store was read %d times for %d tasks, want at most %d times", views, parts*part, parts)
		}
		r.shutDown()
	})
}

// T2: while the next part of a line is read in the background, the line changes: tasks are
// submitted before and behind the part that is in memory, cancelled, leased and given back. Each
// task is still granted once, and in order.
func TestReadAheadMissesNothing(t *testing.T) {
	t.Attr("rules", "T2")
	bound(t, 1024, &lineHead)
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := &rig{T: t, st: &slowReads{Store: memstore.New()}}
			r.start(Config{})
			var line []place // places of the tasks that wait, in the order in which they must be leased
			at := func(p place) int {
				i, _ := slices.BinarySearchFunc(line, p, func(a, b place) int {
					switch {
					case placeLess(a, b):
						return -1
					case placeLess(b, a):
						return 1
					}
					return 0
				})
				return i
			}
			add := func(p place) { line = slices.Insert(line, at(p), p) }
			ids := map[place]lease.TaskID{}
			cancelled := map[lease.TaskID]bool{}
			specs := func(n, priorities int) []*lease.Spec {
				specs := many(n)
				for _, s := range specs {
					s.Priority = int32(rnd.IntN(priorities))
				}
				return specs
			}
			submitted := func(tasks []*lease.Task) {
				for _, task := range tasks {
					ids[placeOf(task)] = task.ID
					add(placeOf(task))
				}
			}
			take := func(n int) {
				got, want := r.lease(n, 0), line[:min(n, len(line))]
				if len(got) != len(want) {
					t.Fatalf("leased %d tasks when %d wait and %d were asked for, want %d", len(got), len(line), n, len(want))
				}
				for i, g := range got {
					if p := placeOf(g.Task); p != want[i] {
						t.Fatalf("leased the task at place %v, want that at %v", p, want[i])
					}
				}
				line = line[len(want):]
				for i, g := range got {
					// released: the task goes back to its old place
					if g.Task.Attempt() <= lease.FreeReleases && rnd.IntN(50) == 0 {
						r.want(r.say(lease.KindRelease, g), lease.VerdictCommitted, lease.None)
						add(want[i])
					}
				}
			}
			cancel := func() {
				i := rnd.IntN(len(line))
				id := ids[line[i]]
				line = slices.Delete(line, i, i+1)
				cancelled[id] = true
				if _, err := r.Cancel(t.Context(), lease.Cancel{Tenant: home.Tenant, Task: id}); err != nil {
					t.Error(err)
				}
			}
			// submitBehindCommit submits tasks in the batch after the one whose commit is under
			// way, and starts to read ahead in each line in that same batch.
			submitBehindCommit := func() {
				var first sync.WaitGroup
				first.Go(cancel)
				synctest.Wait()
				more := specs(3, 3)
				for _, s := range more {
					if err := s.Fill(lease.DefaultLimits()); err != nil {
						t.Fatal(err)
					}
				}
				submitted(onLoop(r, func() (tasks []*lease.Task) {
					for _, done := range r.Engine.submit(home, more, make([]lease.Digest, len(more))).Submitted {
						tasks = append(tasks, done.Task)
					}
					for _, l := range r.spaces.named(home).queues["q"].flows[""].lines {
						r.lines.dropReading(l.readAhead)
						r.lines.startReading(l)
					}
					return tasks
				}))
				first.Wait()
			}
			changes := 0 // of lines while they were read ahead
			for range 8 {
				submitted(r.submit(specs(250, 3)...))
			}
			for bursts := 4; len(line) > 0; {
				switch rnd.IntN(8) {
				case 0:
					if len(line) > 750 {
						submitted(r.submit(specs(rnd.IntN(12)+1, 3)...))
					}
				case 1:
					cancel()
				case 2:
					if len(line) > 100 {
						submitBehindCommit()
					}
				case 3:
					time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
				case 4:
					// So many tasks before all others that the part in memory gets too long.
					if bursts > 0 && onLoop(r, func() int { return len(r.lines.readings) }) > 0 {
						bursts--
						for range 3 {
							more := specs(250, 1)
							for _, s := range more {
								s.Priority = 3
							}
							submitted(r.submit(more...))
						}
					}
				default:
					take(rnd.IntN(50) + 1)
				}
				changes += onLoop(r, func() (n int) {
					for a := range r.lines.readings {
						n += len(a.changed)
					}
					return n
				})
			}
			for id := range cancelled {
				if task := r.version(id); task.Rest != lease.Cancelled {
					t.Fatalf("task %v was cancelled and is %v in memory, want CANCELLED", id, task.Rest)
				}
			}
			if changes == 0 {
				t.Error("nothing changed while a line was read ahead, so the test has shown nothing")
			}
			r.shutDown()
		})
	}
}

// V15: while the next part of a line is read in the background, a task of that part keeps its place
// and gets a new version, because a late result is kept with it. The reading has the version
// before. The task must not be granted as it was then, because the kept result would be lost.
func TestReadAheadUndoesNoChange(t *testing.T) {
	t.Attr("rules", "V15")
	before := lineHead
	lineHead = 4
	defer func() { lineHead = before }()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: &slowReads{Store: memstore.New()}}
		r.start(Config{})
		id := r.submit(work())[0].ID
		late := r.lease(1, 0)[0]
		first := many(4) // memory holds these, and not the place behind them
		for _, s := range first {
			s.Priority = 1
		}
		tasks := r.submit(first...)
		var batch sync.WaitGroup
		// in one batch, the task gets behind the part in memory, and that part gets so short that
		// the line is read on
		batch.Go(func() {
			onLoop(r, func() bool {
				r.step(lease.Requeue{Task: id, Attempt: 1, Cause: lease.Revoked})
				for _, task := range tasks[:2] {
					r.step(lease.Cancel{Tenant: home.Tenant, Task: task.ID})
				}
				return true
			})
		})
		synctest.Wait()
		// in the next batch, before the reading has begun
		r.want(r.say(lease.KindComplete, late), lease.VerdictCancelled, lease.Revoked)
		batch.Wait()
		if onLoop(r, func() int { return len(r.lines.readings) }) != 1 {
			t.Fatal("the line is not read ahead, so the test shows nothing")
		}
		time.Sleep(time.Second)
		if granted := r.lease(3, 0); len(granted) != 3 || granted[2].Task.ID != id || !granted[2].Task.KeepsResultOf(1) {
			t.Errorf("granted are %d tasks, want 3, the last one with the late result of attempt 1", len(granted))
		}
		r.shutDown() // also verifies that the store has all results which the tasks list, and no others
	})
}

// brokenLines is a store in which the lines cannot be read once broken is set.
type brokenLines struct {
	*memstore.Store
	broken atomic.Bool
}

func (s *brokenLines) View(fn func(store.Reader) error) error {
	return s.Store.View(func(r store.Reader) error { return fn(brokenReader{r, s}) })
}

type brokenReader struct {
	store.Reader
	s *brokenLines
}

func (r brokenReader) Scan(k store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	if k == store.Ready && r.s.broken.Load() {
		return errors.New("the disk is broken")
	}
	return r.Reader.Scan(k, from, to, fn)
}

// A10: if the next part of a line cannot be read, the engine stops with ErrStore, whether the
// reading is in the background or the loop waits for it. It must not take the line for a shorter
// one, because then nobody would get the rest of its tasks.
func TestLineThatCannotBeRead(t *testing.T) {
	t.Attr("rules", "A10")
	before := lineHead
	lineHead = 4
	defer func() { lineHead = before }()
	for name, n := range map[string]int{"in the background": 2, "by the loop": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &brokenLines{Store: memstore.New()}
				r := &rig{T: t, st: st}
				r.start(Config{})
				r.submit(many(8)...)
				st.broken.Store(true)
				_, err := r.Lease(t.Context(),
					LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: n})
				if n == 5 && !errors.Is(err, ErrStore) {
					t.Errorf("Lease = %v, want ErrStore", err)
				}
				synctest.Wait()
				select {
				case err := <-r.done:
					if !errors.Is(err, ErrStore) {
						t.Errorf("Run = %v, want ErrStore", err)
					}
				default:
					t.Error("the engine goes on, want that it stops")
					r.stop()
					t.Error(<-r.done)
				}
			})
		})
	}
}

// W4, T2: when the next part of a line has been read, a taker that had no room for any task of the
// part before it gets a task for which it has room. Nothing else makes the loop look for one.
func TestTakerGetsATaskThatWasReadAhead(t *testing.T) {
	t.Attr("rules", "W4 T2")
	before := lineHead
	lineHead = 4
	defer func() { lineHead = before }()
	run(t, func(r *rig) {
		specs := many(6)
		// memory holds the first four; when two of them are gone, the next two are read
		for i, bytes := range []int{50, 10, 80, 80, 40, 80} {
			specs[i].Payload = make([]byte, bytes)
		}
		r.submit(specs...)
		c := r.worker("w", 10, func(w *Wants) { w.MaxBytes = 100 })
		if sizes := sizesOf(c.grants()); !slices.Equal(sizes, []int{50, 10, 40}) {
			t.Errorf("granted are tasks of %v bytes, want also the one of 40 bytes, which was read after the others", sizes)
		}
	})
}

func sizesOf(granted []Granted) (bytes []int) {
	for _, g := range granted {
		bytes = append(bytes, g.Task.Spec.Size)
	}
	return bytes
}
