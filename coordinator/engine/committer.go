package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// committer makes batches durable, in their order, and then tells what they decided.
//
// Two goroutines take turns at it. While one waits for the disk, the other one applies the batches that come meanwhile to the next commit, which is written as soon as the
// disk has the one before: so a commit has in it what came while the disk was busy, and most of its own work is done by then.
type committer struct {
	st     store.Store
	hub    *hub
	events *Events

	free   chan struct{} // asks the loop for a batch
	work   chan *batch   // one at most: who was asked never waits
	done   chan []*batch // after they were told; closed when the committer has stopped
	failed chan struct{} // closed where a commit has failed
	err    error         // why; valid once failed is closed

	turn  chan struct{} // has one: whoever takes it takes work, and puts it back when the commit is written
	asked bool          // and nothing has come yet; guarded by turn
	last  *commit       // the newest one; guarded by turn
	sides [2]side
}

// side is one of the two goroutines.
type side struct {
	memory encoded
	began  atomic.Pointer[time.Time] // of the commit that it is at; nil: of none
}

// commit is a number of batches that become durable together.
type commit struct {
	batches []*batch
	changes int
	ops     int
	bytes   int
	tx      store.Tx // nil: nothing is to be made durable
	err     error
	began   time.Time
	took    time.Duration
	ended   time.Time     // set before durable is closed
	before  *commit       // nil once this one was told
	durable chan struct{} // closed when it is, or has failed
	told    chan struct{}
}

func newCommitter(st store.Store, h *hub, ev *Events) *committer {
	c := &committer{
		st: st, hub: h, events: ev, free: make(chan struct{}, 1), work: make(chan *batch, 1), done: make(chan []*batch, 2), failed: make(chan struct{}),
		turn: make(chan struct{}, 1), last: newCommit(nil),
	}
	c.turn <- struct{}{}
	close(c.last.durable)
	close(c.last.told)
	return c
}

func newCommit(before *commit) *commit {
	return &commit{before: before, durable: make(chan struct{}), told: make(chan struct{})}
}

// run commits until the loop closes work, or a commit has failed.
func (c *committer) run() {
	defer close(c.done)
	var both sync.WaitGroup
	for i := range c.sides {
		both.Go(func() {
			for c.next(&c.sides[i]) {
			}
		})
	}
	both.Wait()
}

// next makes one commit, and reports whether there may be another.
func (c *committer) next(s *side) bool {
	now := c.write(s)
	if now == nil {
		return false
	}
	if now.tx != nil && now.err == nil {
		now.err = now.tx.Sync()
		now.took = time.Since(now.began)
	}
	s.began.Store(nil)
	c.end(now)
	return now.err == nil
}

// write takes what there is to commit and hands it to the disk. nil: there is nothing any more.
func (c *committer) write(s *side) *commit {
	turn := <-c.turn
	defer func() { c.turn <- turn }()
	now := newCommit(c.last)
	if !c.collect(now, s) {
		return nil
	}
	c.last = now
	if free := now.before.ended; now.tx != nil && free.After(now.began) { // what it waited for is told of with the commit before
		now.began = free
		s.began.Store(&free)
	}
	select {
	case <-c.failed:
		now.err = c.err
	default:
	}
	switch {
	case now.tx == nil:
	case now.err != nil:
		now.tx.Rollback()
	default:
		now.err = now.tx.Write()
	}
	return now
}

// collect takes batches until the disk is free, and at least one. It reports whether there was one.
func (c *committer) collect(now *commit, s *side) bool {
	s.memory.reset()
	select {
	case b, ok := <-c.ask():
		if !ok {
			return false
		}
		c.take(now, b, s)
	case <-c.failed:
		return false
	}
	for !now.full() {
		select {
		case <-now.before.durable: // looked at alone: nothing is asked for that would not be waited for
			return true
		default:
		}
		select {
		case <-now.before.durable:
			return true
		case b, ok := <-c.ask():
			if !ok {
				<-now.before.durable
				return true
			}
			c.take(now, b, s)
		}
	}
	<-now.before.durable
	return true
}

// full reports whether the commit is as large as one should be, however long the disk is busy.
func (k *commit) full() bool {
	return k.ops >= maxBatchOps || k.bytes >= maxBatchBytes || k.changes >= maxBatchChanges
}

// ask is where the next batch comes from, for which the loop is asked unless it has been.
func (c *committer) ask() <-chan *batch {
	if !c.asked {
		c.asked = true
		c.free <- struct{}{}
	}
	return c.work
}

// take applies a batch to the commit.
func (c *committer) take(now *commit, b *batch, s *side) {
	c.asked = false
	c.hub.absorb(b)
	now.batches = append(now.batches, b)
	now.ops += len(b.ops)
	now.bytes += b.bytes
	now.changes += len(b.changes)
	if b.empty() || now.err != nil {
		return
	}
	if now.tx == nil {
		began := time.Now()
		now.began = began
		s.began.Store(&began)
		if now.tx, now.err = c.st.Begin(context.Background()); now.err != nil {
			return
		}
	}
	sb := s.memory.next()
	if now.err = b.encode(sb, c.st); now.err == nil {
		now.tx.Apply(sb)
	}
}

// end tells how a commit has ended, after the one before has.
func (c *committer) end(now *commit) {
	if now.err != nil {
		c.fail(now.err)
	}
	now.ended = time.Now()
	close(now.durable)
	<-now.before.told
	now.before = nil
	defer close(now.told)
	if now.err != nil {
		for _, b := range now.batches {
			b.answer(ErrStore)
		}
		return
	}
	for _, b := range now.batches {
		c.speak(b)
	}
	if now.tx != nil {
		c.events.Committed(now.changes, now.took)
	}
	c.done <- now.batches
	now.batches, now.tx = nil, nil // it is kept as the last one, for as long as nothing happens
}

// fail keeps the first error.
func (c *committer) fail(err error) {
	select {
	case <-c.failed:
	default:
		c.err = err
		close(c.failed)
	}
}

// pending is for how long the commit under way has lasted; 0: there is none.
func (c *committer) pending() (longest time.Duration) {
	for i := range c.sides {
		if began := c.sides[i].began.Load(); began != nil {
			longest = max(longest, time.Since(*began))
		}
	}
	return longest
}

// speak tells what the batch decided; it is durable now (A6, A10).
func (c *committer) speak(b *batch) {
	c.hub.publish(b)
	b.answer(nil)
	for _, t := range b.tells {
		if len(t.granted) > 0 {
			t.member.Deliver(t.granted)
		}
		if len(t.notices) > 0 {
			t.member.Notify(t.notices)
		}
	}
}

// encoded is the memory for batches in the store's terms.
type encoded struct {
	all  []*store.Batch
	used int
}

// Bounds of the memory that is kept: of each batch, in bytes, and how many. Each becomes as large as the largest one that it was ever used for.
const (
	maxKept     = 2 << 20
	keptBatches = 16
)

func (e *encoded) reset() {
	e.all = slices.DeleteFunc(e.all, func(b *store.Batch) bool { return b.Bytes() > maxKept })
	e.all = slices.Delete(e.all, min(len(e.all), keptBatches), len(e.all))
	e.used = 0
}

// next is an empty batch, which is to stay as it is until reset.
func (e *encoded) next() *store.Batch {
	if e.used == len(e.all) {
		e.all = append(e.all, new(store.Batch))
	}
	b := e.all[e.used]
	e.used++
	b.Reset()
	return b
}
