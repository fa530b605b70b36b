package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// committer makes batches durable, in order, and then tells what they decided.
//
// Two goroutines take turns. While one waits for the disk to flush a commit, the other applies the batches that arrive meanwhile to the next
// commit, and writes that as soon as the first one is durable. So a commit holds what came in while the disk was busy, and most of its own
// work is done before the disk is free.
type committer struct {
	st     store.Store
	hub    *hub
	events *Events

	free   chan struct{} // a token here asks the loop for a batch
	work   chan *batch   // the batches; holds at most one, because the loop sends only when asked
	done   chan []*batch // batches that were committed and told; closed when the committer has stopped
	failed chan struct{} // closed when a commit has failed
	err    error         // why; valid once failed is closed

	turn  chan struct{} // holds one token: the goroutine that has it takes batches, and puts it back when its commit is written
	asked bool          // the loop was asked for a batch that has not come yet; guarded by turn
	last  *commit       // the newest commit; guarded by turn
	sides [2]side
}

// side is one of the two goroutines.
type side struct {
	memory batchPool
	began  atomic.Pointer[time.Time] // when its present commit began; nil: it has none
}

// commit is a number of batches that become durable together.
type commit struct {
	batches []*batch
	changes int
	ops     int
	bytes   int
	tx      store.Tx // nil: nothing has to be made durable
	err     error
	began   time.Time
	took    time.Duration
	ended   time.Time     // when it was durable, or had failed; set before durable is closed
	before  *commit       // the commit before; nil once this one was told
	durable chan struct{} // closed when it is durable, or has failed
	told    chan struct{} // closed when callers have their answers
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

// write waits for its turn, collects a commit and hands it to the disk. It returns nil if there will be nothing more to commit.
func (c *committer) write(s *side) *commit {
	turn := <-c.turn
	defer func() { c.turn <- turn }()
	now := newCommit(c.last)
	if !c.collect(now, s) {
		return nil
	}
	c.last = now
	if free := now.before.ended; now.tx != nil && free.After(now.began) { // the time until then counts for the commit before
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

// collect takes batches until the commit before is durable or this one is full, but at least one. It returns once the commit before is
// durable, and reports whether it got a batch.
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
		case <-now.before.durable: // checked on its own first: the select below may ask for a batch for which nobody would wait
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

// ask asks the loop for a batch, unless it has been asked already, and returns the channel on which the batch will come.
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

// end tells how a commit has ended, after the commit before was told.
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
		c.announce(b)
	}
	if now.tx != nil {
		c.events.Committed(now.changes, now.took)
	}
	c.done <- now.batches
	now.batches, now.tx = nil, nil // the commit itself is kept as last until the next one; its batches need not be
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

// pending returns how long the commit under way has lasted so far; 0 if there is none.
func (c *committer) pending() (longest time.Duration) {
	for i := range c.sides {
		if began := c.sides[i].began.Load(); began != nil {
			longest = max(longest, time.Since(*began))
		}
	}
	return longest
}

// announce tells what the batch decided; it is durable now (A6, A10).
func (c *committer) announce(b *batch) {
	c.hub.publish(b)
	b.answer(nil)
	for _, t := range b.deliveries {
		if len(t.granted) > 0 {
			t.member.Deliver(t.granted)
		}
		if len(t.notices) > 0 {
			t.member.Notify(t.notices)
		}
	}
}

// batchPool is the memory for batches in the store's terms.
type batchPool struct {
	all  []*store.Batch
	used int
}

// Bounds of the memory that is kept for later commits. The memory of a batch grows to the largest one for which it was used.
const (
	maxKept     = 2 << 20 // bytes of one; a larger one is not kept
	keptBatches = 16      // how many
)

func (e *batchPool) reset() {
	e.all = slices.DeleteFunc(e.all, func(b *store.Batch) bool { return b.Bytes() > maxKept })
	e.all = slices.Delete(e.all, min(len(e.all), keptBatches), len(e.all))
	e.used = 0
}

// next returns an empty batch. It is not used again before reset.
func (e *batchPool) next() *store.Batch {
	if e.used == len(e.all) {
		e.all = append(e.all, new(store.Batch))
	}
	b := e.all[e.used]
	e.used++
	b.Reset()
	return b
}
