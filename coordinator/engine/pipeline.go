package engine

import (
	"fmt"
	"slices"
	"time"
)

// pipeline has the batches on their way into the store: the one that the loop fills, and those that
// the committer has. It hands batches over when the committer asks for one, knows what is durable,
// and can wait for it. It belongs to the loop.
type pipeline struct {
	committer *committer
	batch     *batch     // that the loop fills now
	inflight  []*batch   // that the committer has and has not reported as durable yet, the oldest first
	wanted    bool       // the committer has asked for a batch
	memory    changePool // for the changes of batches

	onHandOver func(*batch) // completes a batch that the committer is about to get
	onDurable  func(*batch) // is told of a batch that is durable, and whose answers were sent
}

func newPipeline(c *committer, onHandOver, onDurable func(*batch)) *pipeline {
	p := &pipeline{committer: c, onHandOver: onHandOver, onDurable: onDurable}
	p.batch = newBatch(1, &p.memory)
	return p
}

// start starts the committer.
func (p *pipeline) start() { go p.committer.run() }

// stop ends the committer. Batches that it does not commit any more are answered with why.
func (p *pipeline) stop(why error) {
	close(p.committer.batches)
	for range p.committer.done { // until it is closed
	}
	for b := range p.committer.batches {
		b.answer(why)
	}
}

// current returns the batch that the loop fills now.
func (p *pipeline) current() *batch { return p.batch }

// asks returns the channel on which the committer asks for a batch; whoever receives from it calls
// asked.
func (p *pipeline) asks() <-chan struct{} { return p.committer.asks }

func (p *pipeline) asked() { p.wanted = true }

// ended returns the channel on which the batches of a commit come when it is durable and announced;
// whoever receives them calls durable. The channel is closed when the committer has stopped; see
// err.
func (p *pipeline) ended() <-chan []*batch { return p.committer.done }

// err says why the committer has stopped. It is valid once the channel of ended is closed.
func (p *pipeline) err() error { return fmt.Errorf("%w: %w", ErrStore, p.committer.err) }

// poll takes what the committer has sent, until that is the end of a commit, and returns the first
// batch of this commit; nil: there is no more for now.
func (p *pipeline) poll() *batch {
	for {
		select {
		case <-p.asks():
			p.asked()
		case committed, ok := <-p.ended():
			if !ok {
				return nil // Run finds that, too
			}
			p.durable(committed)
			return committed[0]
		default:
			return nil
		}
	}
}

// handOver gives the batch to the committer if the committer has asked for one and the batch is not
// empty.
func (p *pipeline) handOver() {
	b := p.batch
	if !p.wanted || b.empty() && len(b.ops) == 0 && len(b.deliveries) == 0 {
		return
	}
	p.onHandOver(b)
	p.inflight = append(p.inflight, b)
	p.batch = newBatch(b.number+1, &p.memory)
	p.wanted = false
	p.committer.batches <- b // never blocks: the committer asks only after it has taken the previous batch
}

// durable is called when batches have been committed and their answers have been sent.
func (p *pipeline) durable(batches []*batch) {
	p.inflight = slices.Delete(p.inflight, 0, len(batches))
	for _, b := range batches {
		p.onDurable(b)
		p.memory.put(b.changes) // the committer is done with them
	}
}

// oldest returns the first batch that the committer has not reported as durable yet; nil if there
// is none.
func (p *pipeline) oldest() *batch {
	if len(p.inflight) == 0 {
		return nil
	}
	return p.inflight[0]
}

// lastDurable returns the number of the last batch that is durable.
func (p *pipeline) lastDurable() batchNumber {
	if b := p.oldest(); b != nil {
		return b.number - 1
	}
	return p.batch.number - 1
}

// flush waits until the store holds all changes, so that a scan of the store misses nothing. If the
// store fails, flush panics with corrupt; Run recovers from that.
func (p *pipeline) flush() { p.flushTo(p.batch.number) }

// flushTo waits only for the changes of a batch and of those before it. A scan of an index needs no
// more than the last batch that changes this index. So after a start, when nothing has changed the
// indexes yet, the first scans of many of them wait for no commit.
func (p *pipeline) flushTo(number batchNumber) {
	for p.lastDurable() < number && (len(p.inflight) > 0 || !p.batch.empty()) {
		p.handOver()
		select {
		case <-p.asks():
			p.asked()
		case committed, ok := <-p.ended():
			if !ok {
				panic(corrupt{p.committer.err})
			}
			p.durable(committed)
		}
	}
}

// pending returns how long the commit under way has lasted so far; 0 if there is none. Any
// goroutine may call it.
func (p *pipeline) pending() time.Duration { return p.committer.pending() }
