package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
)

// world is a coordinator and two standbys, to all of which anything may happen.
type world struct {
	*testing.T
	rnd    *rand.Rand
	mem    *memstore.Store
	feed   *Feed
	turn   chan struct{} // held by a commit: while others wait for a mutex, the time of the bubble stands still
	spares []*spare

	mu      sync.Mutex
	history map[records.Position]string // the records of each state that a commit made, or would have made
	acked   []string                    // keys of Task whose commits were acknowledged
	checks  int                         // how often all of them had to be on a standby
}

// spare is a standby.
type spare struct {
	name    string
	place   *place
	replica *Replica
	newest  *atomic.Pointer[Follower]
	failed  *atomic.Pointer[context.CancelCauseFunc] // ends the stream if the replica fails
	cut     context.CancelCauseFunc                  // the same; nil: there is no stream
	left    chan struct{}                            // closed when the stream has ended
}

// In any order, streams end, standbys and the coordinator crash, and commits that are under way are taken back. Whatever a standby has as complete is at each
// moment what the coordinator had at that position, and while commits are said to wait, everything that was acknowledged is on a standby. No standby differs,
// nor takes a crash of the coordinator for the loss of its store.
func TestAnythingMayHappen(t *testing.T) {
	const worlds = 5
	checks := 0
	for range worlds {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			w := &world{T: t, rnd: rand.New(rand.NewPCG(seed, 0)), mem: memstore.New(), history: map[records.Position]string{}}
			w.open()
			for i := range 2 {
				w.spares = append(w.spares, &spare{name: fmt.Sprint("spare ", i), place: &place{slow: time.Duration(w.rnd.IntN(8)) * time.Millisecond}})
				w.start(w.spares[i])
			}
			w.connect(w.spares[0]) // commits are numbered now
			w.commit(func(b *store.Batch) { records.PutIdentity(b, records.Identity{Epoch: 1, Key: []byte("key")}) })
			time.Sleep(time.Second) // until it cannot be taken back
			for range 200 {
				w.step()
				w.check()
			}
			for _, s := range w.spares {
				for range 2 { // it may be too far behind once
					if s.cut != nil {
						w.disconnect(s)
					}
					w.connect(s)
					time.Sleep(time.Minute)
				}
			}
			synctest.Wait()
			want := storetest.Listing(t, w.mem)
			for _, s := range w.spares {
				if st := s.place.Complete(); st == nil || storetest.Listing(t, st) != want {
					t.Errorf("in the end %s is not equal to the coordinator", s.name)
				}
				w.disconnect(s)
				_ = s.replica.Close()
			}
			_ = w.feed.Close()
			time.Sleep(time.Hour) // until the timers of what has crashed are over
			checks += w.checks
		})
		if t.Failed() {
			return
		}
	}
	if checks < 3*worlds {
		t.Errorf("only %d times everything had to be on a standby", checks)
	}
}

