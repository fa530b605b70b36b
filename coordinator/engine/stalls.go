package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// SlowCommit is how long a commit may take before its time counts as a stall (A8).
const SlowCommit = time.Second

const (
	// standstill is the shortest time between two readings of the clock that counts as a stall of
	// the coordinator itself (A8).
	standstill = 200 * time.Millisecond
	// leastJump is from when on a jump of the wall clock is told. It is far above what an
	// adjustment of its speed can do between two readings.
	leastJump = time.Second
)

// An example of what the live leases get back, in seconds: a batch is handed over at 0, its commit
// takes 5.4, and the process is stopped from 1.5 to 4.5.
//
//	1.0  The commit is slow: the leases get 1.0. From now until it ends nothing expires (commitIsSlow).
//	4.5  The loop has stood still: the leases get 3.0. Of the 4.5 that the commit has lasted, 0.5 are
//	     left: too little to give back.
//	5.0  Now 1.0 is left, and the leases get it.
//	5.4  The commit ends: the leases get the last 0.4, so 5.4 in all (afterCommit). From now on, the
//	     next commit may be slow, even if its batches were handed over before.

// stalls knows the time for which the coordinator could not hear or answer workers, and how much of
// it was given back to the live leases (A8). It belongs to the loop.
type stalls struct {
	extended       time.Duration // by how much the live leases were extended since the start
	stalled        bool          // the loop has stood still since opsHaveRun
	sparing        bool          // the round whose operations have run last expires nothing, because of a stall
	committedAt    lease.Instant // when the committer last reported a commit
	extendedBefore time.Duration // value of extended at committedAt
}

// noteStandstill is called when the loop has stood still.
func (s *stalls) noteStandstill() { s.stalled = true }

// stoodStill reports whether the loop has stood still since opsHaveRun.
func (s *stalls) stoodStill() bool { return s.stalled }

// noteExtension is called when the live leases are extended.
func (s *stalls) noteExtension(by time.Duration) { s.extended += by }

// noteHandOver is called when the committer gets a batch; see delay.
func (s *stalls) noteHandOver(b *batch) { b.extended = s.extended }

// opsHaveRun is called in each round when its operations have run. Heartbeats that came in during a
// stall are applied before leases expire: so the first round after it expires none. But every round
// may come after a stall: under a flood of submits each batch is full at once, and the loop waits
// for the committer.
func (s *stalls) opsHaveRun() { s.stalled, s.sparing = false, s.stalled && !s.sparing }

// mayExpire reports whether leases may expire in this round, in which the operations have run.
func (s *stalls) mayExpire() bool { return !s.sparing }

// delay returns for how long a batch has delayed all answers, and the part of that time by which
// the leases have not been extended yet. The delay begins with the hand-over of the batch to the
// committer, or with the end of the commit before, if that was later. A batch of nil delays
// nothing.
func (s *stalls) delay(b *batch, now lease.Instant) (lasted, left time.Duration) {
	if b == nil {
		return 0, 0
	}
	since, extended := b.serving, b.extended
	if s.committedAt > since {
		since, extended = s.committedAt, s.extendedBefore
	}
	lasted = now.Sub(since)
	return lasted, lasted - (s.extended - extended)
}

// noteCommit is called when a commit has ended and the leases have got its time back.
func (s *stalls) noteCommit(now lease.Instant) { s.committedAt, s.extendedBefore = now, s.extended }

// readClocks reads the clocks. If the loop has stood still since the last reading, it handled no
// heartbeat in that time. Therefore readClocks first extends the live leases by that time, before
// anything else is decided, and the present round expires none (A8). It also extends them by the
// time of a slow commit, already while the commit runs, because reports that come in during the
// commit are judged before it ends.
func (e *Engine) readClocks() {
	passed := e.clocks.read()
	if by := e.clocks.jump(); by.Abs() >= leastJump {
		e.cfg.Events.WallClockSet(by) // nothing else follows from that: leases do not depend on the wall clock (A8)
	}
	if passed >= standstill && e.set.leases() > 0 && !e.cfg.FakeTime {
		e.stalls.noteStandstill()
		e.cfg.Events.StoodStill(passed)
		e.giveBack(passed)
	}
	if _, left := e.stalls.delay(e.pipeline.oldest(), e.now().Serving); left >= SlowCommit {
		e.giveBack(left)
	}
}

// giveBack extends the live leases by a standstill of the loop. With some 100,000 leases that is a
// standstill itself. Its own time is given back, too, but only once, together with the time that
// this second extension is expected to take: if each extension were a reason for the next, there
// would be no end.
func (e *Engine) giveBack(gap time.Duration) {
	e.extendLeases(gap)
	took := e.clocks.read()
	if took < standstill {
		return
	}
	e.extendLeases(3 * took)
	e.clocks.readUpTo(2 * took) // the rest is a standstill of its own
}

// extendLeases extends the live leases by a stall.
func (e *Engine) extendLeases(d time.Duration) {
	if e.set.leases() == 0 {
		return
	}
	e.stalls.noteExtension(d)
	b := e.batch()
	bytes := b.bytes
	for id := range e.set.leasedTasks() {
		e.step(lease.Stall{Task: id, By: d})
	}
	b.bytes = bytes // otherwise the heartbeats that wait could not run in this round
	e.cfg.Events.Stalled(d, e.set.leases())
}

// commitIsSlow reports whether the commit under way has taken at least SlowCommit. Timers then wait
// for its end: until then, nobody could learn of their effects anyway.
func (e *Engine) commitIsSlow() bool {
	lasted, _ := e.stalls.delay(e.pipeline.oldest(), e.now().Serving)
	return lasted >= SlowCommit
}

// afterCommit extends the live leases by the rest of the time of a slow commit. During the commit,
// no worker learned of new grants and renewals, so no worker could acknowledge them (A8).
func (e *Engine) afterCommit(b *batch) {
	e.readClocks()
	if lasted, left := e.stalls.delay(b, e.now().Serving); lasted >= SlowCommit && left > 0 {
		e.giveBack(left)
	}
	e.stalls.noteCommit(e.now().Serving)
}
