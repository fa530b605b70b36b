package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/timerindex"
)

// Config configures an engine. The zero value is usable.
type Config struct {
	// Limits of sizes; zero: lease.DefaultLimits.
	Limits lease.Limits
	// Recovery says what happens to leases that were granted before this start.
	Recovery Recovery
	// Events are the callbacks of observers.
	Events Events
	// ResourceWait is how long tasks wait for the worker that holds their resources; 0: lease.DefaultResourceWait (W12).
	ResourceWait time.Duration
	// DiskFull reports whether the disk is so full that no new tasks may be made. nil: it is never too full.
	DiskFull func() bool
	// DiskSpent reports whether the disk is so full that what is left must be kept for the reports of tasks that run, so that none may be granted. nil: it
	// never is. When it no longer is, the loop notices that within idleTick.
	DiskSpent func() bool
	// StoreGone reports whether the file of the store was moved or removed: the next start would not find what is made now, so no tasks are made or granted. nil:
	// it never is. It is called often. When it no longer is, the loop notices that within idleTick.
	StoreGone func() bool
	// MaxTasks returns how many tasks that have not ended a tenant may have; a submit beyond that is refused with ErrTaskLimit (X5). nil: there
	// is no limit.
	MaxTasks func(tenant string) int
	// KeySegment is how many entries of idempotency keys become a segment of their index; 0: keyindex.DefaultSegmentSize.
	KeySegment int
	// TimersSwept is how many timers must come until those in memory are put in order on disk; 0: timerindex.DefaultSize.
	TimersSwept int
}

// Recovery says what happens to leases that were granted before a start.
type Recovery uint8

const (
	// KeepLeases keeps them live (A9).
	KeepLeases Recovery = iota
	// InvalidateLeases ends all of them with COORDINATOR_RECOVERED (A9).
	InvalidateLeases
	// RestoredStore is for a store that was restored from a backup. It works like InvalidateLeases, and also covers leases that were granted
	// after the backup. The store has no record of those leases (A11).
	RestoredStore
)

// SlowCommit is how long a commit may take before its time counts as a stall (A8).
const SlowCommit = time.Second

// Intervals of the loop.
const (
	// tick is how often the loop wakes while leases are live, so that it notices its own standstill.
	tick = 50 * time.Millisecond
	// idleTick is how often it wakes otherwise, so that it notices a jump of the wall clock.
	idleTick = time.Second
	// standstill is the shortest time between two readings of the clock that counts as a stall of the coordinator itself (A8).
	standstill = 200 * time.Millisecond
	// saveClock is how often the serving clock is made durable while leases are live (A9).
	saveClock = time.Second
	// saveIdleClock is how often it is made durable while no lease is live and a queue waits for its rate limit (T13), and at most how often while a
	// task waits for a timer, see save. A crash costs at most this much of the wait, or an eighth of what is left of it.
	saveIdleClock = 10 * time.Second
	// leastJump is from when on a jump of the wall clock is told. It is far above what an adjustment of its speed can do between two readings.
	leastJump = time.Second
)

// runFor is after how long a round begins no further operation. The callers of all operations of a round wait for its end, and most operations that take
// long change nothing, so that no other bound of the round would stop them. After a standstill it does not apply: what came in meanwhile runs first.
var runFor = 10 * time.Millisecond

// dueAtOnce bounds the timers that one round applies, the alarms that it rings, and the changes of these, so that a round and its batch stay bounded.
var dueAtOnce = maxBatchOps

// Engine is the owner of a partition. Make one with Open, run it with Run. The other methods are safe for concurrent use. A method that
// changes something returns after the change is durable, unless its comment says that it does not wait.
type Engine struct {
	cfg   Config
	st    store.Store
	rules *lease.Rules
	clock *clock
	inbox *inbox
	hub   *hub
	dir   *directory

	invalidated int // how many leases of an older epoch Open has ended

	// Everything below belongs to the loop.
	intake intake
	memory lease.Memory // memory for the changes of a step

	// Tasks, workspaces and timers.
	set       *workset
	spaces    *spaces
	timers    *timers
	alarms    *alarms
	lastAudit store.AuditKey // key of the newest audit entry

	// Who takes work, and who holds leases.
	sessions sessions
	requests requests
	workers  *workers

	// Matching.
	agenda     *agenda
	effort     *effort
	grantsNone bool // match has found that nothing may be granted
	parking    *parking
	lines      *lines
	search     *search
	bindings   *bindings
	readers    sync.WaitGroup

	// Batches, and stalls (due.go).
	pipeline *pipeline
	clocks   *clocks
	stalls   stalls
}