// open makes the feed, as a start of the coordinator does.
func (w *world) open() {
	mem := w.mem
	w.turn = make(chan struct{}, 1)
	mem.SetHook(func(_ context.Context, b *store.Batch, apply func()) error {
		var image bytes.Buffer
		if _, err := mem.Snapshot(&image); err != nil { // it has crashed
			return nil //nolint:nilerr // Commit finds that
		}
		next, err := memstore.Restore(&image)
		if err == nil {
			err = next.Commit(context.Background(), b)
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.history[positionIn(next)] = storetest.Listing(w.T, next)
		w.mu.Unlock()
		time.Sleep(2 * time.Millisecond) // a standby may have it before
		apply()
		return nil
	})
	var err error
	if w.feed, err = NewFeed(summed{mem}, Options{Buffer: 3000, Check: 20 * time.Millisecond, Wait: 30 * time.Millisecond}); err != nil {
		w.Fatal(err)
	}
}

func positionIn(st store.Store) (p records.Position) {
	_ = st.View(func(r store.Reader) (err error) {
		p, _, err = records.PositionOf(r)
		return err
	})
	return p
}

// start is a start of the process of a standby.
func (w *world) start(s *spare) {
	newest, failed := new(atomic.Pointer[Follower]), new(atomic.Pointer[context.CancelCauseFunc])
	s.newest, s.failed = newest, failed
	s.replica = NewReplica(s.place, func(p records.Position) {
		if fl := newest.Load(); fl != nil {
			_ = fl.Ack(p)
		}
	}, func(err error) {
		if !errors.Is(err, store.ErrClosed) { // of a store that has crashed
			w.Errorf("%s: %v", s.name, err)
		}
		if cut := failed.Load(); cut != nil {
			(*cut)(err)
		}
	})
}

func (w *world) connect(s *spare) {
	ctx, cancel := context.WithCancelCause(context.Background())
	from, err := s.replica.Start()
	if err != nil {
		w.Fatal(err)
	}
	fl, err := w.feed.Attach(ctx, s.name, "instance")
	if err != nil {
		w.Fatal(err)
	}
	s.newest.Store(fl)
	s.failed.Store(&cancel)
	left := make(chan struct{})
	s.cut, s.left = cancel, left
	line := slowLine{s.replica, ctx, time.Duration(w.rnd.IntN(4)) * time.Millisecond}
	go func() {
		defer close(left)
		defer fl.Close()
		_ = fl.Run(ctx, from, line)
	}()
}

func (w *world) disconnect(s *spare) {
	s.cut(nil)
	<-s.left
	s.cut = nil
}

// commit commits, and notes the key that it adds when that is acknowledged.
func (w *world) commit(fill func(b *store.Batch)) {
	var b store.Batch
	fill(&b)
	key := fmt.Sprintf("n%d", w.rnd.Uint64())
	b.Put(store.Task, []byte(key), nil)
	feed, turn := w.feed, w.turn
	go func() {
		turn <- struct{}{}
		err := feed.Commit(context.Background(), &b)
		<-turn
		if err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.acked = append(w.acked, key)
	}()
}

// afterCrash returns what is left of a store. It shares nothing with the store, which may be in the middle of a commit.
func (w *world) afterCrash(mem *memstore.Store) *memstore.Store {
	var image bytes.Buffer
	_, err := mem.Reopen().Snapshot(&image)
	if err == nil {
		mem, err = memstore.Restore(&image)
	}
	if err != nil {
		w.Fatal(err)
	}
	return mem
}

// step lets something happen.
func (w *world) step() {
	s := w.spares[w.rnd.IntN(len(w.spares))]
	switch n := w.rnd.IntN(100); {
	case n < 50:
		w.commit(func(b *store.Batch) { randomChanges(w.rnd, b) })
	case n < 80:
		time.Sleep(time.Duration(w.rnd.IntN(30)) * time.Millisecond)
	case n < 90 && s.cut == nil:
		w.connect(s)
	case n < 93 && s.cut != nil:
		w.disconnect(s)
	case n < 96: // the standby crashes: what was not committed is lost, and a copy that was not finished
		complete := s.place.Complete()
		if complete != nil {
			complete = summed{w.afterCrash(complete.(summed).Store)}
		}
		if s.cut != nil {
			w.disconnect(s)
		}
		_ = s.replica.Close()
		s.place = &place{complete: complete, slow: s.place.slow}
		w.start(s)
	case n < 98: // the coordinator crashes; its streams end with it
		for _, s := range w.spares {
			if s.cut != nil {
				s.cut(nil)
			}
		}
		w.mem = w.afterCrash(w.mem)
		for _, s := range w.spares {
			if s.cut != nil {
				w.disconnect(s)
			}
		}
		w.open()
	}
}

// check tests what must always be true.
func (w *world) check() {
	synctest.Wait()
	waits := w.feed.Waits()
	w.mu.Lock()
	defer w.mu.Unlock()
	safe := false
	for _, s := range w.spares {
		st := s.place.Complete()
		if st == nil {
			continue
		}
		if got, want := storetest.Listing(w.T, st), w.history[positionIn(st)]; got != want {
			w.Errorf("%s has at %v\n%s\nand the coordinator had\n%s", s.name, positionIn(st), got, want)
		}
		_ = st.View(func(r store.Reader) error {
			has := true
			for _, key := range w.acked {
				has = has && r.Get(store.Task, []byte(key)) != nil
			}
			safe = safe || has
			return nil
		})
	}
	if waits {
		if w.checks++; !safe {
			w.Error("commits are said to wait, and no standby has everything that was acknowledged")
		}
	}
}
