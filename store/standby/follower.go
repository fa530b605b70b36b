package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Errors of Follower.Run.
var (
	// ErrBehind means that the standby takes in less than is committed, and that commits which it
	// lacks are no longer kept. It needs a new copy.
	ErrBehind = errors.New("the standby is too far behind")
	// ErrReplaced means that the same standby has come again, over another connection.
	ErrReplaced = errors.New("the standby has come again")
)

// pieceBytes is about how many bytes of keys and values a View copies at once. The store keeps the
// state that the View sees while it runs.
const pieceBytes = 256 << 10

// Follower serves one standby.
type Follower struct {
	feed     *Feed
	name     string
	instance string
	since    time.Time
	replaced chan struct{} // closed when another one follows under the name

	// guarded by feed.mu
	known      bool   // the standby has acknowledged something
	acked      uint64 // up to here; see Feed.ordinal
	whole      bool   // all of the store was sent once
	completeAt uint64 // the first commit of which the standby has everything, if whole
	bytes      int64
	// sent is the newest commit that was sent, or is about to be. Only Run changes it, and reads it
	// without the lock.
	sent uint64

	to Sink // of Run
}

// Run sends what a standby that already has `from` still lacks, and then each commit, until ctx
// ends, to fails, or the store does. The error is never nil. Run may be called once.
func (fl *Follower) Run(ctx context.Context, from Start, to Sink) error {
	fl.to = to
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-fl.replaced:
			cancel(ErrReplaced)
		case <-ctx.Done():
		}
	}()
	return fl.run(ctx, from)
}

func (fl *Follower) run(ctx context.Context, from Start) error {
	resumes, size := fl.resume(from.At), fl.feed.Stats()
	begin := Begin{Format: store.Current().Format(), Copy: !resumes, StoreBytes: size.FileBytes - size.FreeBytes}
	if err := fl.to.Begin(begin); err != nil {
		return err
	}
	if !resumes {
		at, err := fl.view(ctx, func(store.Reader) error { return nil })
		if err != nil {
			return err
		}
		fl.setSent(at) // every piece has these commits in it
		from.Copied = new(Cursor)
	}
	if from.Copied != nil {
		if err := fl.copy(ctx, *from.Copied); err != nil {
			return err
		}
	}
	check := time.NewTicker(fl.feed.opts.Check)
	defer check.Stop()
	checked := uint64(0)
	for first := true; ; first = false {
		if first || fl.sent != checked {
			if err := fl.check(ctx); err != nil {
				return err
			}
			checked = fl.sent
		}
		if err := fl.sendUntil(ctx, check.C); err != nil {
			return err
		}
	}
}