// Open reads the store and returns an engine that is ready to run. How long it takes does not depend on the number of waiting tasks.
func Open(st store.Store, cfg Config) (*Engine, error) {
	if cfg.Limits == (lease.Limits{}) {
		cfg.Limits = lease.DefaultLimits()
	}
	if cfg.ResourceWait == 0 {
		cfg.ResourceWait = lease.DefaultResourceWait
	}
	if cfg.KeySegment == 0 {
		cfg.KeySegment = keyindex.DefaultSegmentSize
	}
	if cfg.TimersSwept == 0 {
		cfg.TimersSwept = timerindex.DefaultSize
	}
	if cfg.DiskFull == nil {
		cfg.DiskFull = func() bool { return false }
	}
	if cfg.DiskSpent == nil {
		cfg.DiskSpent = func() bool { return false }
	}
	if cfg.StoreGone == nil {
		cfg.StoreGone = func() bool { return false }
	}
	cfg.Events.fill()
	identity, err := identify(st, cfg.Recovery)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	e := &Engine{
		cfg: cfg, st: st, inbox: newInbox(), hub: newHub(), dir: &directory{byName: map[Space]uint32{}},
		clocks: &clocks{}, set: newWorkset(st),
		sessions: newSessions(), requests: newRequests(),
		agenda: newAgenda(), effort: &effort{},
	}
	e.rules = &lease.Rules{
		Authority: lease.NewAuthority(identity.Epoch, identity.Key), Limits: cfg.Limits, Entropy: entropy(), AckWithin: lease.DefaultAckWithin,
	}
	e.spaces = newSpaces(e.dir, identity.Epoch)
	e.intake = newIntake(e.inbox)
	e.pipeline = newPipeline(st, e.hub, &e.cfg.Events)
	e.timers, e.alarms = newTimers(e.set, e.pipeline), newAlarms(e.clocks)
	e.workers = newWorkers(e.alarms, cfg.ResourceWait, e.loseResources)
	e.parking = newParking(e.spaces, e.set, e.pipeline, e.workers)
	e.lines = &lines{
		readings: map[*readAhead]struct{}{}, readers: &e.readers, st: st, inbox: e.inbox,
		spaces: e.spaces, set: e.set, pipeline: e.pipeline, workers: e.workers, agenda: e.agenda, effort: e.effort,
	}
	e.search = &search{limits: &e.cfg.Limits, set: e.set, workers: e.workers, lines: e.lines, parking: e.parking, effort: e.effort}
	e.bindings = &bindings{spaces: e.spaces, alarms: e.alarms, lines: e.lines}
	e.pipeline.onHandOver, e.pipeline.onDurable = e.finishBatch, e.batchDurable
	if err := e.load(); err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	return e, nil
}

// entropy returns a source of unpredictable bits for the loop.
func entropy() func() uint64 {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return mathrand.NewChaCha8(seed).Uint64
}

// Run serves until ctx ends. Then it commits and answers the operations that have run, and returns nil. If the store fails, Run returns
// an error that wraps ErrStore, and the process must exit: only opening the store again shows what was committed.
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
			return e.drain()
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

// pollCommitter takes all that the committer has sent. Run's select takes one thing of several at random: while the loop has no rest, it would leave the
// committer, and with it the answers to the callers, waiting for many rounds.
func (e *Engine) pollCommitter() {
	for b := e.pipeline.poll(); b != nil; b = e.pipeline.poll() {
		e.afterCommit(b)
	}
}

// now returns both clocks as the loop has read them last.
func (e *Engine) now() lease.Now { return e.clocks.now() }

// batch returns the batch that the loop fills now: all that it decides goes there.
func (e *Engine) batch() *batch { return e.pipeline.current() }

