package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	mu       sync.Mutex
	history  map[records.Position]string // the records of each state that a commit made, or would have made
	acked    *[]string                   // keys of Task whose commits were acknowledged since the last promotion
	ever     map[string]bool             // the same since the beginning
	promoted int
	refused  int
	checks   int // how often all of acked had to be on a standby
}

// spare is a standby.
type spare struct {
	name    string
	place   *place
	replica *Replica
	newest  *atomic.Pointer[Follower]
	failed  *atomic.Pointer[context.CancelCauseFunc] // ends the stream if the replica fails
	refuses *atomic.Bool                             // the coordinator lacks commits of its copy
	follows *atomic.Pointer[memstore.Store]          // of the coordinator
	cut     context.CancelCauseFunc                  // the same; nil: there is no stream
	left    chan struct{}                            // closed when the stream has ended
}

// In any order, streams end, standbys and the coordinator crash, commits that are under way are
// taken back, and people promote one of the standbys, whatever it has. Whatever a standby has as
// complete is at each moment what the coordinator had at that position, and while commits are said
// to wait, everything that was acknowledged is on a standby. No standby differs. None loses a
// commit that was acknowledged, unless people let it begin anew; and none keeps its copy, so that
// they must, unless the coordinator lacks something of it: a crash of the coordinator is no reason.
func TestAnythingMayHappen(t *testing.T) {
	const worlds = 5
	checks, promoted, refused := 0, 0, 0
	for n := 0; n < worlds || refused == 0 && n < 10*worlds; n++ {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			w := &world{
				T: t, rnd: rand.New(rand.NewPCG(seed, 0)), mem: memstore.New(),
				history: map[records.Position]string{}, acked: new([]string), ever: map[string]bool{},
			}
			w.open()
			for i := range 2 {
				w.spares = append(w.spares, &spare{name: fmt.Sprint("spare ", i), place: &place{}})
				w.start(w.spares[i], nil)
			}
			w.connect(w.spares[0]) // commits are numbered now
			w.commit(func(b *store.Batch) { records.PutIdentity(b, records.Identity{Epoch: 1, Key: []byte("key")}) })
			time.Sleep(time.Second) // until it cannot be taken back
			for range 200 {
				w.step()
				w.check()
			}
			for _, s := range w.spares {
				for range 3 { // it may be too far behind once, and keep its copy once
					if s.cut != nil {
						w.disconnect(s)
					}
					w.beginAnewIfRefused(s)
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
			checks, promoted, refused = checks+w.checks, promoted+w.promoted, refused+w.refused
		})
		if t.Failed() {
			return
		}
	}
	if checks < 3*worlds || promoted < worlds || refused == 0 {
		t.Errorf("%d times everything had to be on a standby, %d were promoted, and %d kept a copy that had more; want more", checks, promoted, refused)
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

// start is a start of the process of a standby, which has that copy, if any.
func (w *world) start(s *spare, complete store.Store) {
	s.place = &place{complete: complete, slow: time.Duration(w.rnd.IntN(8)) * time.Millisecond}
	old := complete
	s.place.replaced = func(next store.Store) {
		if old != nil {
			w.wantNothingLost(s, old, next)
		}
		old = next
	}
	newest, failed, refuses := new(atomic.Pointer[Follower]), new(atomic.Pointer[context.CancelCauseFunc]), new(atomic.Bool)
	follows := new(atomic.Pointer[memstore.Store])
	s.newest, s.failed, s.refuses, s.follows = newest, failed, refuses, follows
	s.replica = NewReplica(s.place, func(p records.Position, _ lease.Wall) {
		if fl := newest.Load(); fl != nil {
			_ = fl.Ack(p)
		}
	}, func(err error) {
		other, refused := errors.AsType[*OtherStoreError](err)
		switch {
		case errors.Is(err, store.ErrClosed): // of a store that has crashed
		case refused && other.Got > other.Have && lacks(follows.Load(), s.place.Complete()):
			refuses.Store(true)
		default:
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
	s.follows.Store(w.mem)
	w.turn <- struct{}{}
	fl, err := w.feed.Attach(ctx, s.name, "instance")
	<-w.turn
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
	feed, turn, acked := w.feed, w.turn, w.acked
	go func() {
		turn <- struct{}{}
		err := feed.Commit(context.Background(), &b)
		<-turn
		if err != nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		*acked = append(*acked, key)
		w.ever[key] = true
	}()
}

// keysOf returns the keys of commits that a store has.
func keysOf(st store.Store) map[string]bool {
	keys := map[string]bool{}
	_ = st.View(func(r store.Reader) error {
		return r.Scan(store.Task, []byte("n"), nil, func(key, _ []byte) bool { keys[string(key)] = true; return true })
	})
	return keys
}

// wantNothingLost tests that a standby loses no commit that was acknowledged when its copy is
// replaced.
func (w *world) wantNothingLost(s *spare, old, next store.Store) {
	has := keysOf(next)
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range keysOf(old) {
		if w.ever[key] && !has[key] {
			w.Errorf("%s had the acknowledged commit %s at %v, and lost it with a new copy at %v",
				s.name, key, positionIn(old), positionIn(next))
		}
	}
}

// lacks reports whether a coordinator lacks commits of a copy, or has crashed. The first one of a
// run may be that of Attach, which has no key.
func lacks(st *memstore.Store, copied store.Store) bool {
	has := keysOf(st)
	if positionIn(copied).Number == 1 {
		return true
	}
	for key := range keysOf(copied) {
		if !has[key] {
			return true
		}
	}
	return false
}

// crash ends the coordinator, and all streams with it.
func (w *world) crash() {
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
}

// promote makes the copy of a standby the store of the coordinator, which is gone, and begins a
// standby in an empty directory.
func (w *world) promote(s *spare) {
	w.crash()
	_ = s.replica.Close()
	w.mem = w.afterCrash(s.place.Complete().(summed).Store)
	var b store.Batch
	w.promoted++
	now := time.Date(2026, 1, 1, w.promoted, 0, 0, 0, time.UTC) // no two promotions make the same epoch
	err := w.mem.View(func(r store.Reader) error {
		_, err := records.MakeIndependent(&b, r, lease.WallOf(now))
		return err
	})
	if err == nil {
		err = w.mem.Commit(context.Background(), &b)
	}
	if err != nil {
		w.Fatal(err)
	}
	has := keysOf(w.mem)
	w.mu.Lock()
	kept := slices.DeleteFunc(slices.Clone(*w.acked), func(key string) bool { return !has[key] })
	w.acked = &kept
	w.mu.Unlock()
	w.open()
	w.start(s, nil)
}

// beginAnewIfRefused is what people do with a standby that keeps its copy, if they want what the
// coordinator has.
func (w *world) beginAnewIfRefused(s *spare) {
	if !s.refuses.Load() {
		return
	}
	if s.cut != nil {
		w.disconnect(s)
	}
	_ = s.replica.Close()
	w.refused++
	w.start(s, nil)
}

// afterCrash returns what is left of a store. It shares nothing with the store, which may be in the
// middle of a commit.
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
	if s.refuses.Load() && (w.rnd.IntN(2) == 0 || s.cut != nil) {
		w.beginAnewIfRefused(s)
		return
	}
	switch n := w.rnd.IntN(100); {
	case n < 50:
		w.commit(func(b *store.Batch) { randomChanges(w.rnd, b) })
	case n < 80:
		time.Sleep(time.Duration(w.rnd.IntN(30)) * time.Millisecond)
	case n < 90 && s.cut == nil:
		w.connect(s)
	case n < 93 && s.cut != nil:
		w.disconnect(s)
	case n < 95: // the standby crashes: what was not committed is lost, and a copy that was not finished
		complete := s.place.Complete()
		if complete != nil {
			complete = summed{w.afterCrash(complete.(summed).Store)}
		}
		if s.cut != nil {
			w.disconnect(s)
		}
		_ = s.replica.Close()
		w.start(s, complete)
	case n < 97:
		w.crash()
		w.open()
	case s.place.Complete() != nil:
		for _, other := range w.spares {
			if st := other.place.Complete(); st != nil && w.rnd.IntN(3) > 0 && len(keysOf(st)) < len(keysOf(s.place.Complete())) {
				s = other // the worse one
			}
		}
		w.promote(s)
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
			for _, key := range *w.acked {
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