// resume reports whether the standby can go on from a position: whether all commits after it are
// kept.
func (fl *Follower) resume(from records.Position) bool {
	f := fl.feed
	n, known := f.ordinal(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !known || n > f.last || n+1 < f.oldest() {
		return false
	}
	fl.sent = n
	return true
}

func (fl *Follower) setSent(n uint64) {
	fl.feed.mu.Lock()
	defer fl.feed.mu.Unlock()
	fl.sent = n
}

// copy sends all records from one on, a piece at a time, and before each piece the commits that it
// has in it.
func (fl *Follower) copy(ctx context.Context, from Cursor) error {
	for int(from.Keyspace) < store.NumKeyspaces {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var (
			piece *store.Batch
			next  Cursor
		)
		at, err := fl.view(ctx, func(r store.Reader) (err error) {
			piece, next, err = readPiece(store.Polite(r), from)
			return err
		})
		if err == nil {
			err = fl.sendTo(ctx, at)
		}
		if err == nil {
			err = fl.send(piece, Mark{At: fl.feed.position(at), Copied: &next})
		}
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// readPiece copies records of one keyspace from a place on, and returns the place after them.
func readPiece(r store.Reader, from Cursor) (piece *store.Batch, next Cursor, err error) {
	piece, next = new(store.Batch), Cursor{Keyspace: from.Keyspace + 1}
	err = r.Scan(from.Keyspace, from.Key, nil, func(key, value []byte) bool {
		if piece.Bytes() >= pieceBytes {
			next = Cursor{Keyspace: from.Keyspace, Key: bytes.Clone(key)}
			return false
		}
		piece.Put(from.Keyspace, key, value)
		return true
	})
	return piece, next, err
}

// view calls fn with a state of the store that has every commit that was sent, and returns the
// number of the commit that made it.
func (fl *Follower) view(ctx context.Context, fn func(store.Reader) error) (at uint64, err error) {
	f := fl.feed
	visible := func() bool { return f.durable >= fl.sent }
	if !f.await(ctx, visible) {
		return 0, context.Cause(ctx)
	}
	err = f.Store.View(func(r store.Reader) error { // not View of the feed, which may wait for this standby
		p, _, err := records.PositionOf(r)
		if err != nil {
			return err
		}
		n, known := f.ordinal(p)
		if !known {
			return fmt.Errorf("the store is at position %v, which is not one of this coordinator's", p)
		}
		at = n
		return fn(r)
	})
	return at, err
}

// check sends what the checksums must be, of the newest state. The mark says that the copy is
// complete.
func (fl *Follower) check(ctx context.Context) error {
	var sums []uint64
	at, err := fl.view(ctx, func(r store.Reader) error {
		s, ok := r.(store.Summer)
		if !ok {
			return nil
		}
		all, err := s.Sums()
		sums = all[:]
		return err
	})
	if err == nil {
		err = fl.sendTo(ctx, at)
	}
	if err != nil {
		return err
	}
	fl.setWhole(at)
	return fl.to.Mark(Mark{At: fl.feed.position(at), Complete: true, Sums: sums})
}

func (fl *Follower) setWhole(at uint64) {
	fl.feed.mu.Lock()
	defer fl.feed.mu.Unlock()
	if !fl.whole {
		fl.whole, fl.completeAt = true, at
	}
}

// sendTo sends the commits up to that number, which is not below the last one that was sent.
func (fl *Follower) sendTo(ctx context.Context, until uint64) error {
	for fl.sent < until {
		next, err := fl.next(ctx, nil)
		if err == nil {
			err = fl.sendCommit(next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendUntil sends commits as they come until stop.
func (fl *Follower) sendUntil(ctx context.Context, stop <-chan time.Time) error {
	for {
		next, err := fl.next(ctx, stop)
		if err != nil || next == nil {
			return err
		}
		if err := fl.sendCommit(next); err != nil {
			return err
		}
	}
}

// next waits for the commit after the last one that was sent, and returns nil if stop comes first.
func (fl *Follower) next(ctx context.Context, stop <-chan time.Time) (*kept, error) {
	f := fl.feed
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		select {
		case <-stop:
			return nil, nil
		default:
		}
		f.mu.Lock()
		changed, behind := f.changed, fl.sent+1 < f.oldest()
		var found *kept
		if !behind && fl.sent < f.last {
			found = f.kept[fl.sent+1-f.oldest()]
		}
		f.mu.Unlock()
		switch {
		case behind:
			return nil, ErrBehind
		case found != nil:
			return found, nil
		}
		select {
		case <-changed:
		case <-stop:
			return nil, nil
		case <-ctx.Done():
		}
	}
}

func (fl *Follower) sendCommit(k *kept) error {
	fl.feed.mu.Lock()
	whole := fl.whole
	fl.sent = k.number
	fl.feed.mu.Unlock()
	return fl.send(k.changes, Mark{At: fl.feed.position(k.number), Complete: whole})
}

// send sends changes and their mark.
func (fl *Follower) send(b *store.Batch, m Mark) error {
	ops := make([]store.Op, b.Len())
	for i := range ops {
		ops[i] = b.At(i)
	}
	fl.feed.mu.Lock()
	fl.bytes += int64(b.Bytes())
	fl.feed.mu.Unlock()
	if err := fl.to.Changes(ops); err != nil {
		return err
	}
	return fl.to.Mark(m)
}

// Ack notes that the standby has made everything up to p durable. It may be called while Run runs.
// A position that was not sent is an error.
func (fl *Follower) Ack(p records.Position) error {
	f := fl.feed
	n, known := f.ordinal(p)
	f.mu.Lock()
	if !known || n > fl.sent {
		f.mu.Unlock()
		return fmt.Errorf("position %v was not sent", p)
	}
	fl.known, fl.acked = true, max(fl.acked, n)
	f.wake()
	f.mu.Unlock()
	f.acknowledged(fl)
	return nil
}

// Close removes the standby.
func (fl *Follower) Close() { fl.feed.detach(fl) }

// complete reports whether the standby has acknowledged a complete copy. The caller holds the lock
// of the feed.
func (fl *Follower) complete() bool { return fl.whole && fl.known && fl.acked >= fl.completeAt }

// Status returns how far the standby is.
func (fl *Follower) Status() Status {
	fl.feed.mu.Lock()
	defer fl.feed.mu.Unlock()
	return fl.status()
}

// status is Status. The caller holds the lock of the feed.
func (fl *Follower) status() Status {
	f := fl.feed
	s := Status{Name: fl.name, Since: fl.since, Complete: fl.complete(), Sent: fl.bytes}
	if fl.known {
		s.Acked = f.position(fl.acked)
	}
	if s.Complete && fl.acked < f.last {
		s.Commits = f.last - fl.acked
		if first := max(fl.acked+1, f.oldest()); first <= f.last {
			s.Behind = time.Since(f.kept[first-f.oldest()].written)
		}
	}
	return s
}
