package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// busyDisk holds every commit until it is let go, and keeps what is in them.
type busyDisk struct {
	begun [][]lease.TaskID // new tasks of each commit
	next  chan error
}

func (d *busyDisk) commit(_ context.Context, b *store.Batch, apply func()) error {
	var tasks []lease.TaskID
	for i := range b.Len() {
		if op := b.At(i); op.Keyspace == store.Spec {
			id, _ := store.ParseTaskKey(op.Keyspace, op.Key)
			tasks = append(tasks, id)
		}
	}
	d.begun = append(d.begun, tasks)
	if err := <-d.next; err != nil {
		return err
	}
	apply()
	return nil
}

// become puts the disk under an engine, which knows the queue by then: the first task of one has the loop wait for its commit.
func (d *busyDisk) become(r *rig) *busyDisk {
	r.submit(work())
	r.submit(work())
	d.next = make(chan error)
	r.st.(*memstore.Store).SetHook(d.commit)
	return d
}

// submits calls from a goroutine each, one after the other, and gives each time to be handed over.
func submits(r *rig, n int) (errs chan error) {
	errs = make(chan error, n)
	for range n {
		go func() {
			spec := work()
			err := spec.Fill(lease.DefaultLimits())
			if err == nil {
				_, _, err = r.Submit(r.Context(), home, []*lease.Spec{spec}, make([]lease.Digest, 1))
			}
			errs <- err
		}()
		synctest.Wait()
	}
	return errs
}

// A6, design 4: what comes while the disk is busy is in one commit, in its order, however many batches it is; and nothing of it is told before that commit.
func TestWhatComesWhileTheDiskIsBusyIsOneCommit(t *testing.T) {
	t.Attr("rules", "A6")
	run(t, func(r *rig) {
		d := new(busyDisk).become(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		first := submits(r, 1)
		rest := submits(r, 5)
		if len(first)+len(rest) != 0 || len(d.begun) != 1 {
			r.Fatalf("%d answers, %d commits begun", len(first)+len(rest), len(d.begun))
		}
		d.next <- nil
		synctest.Wait()
		if len(first) != 1 || len(rest) != 0 {
			r.Errorf("%d and %d answers after the first commit, want 1 and 0", len(first), len(rest))
		}
		d.next <- nil
		synctest.Wait()
		if len(rest) != 5 {
			r.Errorf("%d answers after the second commit, want 5", len(rest))
		}
		var last uint64
		for i, want := range []int{1, 5} {
			if got := d.begun[i]; len(got) != want {
				r.Errorf("commit %d has %d tasks, want %d", i, len(got), want)
			}
			for _, id := range d.begun[i] {
				if id.Seq <= last {
					r.Errorf("task %d after %d", id.Seq, last)
				}
				last = id.Seq
			}
		}
	})
}

// Design 4: a commit has a bounded number of operations, however long the disk was busy.
func TestCommitIsBounded(t *testing.T) {
	run(t, func(r *rig) {
		d := new(busyDisk).become(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		first := submits(r, 1)
		rest := submits(r, 5*maxBatchOps/2)
		for range 5 {
			d.next <- nil
			synctest.Wait()
			if len(first)+len(rest) == 1+5*maxBatchOps/2 {
				break
			}
		}
		if len(d.begun) < 3 {
			r.Errorf("%d commits", len(d.begun))
		}
		for _, tasks := range d.begun {
			if len(tasks) > 2*maxBatchOps {
				r.Errorf("a commit of %d tasks", len(tasks))
			}
		}
	})
}

// A6: answers keep the order of the commits, also where those who hear the first ones take their time.
func TestAnswersKeepTheOrderOfCommits(t *testing.T) {
	t.Attr("rules", "A6")
	run(t, func(r *rig) {
		heard := make(chan struct{})
		err := r.Join(&Member{
			Session: NewSessionID(home.Tenant, "w", "slow"), Slots: 1, Deliver: func([]Granted) { <-heard }, Notify: func([]Notice) {}, Displaced: func() {},
			Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}},
		})
		if err != nil {
			r.Fatal(err)
		}
		submits(r, 1) // its grant is told, for as long as that takes
		if later := submits(r, 1); len(later) != 0 {
			r.Error("a later commit was answered first")
		}
		close(heard)
	})
}

// A10, design 4: where a commit fails, everything after it fails too, whether it was handed over or not and whether it changes anything or not; and nothing of it is in the store.
func TestFailedCommitTakesTheNextWithIt(t *testing.T) {
	t.Attr("rules", "A10")
	for _, later := range []int{0, 1, 5 * maxBatchOps / 2} {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{T: t, st: memstore.New()}
			r.start(Config{})
			d := new(busyDisk).become(r)
			first := submits(r, 1)
			seen := make(chan error, 1)
			go func() {
				_, err := ask(r.Context(), r.Engine, home.Tenant, func() (int, error) { return 0, nil })
				seen <- err
			}()
			synctest.Wait()
			rest := submits(r, later)
			d.next <- errors.New("EIO")
			if err := <-r.done; !errors.Is(err, ErrStore) {
				t.Errorf("Run returned %v", err)
			}
			synctest.Wait()
			for _, errs := range []chan error{first, seen, rest} {
				if len(errs) != cap(errs) {
					t.Fatalf("%d of %d were answered", len(errs), cap(errs))
				}
				for range cap(errs) {
					if err := <-errs; !errors.Is(err, ErrStore) {
						t.Fatalf("got %v, want ErrStore", err)
					}
				}
			}
			if len(d.begun) != 1 {
				t.Errorf("%d commits were begun", len(d.begun))
			}
		})
	}
}

// A10, design 4: a commit that fails ends the engine at once, also where nobody waits for anything more.
func TestFailedCommitEndsAnIdleEngine(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		d := new(busyDisk).become(r)
		submits(r, 1)
		d.next <- errors.New("EIO")
		synctest.Wait()
		if len(r.done) != 1 {
			t.Error("the engine goes on")
			r.stop()
		}
		if err := <-r.done; !errors.Is(err, ErrStore) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A10: a call for work whose time is over is told of a commit that failed before its answer, for it waits for nothing else any more.
func TestFailedCommitAnswersCallsForWork(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		d := new(busyDisk).become(r)
		told := make(chan error, 1)
		go func() {
			_, err := r.Lease(t.Context(), LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"empty"}}, Max: 1, Wait: time.Second})
			told <- err
		}()
		synctest.Wait()
		submits(r, 1)
		time.Sleep(time.Second)
		synctest.Wait() // its answer is in line behind the commit
		d.next <- errors.New("EIO")
		if err := <-r.done; !errors.Is(err, ErrStore) {
			t.Errorf("Run returned %v", err)
		}
		synctest.Wait()
		if len(told) != 1 {
			t.Fatal("the call waits for ever")
		}
		if err := <-told; !errors.Is(err, ErrStore) {
			t.Errorf("the call got %v, want ErrStore", err)
		}
	})
}
