package standby

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Options of a Feed.
type Options struct {
	Buffer int64         // bytes of commits that are kept for standbys; 0: 64 MiB
	Hold   time.Duration // how long they are kept after the last standby has left; 0: 10 min
	Check  time.Duration // how often checksums are compared; 0: 10 s

	// Wait is how long a commit, once it is durable here, waits for a standby to have it too: for
	// one that is complete. When a commit has waited in vain, others do not wait until a standby
	// has caught up again. 0: none waits.
	Wait time.Duration
	// OnWait is called when everything that was acknowledged is on a standby, because commits wait
	// for it, and when commits no longer do; nil: not called. It must return at once.
	OnWait func(waits bool)
}

func (o Options) withDefaults() Options {
	o.Buffer = cmp.Or(o.Buffer, 64<<20)
	o.Hold = cmp.Or(o.Hold, 10*time.Minute)
	o.Check = cmp.Or(o.Check, 10*time.Second)
	if o.OnWait == nil {
		o.OnWait = func(bool) {}
	}
	return o
}

// Feed is the store of a coordinator that standbys can follow.
type Feed struct {
	store.Store
	opts Options
	run  uint64           // of this Feed: the Run of the positions of its commits
	base records.Position // of the store when the Feed was made; zero: its commits were not numbered

	lineage []records.Position // of the commits of this Feed

	ordering sync.Mutex // held by a commit from before it is written until its outcome is known
	at       lease.Wall // time of the last commit that was written; guarded by ordering

	mu        sync.Mutex
	numbering bool
	// last is the number of the last commit of this run that was written; 0: there was none, and
	// the store is at base.
	last      uint64
	durable   uint64  // of the last one that is durable, which is last or the one before
	keeping   bool    // commits are kept
	kept      []*kept // the newest commits, without gaps up to last
	bytes     int64   // that kept takes
	release   *time.Timer
	followers map[string]*Follower

	telling      sync.Mutex // held while OnWait is called; locked before mu
	waits        bool       // commits wait for a standby
	waitsSince   uint64     // the last commit that did not wait
	told         bool       // waits, and a standby has waitsSince
	gaveUp       bool       // waits will not be true again
	missed       uint64     // how often a complete standby has left while commits waited for one
	waiting      int        // number of commits that wait now, or are about to see whether they must
	waitingSince time.Time  // when the first of these began

	changed chan struct{} // closed and replaced when one of the above changes
}

// kept is a commit that was written.
type kept struct {
	number  uint64
	changes *store.Batch
	written time.Time
}

// bytes is about how much memory the commit takes.
func (k *kept) bytes() int64 {
	const ofCommit, ofChange = 200, 40
	return ofCommit + ofChange*int64(k.changes.Len()) + int64(k.changes.Bytes())
}

var (
	_ store.Store  = (*Feed)(nil)
	_ store.Peeker = (*Feed)(nil)
)

