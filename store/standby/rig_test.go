package standby

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
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

// summed is a store in memory that knows its checksums.
type summed struct{ *memstore.Store }

func (s summed) View(fn func(store.Reader) error) error {
	return s.Store.View(func(r store.Reader) error { return fn(summing{r}) })
}

type summing struct{ store.Reader }

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // quick also with the race detector

func (r summing) Sums() (sums [store.NumKeyspaces]uint64, err error) {
	for ks := range sums {
		err = errors.Join(err, r.Scan(store.Keyspace(ks), nil, nil, func(key, value []byte) bool {
			sums[ks] += uint64(crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value))
			return true
		}))
	}
	return sums, err
}

// place keeps the stores of a standby in memory.
type place struct {
	mu                sync.Mutex
	complete, copying store.Store
	older             store.Store
	copies            int               // number of copies that were begun
	slow              time.Duration     // how long a commit takes in the stores that are made from now on
	replaced          func(store.Store) // is called with each store that becomes the complete one
}

func (p *place) Complete() store.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete
}

func (p *place) Older() store.Store { return p.older }

func (p *place) begun() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.copies
}

func (p *place) Empty() (store.Store, error) {
	st := memstore.New()
	if p.slow > 0 {
		st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
			time.Sleep(p.slow)
			apply()
			return nil
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.copying = summed{st}
	p.copies++
	return p.copying, nil
}

func (p *place) Replace() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complete, p.copying = p.copying, nil
	if p.replaced != nil {
		p.replaced(p.complete)
	}
	return nil
}

// rig is a coordinator's store and one standby, in one bubble.
type rig struct {
	*testing.T
	mem  *memstore.Store
	feed *Feed
	opts Options

	place   *place
	replica *Replica
	line    time.Duration                           // how long a mark takes to the standby
	newest  atomic.Pointer[Follower]                // gets the acknowledgements
	failed  atomic.Pointer[context.CancelCauseFunc] // ends the stream
	cut     func(error)
	left    chan error
}

func inBubble(t *testing.T, opts Options, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, mem: memstore.New(), opts: opts, place: &place{}}
		r.open()
		r.replica = NewReplica(r.place, func(p records.Position, _ lease.Wall) {
			if fl := r.newest.Load(); fl != nil {
				_ = fl.Ack(p)
			}
		}, func(err error) { (*r.failed.Load())(err) })
		test(r)
		if r.cut != nil {
			_ = r.disconnect()
		}
		_ = r.replica.Close()
		_ = r.feed.Close()
	})
}

// open makes the feed, as a start of a coordinator does.
func (r *rig) open() {
	r.Helper()
	var err error
	if r.feed, err = NewFeed(summed{r.mem}, r.opts); err != nil {
		r.Fatal(err)
	}
}

// restart is a crash and a start of the coordinator.
func (r *rig) restart() {
	r.Helper()
	_ = r.disconnect()
	r.mem = r.mem.Reopen()
	r.open()
}

// slowLine is a sink to which each mark takes that long, until ctx ends.
type slowLine struct {
	Sink
	ctx   context.Context //nolint:containedctx // the line is cut with it
	takes time.Duration
}

func (s slowLine) Mark(m Mark) error {
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	return s.Sink.Mark(m)
}

// slowDown makes each commit of the coordinator take d before it can be seen.
func (r *rig) slowDown(d time.Duration) {
	r.mem.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		time.Sleep(d)
		apply()
		return nil
	})
}

// write changes the store beside the feed, as another program does while no coordinator serves.
func (r *rig) write(ks store.Keyspace, key, value string) {
	r.Helper()
	var b store.Batch
	b.Put(ks, []byte(key), []byte(value))
	if err := r.mem.Commit(r.Context(), &b); err != nil {
		r.Fatal(err)
	}
}

// commit commits through the feed.
func (r *rig) commit(fill func(b *store.Batch)) {
	r.Helper()
	var b store.Batch
	fill(&b)
	if err := r.feed.Commit(r.Context(), &b); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) put(ks store.Keyspace, key, value string) {
	r.Helper()
	r.commit(func(b *store.Batch) { b.Put(ks, []byte(key), []byte(value)) })
}

// connect lets the standby follow.
func (r *rig) connect() {
	r.Helper()
	ctx, cancel := context.WithCancelCause(r.Context())
	from, err := r.replica.Start()
	if err != nil {
		r.Fatal(err)
	}
	fl, err := r.feed.Attach(ctx, "s", "instance")
	if err != nil {
		r.Fatal(err)
	}
	r.newest.Store(fl)
	r.failed.Store(&cancel)
	left := make(chan error, 1)
	go func() { left <- fl.Run(ctx, from, slowLine{r.replica, ctx, r.line}) }()
	r.left, r.cut = left, func(err error) {
		cancel(err)
		fl.Close()
	}
}

// disconnect ends the stream, and returns the error of Run.
func (r *rig) disconnect() error {
	r.Helper()
	r.cut(nil)
	return r.ended()
}

// ended waits for the end of the stream, and returns the error of Run.
func (r *rig) ended() error {
	err := <-r.left
	r.left <- err
	return err
}

// wantEqual waits until everything has arrived, and compares the two stores.
func (r *rig) wantEqual() {
	r.Helper()
	synctest.Wait()
	r.wantEqualNow()
}

func (r *rig) wantEqualNow() {
	r.Helper()
	if r.place.Complete() == nil {
		r.Fatal("the standby has no complete copy")
	}
	want, got := storetest.Listing(r.T, r.mem), storetest.Listing(r.T, r.place.Complete())
	if got != want {
		r.Fatalf("the standby has\n%s\nwant\n%s", got, want)
	}
}

func (r *rig) status() Status {
	r.Helper()
	all := r.feed.Standbys()
	if len(all) != 1 {
		r.Fatalf("%d standbys follow, want 1: %v", len(all), all)
	}
	return all[0]
}

// randomChanges adds some changes to b, of a few keys, so that many are changed again or deleted.
func randomChanges(rnd *rand.Rand, b *store.Batch) {
	for range 1 + rnd.IntN(20) {
		ks := []store.Keyspace{store.Meta, store.Spec, store.Task, store.Ready, store.TimerLog}[rnd.IntN(5)]
		key := fmt.Appendf(nil, "k%02d", rnd.IntN(60))
		if rnd.IntN(3) == 0 {
			b.Delete(ks, key)
		} else {
			b.Put(ks, key, fmt.Appendf(nil, "%d", rnd.Uint64()))
		}
	}
}
