package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Intervals of the loop.
const (
	// tick is how often the loop wakes while leases are live, so that it notices its own
	// standstill.
	tick = 50 * time.Millisecond
	// idleTick is how often it wakes otherwise, so that it notices a jump of the wall clock.
	idleTick = time.Second
	// saveClock is how often the serving clock is made durable while leases are live (A9).
	saveClock = time.Second
	// saveWait is at most how often it is made durable while a task waits for it, or a queue for
	// its rate limit (T13). It is for the last two seconds of a wait, and the first ones after a
	// start: otherwise, saveStep has longer steps.
	saveWait = 250 * time.Millisecond
)

// runFor is after how long a round begins no further operation. The callers of all operations of a
// round wait for its end, and most operations that take long change nothing, so that no other bound
// of the round would stop them. After a standstill it does not apply: what came in meanwhile runs
// first.
var runFor = 10 * time.Millisecond

// Run serves until ctx ends. Then it commits and answers the operations that have run, and returns
// nil. If the store fails, Run returns an error that wraps ErrStore, and the process must exit:
// only opening the store again shows what was committed.
func (e *Engine) Run(ctx context.Context) (err error) {
	e.pipeline.start()
	reading, endReading := context.WithCancel(ctx)
	defer func() {
		endReading()
		switch p := recover().(type) {
		case nil:
		case corrupt:
			err = fmt.Errorf("%w: %w", ErrStore, p.err)
		default:
			panic(p)
		}
		e.stop(err)
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	e.clocks.start()
	e.readKeyFilters(reading)
	for {
		timer.Reset(e.sleep())
		select {
		case <-ctx.Done():
			e.drain()
			return nil
		case <-e.wakeable():
		case <-timer.C:
		case <-e.pipeline.asks():
			e.pipeline.asked()
		case committed, ok := <-e.pipeline.ended():
			if !ok {
				return e.pipeline.err()
			}
			e.pipeline.durable(committed)
			e.afterCommit(committed[0])
		}
		e.round()
	}
}

// pollCommitter takes all that the committer has sent. Run's select takes one thing of several at
// random: while the loop has no rest, it would leave the committer, and with it the answers to the
// callers, waiting for many rounds.
func (e *Engine) pollCommitter() {
	for b := e.pipeline.poll(); b != nil; b = e.pipeline.poll() {
		e.afterCommit(b)
	}
}

// wakeable returns the channel that wakes the loop when an operation comes in. It returns nil while
// the loop could not take the operation: the batch is full, or operations that were taken before
// come first.
func (e *Engine) wakeable() <-chan struct{} {
	if e.batch().full() {
		return nil
	}
	return e.intake.wake()
}

// round polls the committer, and runs the operations that came in, then the timers that are due,
// and then grants leases. It gives the batch to the committer if the committer has asked for one.
func (e *Engine) round() {
	e.pollCommitter()
	e.pipeline.handOver()
	if e.batch().full() {
		return // no operation runs until the committer takes the batch; readClocks gives this time back to the leases
	}
	e.readClocks()
	e.agenda.unthrottle(e.now().Serving)
	e.batch().mostChanges = e.intake.mostChanges(e.now().Serving)
	e.effort.beginRound()
	e.runOps()
	e.readClocks()
	e.stalls.opsHaveRun()
	if e.stalls.mayExpire() && !e.commitIsSlow() {
		e.expireDue()
		e.ringAlarms()
	}
	e.match()
	e.requests.answerAll(e.answerCaller)
	e.set.moveKeys(e.pipeline)
	e.save()
	e.pipeline.handOver()
}

// runOps runs the operations that wait, until the batch or the time of the round is used up.
func (e *Engine) runOps() {
	most := len(e.batch().changes) + e.batch().mostChanges
	// what comes in later runs in the next round, and so does what makes too many changes
	n := min(e.intake.waiting(), maxBatchOps)
	began := e.now().Serving
	for ran := 0; ran < n && e.batch().bytes < maxBatchBytes && len(e.batch().changes) < most; ran++ {
		before := e.now().Serving
		if ran > 0 && before.Sub(began) >= runFor && !e.stalls.stoodStill() {
			break
		}
		o := e.intake.first(n - ran)
		o.run()
		e.batch().addOp(*o)
		e.intake.shift(before)
		if e.readClocks(); e.now().Serving.Sub(before) > longOp { // also if its round ends with it
			e.intake.slowDown()
		}
	}
}

// sleep returns how long the loop may sleep until something is due. While the batch is full, due
// timers do not count, because the loop could not apply them.
func (e *Engine) sleep() time.Duration {
	if e.batch().full() {
		return idleTick
	}
	if e.intake.begun() {
		return 0
	}
	// If match made way for other operations, it goes on at once; if the batch has handed out
	// enough, with the next one; if the disk is spent, with a tick.
	if e.mayMatch() && !e.handedOut() && !e.grantsNone {
		return 0
	}
	d := idleTick
	if e.set.leases() > 0 && !e.cfg.FakeTime {
		d = tick
	}
	if e.commitIsSlow() {
		return d
	}
	if e.batch().empty() { // otherwise its hand-over saves the clock
		d = e.saveIn(d)
	}
	now := e.clock.now()
	return max(0, e.agenda.wait(now, e.alarms.wait(now, e.timers.wait(now, d))))
}

// save asks for a commit that carries only the serving clock, if no other commit has carried it for
// a while (A9). Otherwise a wait would begin again with every crash, for ever if they come often.
func (e *Engine) save() {
	if e.saveIn(idleTick) <= 0 {
		e.batch().keepClock()
	}
}

// saveIn returns how long it is until save asks for a commit, at most d.
func (e *Engine) saveIn(d time.Duration) time.Duration {
	unsaved := e.clocks.unsaved()
	if e.set.leases() > 0 {
		d = min(d, saveClock-unsaved)
	}
	if due, ok := e.timers.nextServing(); ok {
		d = min(d, e.saveStep(due)-unsaved)
	}
	if until, ok := e.agenda.nextGrant(); ok {
		d = min(d, e.saveStep(until)-unsaved)
	}
	return d
}

// saveStep returns after how long without a commit the clock is saved during a wait that ends at
// the given time. A crash costs at most an eighth of what is left of the wait, so that the number
// of commits hardly grows with its length; and an eighth of the time since the start, so that each
// wait ends even if there is never time for an eighth of it between two crashes.
func (e *Engine) saveStep(end lease.Instant) time.Duration {
	left := end.Sub(e.now().Serving) + e.clocks.unsaved() // as of when the clock was saved last, and so after a crash
	return max(saveWait, min(left, e.clocks.served()-e.clocks.unsaved())/8)
}

// finishBatch adds to a batch what is known only at its hand-over.
func (e *Engine) finishBatch(b *batch) {
	if !b.empty() {
		e.timers.move(b, e.spaces.waiting())
	}
	b.seal(e.clock.now().Serving)
	e.stalls.noteHandOver(b)
	if !b.empty() {
		e.clocks.saved(b.serving)
	}
}

// batchDurable frees what was in memory because a batch was not durable yet, and begins the
// readings that have waited for it.
func (e *Engine) batchDurable(b *batch) {
	for _, c := range b.changes {
		e.set.durable(b.number, c)
	}
	e.lines.beginReadings(b.number)
}

// drain is the orderly end. It makes the changes of all operations that have run durable and
// answers these operations. Operations that still wait get ErrStopped.
func (e *Engine) drain() {
	answerAll(e.inbox.close(ErrStopped), ErrStopped)
	e.batch().keepClock()
	e.pipeline.flush()
}

// stop ends the committer and answers the operations that have no answer yet.
func (e *Engine) stop(err error) {
	why := ErrStopped
	if err != nil {
		why = ErrStore
	}
	e.pipeline.stop(why)
	e.readers.Wait()
	e.batch().answer(why)
	answerAll(e.intake.close(why), why)
	e.hub.close()
}