// NewFeed returns a Feed of a store, which only the Feed may change from now on.
func NewFeed(st store.Store, o Options) (*Feed, error) {
	f := &Feed{Store: st, opts: o.withDefaults(), followers: map[string]*Follower{}, changed: make(chan struct{})}
	for f.run == 0 {
		f.run = rand.Uint64()
	}
	err := st.View(func(r store.Reader) (err error) {
		if f.base, f.at, err = records.PositionOf(r); err == nil {
			f.lineage, err = records.Lineage(r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if f.base != (records.Position{}) { // there may be a standby, which will come back
		// A loss of power may have taken back one commit that a standby has: the next one is
		// written, and so sent, only when that one is durable. Nobody was told of it.
		f.lineage = records.Descend(f.lineage, records.Position{Run: f.base.Run, Number: f.base.Number + 1})
		f.numbering, f.keeping = true, true
		f.release = time.AfterFunc(f.opts.Hold, f.stopKeeping)
	}
	return f, nil
}

// View implements store.Store. What it shows is on a standby, too, if commits wait for one.
func (f *Feed) View(fn func(store.Reader) error) error {
	number := uint64(0)
	err := f.Store.View(func(r store.Reader) error {
		p, _, err := records.PositionOf(r)
		if err != nil {
			return err
		}
		if p.Run == f.run {
			number = p.Number
		}
		return fn(r)
	})
	if number > 0 {
		f.awaitSafe(number)
	}
	return err
}

// Peek implements store.Peeker.
func (f *Feed) Peek(fn func(store.Reader) error) error { return store.Peek(f.Store, fn) }

// Commit implements store.Store.
func (f *Feed) Commit(ctx context.Context, b *store.Batch) error {
	return store.CommitInSteps(ctx, f, b)
}

// Begin implements store.Store.
func (f *Feed) Begin(ctx context.Context) (store.Tx, error) {
	t, err := f.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &tx{Tx: t, feed: f}, nil
}

// tx is a commit that gets a number, if commits are numbered when it is written.
type tx struct {
	store.Tx
	feed    *Feed
	batches []*store.Batch
	number  uint64 // 0: it has none
	waited  time.Duration
}

// Waited implements store.Waiter.
func (t *tx) Waited() time.Duration { return t.waited }

// Apply implements store.Tx.
func (t *tx) Apply(b *store.Batch) {
	t.Tx.Apply(b)
	t.batches = append(t.batches, b)
}

// Write implements store.Tx.
func (t *tx) Write() error {
	f := t.feed
	f.ordering.Lock()
	if t.number = f.next(); t.number != 0 {
		f.at = max(lease.WallOf(time.Now()), f.at+timeStep)
		var b store.Batch
		records.PutPosition(&b, records.Position{Run: f.run, Number: t.number}, f.at)
		if t.number == 1 && len(f.lineage) > 0 {
			records.PutLineage(&b, f.lineage)
		}
		t.Apply(&b)
	}
	if err := t.Tx.Write(); err != nil {
		f.ordering.Unlock()
		return err
	}
	if t.number != 0 {
		f.publish(t.number, t.batches)
	}
	return nil
}

// Sync implements store.Tx.
func (t *tx) Sync() error {
	err := t.Tx.Sync()
	t.feed.ordering.Unlock()
	if err == nil && t.number != 0 {
		t.waited = t.feed.settled(t.number)
	}
	return err
}

// timeStep is how much later a commit is at least than the one before, even if the clock was set
// back: the times tell which of two standbys has more.
const timeStep = lease.Wall(time.Microsecond)

// next returns the number of the commit that is about to be written.
func (f *Feed) next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.numbering {
		return 0
	}
	return f.last + 1
}

// publish lets standbys have a commit that was written. They may have it before it is durable here:
// if it never will be, nobody was told of it, and a standby that has it gets a new copy.
func (f *Feed) publish(number uint64, batches []*store.Batch) {
	f.mu.Lock()
	keeping := f.keeping
	f.mu.Unlock()
	var k *kept
	if keeping {
		k = &kept{number: number, changes: store.Join(batches...), written: time.Now()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = number
	switch {
	case !f.keeping:
	case k == nil: // keeping began meanwhile, without this one
		f.kept, f.bytes = nil, 0
	default:
		f.kept = append(f.kept, k)
		f.bytes += k.bytes()
		f.dropOld()
	}
	f.wake()
}

// dropOld drops the oldest commits until the others fit into the buffer. The newest one stays,
// however large it is. The caller holds the lock.
func (f *Feed) dropOld() {
	n := 0
	for ; n < len(f.kept)-1 && f.bytes > f.opts.Buffer; n++ {
		f.bytes -= f.kept[n].bytes()
	}
	clear(f.kept[:n])
	f.kept = f.kept[n:]
}

// wake wakes those who wait for changed.
func (f *Feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// oldest returns the number of the oldest commit that is kept, or that of the next one. The caller
// holds the lock.
func (f *Feed) oldest() uint64 { return f.last + 1 - uint64(len(f.kept)) }

func (f *Feed) stopKeeping() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.followers) == 0 {
		f.keeping, f.kept, f.bytes = false, nil, 0
	}
}

// Close closes the store.
func (f *Feed) Close() error {
	f.Release()
	return f.Store.Close()
}

// Release drops what is kept for standbys. Nobody can follow any more.
func (f *Feed) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.release != nil {
		f.release.Stop()
	}
	f.keeping, f.kept, f.bytes = false, nil, 0
}

// ordinal returns the number of a position in this run, where base has 0; known is false for a
// position of another run.
func (f *Feed) ordinal(p records.Position) (n uint64, known bool) {
	switch p {
	case records.Position{}:
		return 0, false
	case f.base:
		return 0, true
	}
	return p.Number, p.Run == f.run
}

// position reverses ordinal.
func (f *Feed) position(n uint64) records.Position {
	if n == 0 {
		return f.base
	}
	return records.Position{Run: f.run, Number: n}
}

// Settle waits until each standby that is complete has acknowledged every commit so far, or has
// left, or until ctx ends.
func (f *Feed) Settle(ctx context.Context) {
	f.mu.Lock()
	last := f.last
	f.mu.Unlock()
	f.await(ctx, func() bool {
		for _, fl := range f.followers {
			if fl.complete() && fl.acked < last {
				return false
			}
		}
		return true
	})
}

// await waits until done returns true, or ctx ends. It calls done under the lock, first at once and
// then after each change.
func (f *Feed) await(ctx context.Context, done func() bool) bool {
	for {
		f.mu.Lock()
		ok, changed := done(), f.changed
		f.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