// wakeable returns the channel that wakes the loop when an operation comes in. It returns nil while the loop could not take the operation: the batch is
// full, or operations that were taken before come first.
func (e *Engine) wakeable() <-chan struct{} {
	if e.batch().full() {
		return nil
	}
	return e.intake.wake()
}

// round polls the committer, and runs the operations that came in, then the timers that are due, and then grants leases. It gives the batch to the committer if
// the committer has asked for one.
func (e *Engine) round() {
	e.pollCommitter()
	e.pipeline.submit()
	if e.batch().full() {
		return // no operation runs until the committer takes the batch; readClocks gives this time back to the leases
	}
	e.readClocks()
	e.agenda.unthrottle(e.now().Serving)
	e.effort.beginRound()
	e.runOps()
	e.readClocks()
	if e.stalls.mayExpire() && !e.commitIsSlow() {
		e.expireDue()
		e.ringAlarms()
	}
	e.match()
	e.requests.answerAll(e.answerCaller)
	e.set.moveKeys(e.pipeline)
	e.save()
	e.pipeline.submit()
}

// runOps runs the operations that wait, until the batch or the time of the round is used up.
func (e *Engine) runOps() {
	most := len(e.batch().changes) + maxBatchChanges
	n := min(e.intake.waiting(), maxBatchOps) // what comes in later runs in the next round, and so does what makes too many changes
	began := e.now().Serving
	for ran := 0; ran < n && e.batch().bytes < maxBatchBytes && len(e.batch().changes) < most; ran++ {
		before := e.now().Serving
		if e.readClocks(); e.now().Serving.Sub(before) > longOp {
			e.intake.slowDown()
		}
		if ran > 0 && e.now().Serving.Sub(began) >= runFor && !e.stalls.stoodStill() {
			break
		}
		o := e.intake.first(n - ran)
		o.run()
		e.batch().addOp(*o)
		e.intake.shift()
	}
}

// sleep returns how long the loop may sleep until something is due. While the batch is full, due timers do not count, because the loop could
// not apply them.
func (e *Engine) sleep() time.Duration {
	if e.batch().full() {
		return idleTick
	}
	if e.intake.begun() {
		return 0
	}
	// If match made way for other operations, it goes on at once; if the batch has handed out enough, with the next one; if the disk is spent, with a tick.
	if e.mayMatch() && !e.handedOut() && !e.grantsNone {
		return 0
	}
	d := idleTick
	if e.set.live > 0 {
		d = tick
	}
	if e.commitIsSlow() {
		return d
	}
	now := e.clock.now()
	return max(0, e.agenda.wait(now, e.alarms.wait(now, e.timers.wait(now, d))))
}

// save asks for a commit that carries only the serving clock, if no other commit has carried it for a while (A9). Otherwise a wait would begin again with
// every crash, for ever if they come often. For a timer far away, it saves the clock less often.
func (e *Engine) save() {
	unsaved := e.clocks.unsaved()
	waits := e.agenda.throttles() && unsaved >= saveIdleClock
	if due, ok := e.timers.nextServing(); ok {
		waits = waits || unsaved >= max(saveIdleClock, due.Sub(e.now().Serving)/8)
	}
	if waits || e.set.live > 0 && unsaved >= saveClock {
		e.batch().keepClock()
	}
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

// batchDurable frees what was in memory because a batch was not durable yet, and begins the readings that have waited for it.
func (e *Engine) batchDurable(b *batch) {
	for _, c := range b.changes {
		e.set.durable(b.number, c)
	}
	e.lines.beginReadings(b.number)
}

// drain is the orderly end. It makes the changes of all operations that have run durable and answers these operations. Operations that still wait get
// ErrStopped.
func (e *Engine) drain() error {
	for _, o := range e.inbox.close(ErrStopped) {
		if o.after != nil {
			o.after(ErrStopped)
		}
	}
	e.batch().keepClock()
	e.pipeline.flush()
	return nil
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
	for _, o := range e.intake.close(why) {
		if o.after != nil {
			o.after(why)
		}
	}
	e.hub.close()
}
