package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Config of an engine. The zero value runs.
type Config struct {
	// Limits of sizes; zero: lease.DefaultLimits.
	Limits lease.Limits
	// Recovery is what becomes of the leases of before the start.
	Recovery Recovery
	// AckWithin is the time in which a dispatch must be acknowledged; 0: lease.DefaultAckWithin.
	AckWithin time.Duration
	// Events observe.
	Events Events
	// ResourceWait is how long tasks wait for the worker that holds their resources; 0: lease.DefaultResourceWait (W12).
	ResourceWait time.Duration
	// DiskFull reports whether the disk is so full that no tasks should be made. nil: it never is.
	DiskFull func() bool
	// MaxTasks is how many tasks a tenant may have that have not ended; a submit of more is ErrFull. nil: as many as there are (X5).
	MaxTasks func(tenant string) int
}

// Recovery says what becomes of the leases of before a start.
type Recovery uint8

const (
	// KeepLeases lets them live on (A9).
	KeepLeases Recovery = iota
	// InvalidateLeases ends them all with COORDINATOR_RECOVERED (A9).
	InvalidateLeases
	// RestoredStore is for a store that comes from a backup: as InvalidateLeases, also for leases that were granted after the backup and
	// of which this store knows nothing (A11).
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
	// standstill is how long a gap between two rounds counts as the coordinator's own stall (A8).
	standstill = 200 * time.Millisecond
	// saveClock is how often the serving clock is made durable while leases are live (A9).
	saveClock = time.Second
	// saveIdleClock is how often it is while no lease is live and a queue waits for its rate limit. That wait must not begin anew with each crash (T13).
	saveIdleClock = time.Minute
	// dueAtOnce bounds the timers that one round applies, so that a batch stays bounded.
	dueAtOnce = maxBatchOps
)

// Engine is the owner of a partition. Make one with Open, run it with Run.
type Engine struct {
	cfg   Config
	st    store.Store
	rules *lease.Rules
	clock *clock
	inbox *inbox
	hub   *hub
	dir   *directory

	// All below belongs to the loop.
	set       *workset
	spaces    map[uint32]*space
	byName    map[Space]*space
	unended   map[string]uint64 // tasks that have not ended, by tenant
	total     tally             // of the tasks of all queues
	lastSpace uint32            // highest number of a space
	serving   *timeline
	wall      *timeline
	sessions  map[string]*taker
	current   map[string]string                  // session of each instance
	orphans   map[string]map[lease.TaskID]uint32 // live leases without a stream, by the instance that held them
	orphaned  map[lease.TaskID]string            // the same by task
	requests  map[requestKey][]lease.TaskID      // live leases by the request that they answer
	callers   map[*taker]func([]Granted, error)  // unary requests that wait
	asking    map[requestKey]*taker              // those of them that have an id
	served    []*taker                           // those of them that have got something
	stirred   *lanes[turn]                       // queues to be matched, by tenant
	grants    uint64                             // since the start
	nudged    map[*keyed]struct{}                // concurrency keys that may have room
	throttled *btree.BTreeG[throttle]            // queues that wait for their rate limit
	workers   map[workerKey]*presence            // those who are there, or are waited for
	alarms    alarms
	aheads    map[*ahead]struct{} // readings of lines under way
	audited   store.AuditKey      // place of the last entry of the audit

	committer *committer
	readers   sync.WaitGroup
	batch     *batch   // being filled
	inflight  []*batch // handed over and not told yet, the oldest first
	wanted    bool     // the committer takes one more
	now       lease.Now
	stalled   bool          // the loop stood still in this round
	lost      time.Duration // by stalls, so far
	toldAt    lease.Instant // when a commit was told last
	toldLost  time.Duration // by stalls before
	savedAt   lease.Instant
	taken     []op         // from the inbox, not yet run
	spare     []op         // their memory
	memory    lease.Memory // for the changes of a step
	blanks    blanks       // memory for those of a batch
}

// Open reads the store and makes an engine that is ready to run. Start time does not grow with the number of tasks.
func Open(st store.Store, cfg Config) (*Engine, error) {
	if cfg.Limits == (lease.Limits{}) {
		cfg.Limits = lease.DefaultLimits()
	}
	if cfg.AckWithin == 0 {
		cfg.AckWithin = lease.DefaultAckWithin
	}
	if cfg.ResourceWait == 0 {
		cfg.ResourceWait = lease.DefaultResourceWait
	}
	if cfg.DiskFull == nil {
		cfg.DiskFull = func() bool { return false }
	}
	cfg.Events.fill()
	e := &Engine{
		cfg: cfg, st: st, inbox: newInbox(), hub: newHub(), dir: &directory{byName: map[Space]uint32{}},
		set: newWorkset(st), spaces: map[uint32]*space{}, byName: map[Space]*space{}, unended: map[string]uint64{},
		serving: newTimeline(store.ServingClock), wall: newTimeline(store.WallClock),
		sessions: map[string]*taker{}, current: map[string]string{},
		orphans: map[string]map[lease.TaskID]uint32{}, orphaned: map[lease.TaskID]string{}, requests: map[requestKey][]lease.TaskID{},
		callers: map[*taker]func([]Granted, error){}, asking: map[requestKey]*taker{}, stirred: newStirred(), nudged: map[*keyed]struct{}{}, throttled: newThrottled(),
		workers: map[workerKey]*presence{}, alarms: newAlarms(),
		aheads: map[*ahead]struct{}{},
	}
	e.batch = newBatch(1, &e.blanks)
	e.committer = newCommitter(st, e.hub, &e.cfg.Events)
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

// Run serves until ctx ends, then makes durable what it has taken and returns nil; or until the store fails, and returns an error
// that wraps ErrStore: then the process must exit, since only a fresh look at the disk tells what was committed.
func (e *Engine) Run(ctx context.Context) (err error) {
	go e.committer.run()
	defer func() {
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
	e.clock.run()
	e.now = e.clock.now()
	for {
		timer.Reset(e.sleep())
		select {
		case <-ctx.Done():
			return e.drain()
		case <-e.wakeable():
		case <-timer.C:
		case <-e.committer.free:
			e.wanted = true
		case told, ok := <-e.committer.done:
			if !ok {
				return e.storeError()
			}
			e.durable(told)
			e.afterCommit(told[0])
		}
		e.round()
	}
}

// wakeable is the inbox, unless the batch is full: then only the committer wakes the loop.
func (e *Engine) wakeable() <-chan struct{} {
	if e.batch.full() {
		return nil
	}
	return e.inbox.wake
}

func (e *Engine) storeError() error { return fmt.Errorf("%w: %w", ErrStore, e.committer.err) }

// round takes what came in, then what is due, then hands out work, and hands the batch over where the committer wants one.
func (e *Engine) round() {
	e.submitBatch()
	if e.batch.full() {
		return // nobody is heard until the committer takes the batch; then look makes it good
	}
	e.stalled = false
	e.look()
	e.spare = e.inbox.take(e.spare[:0], maxBatchOps)
	e.unthrottle()
	for e.taken = e.spare; len(e.taken) > 0; e.taken = e.taken[1:] {
		e.look()
		e.taken[0].run()
		e.batch.ops = append(e.batch.ops, e.taken[0])
		e.taken[0] = op{}
	}
	e.look()
	if !e.stalled && !e.lagging() { // else what came in meanwhile is heard first
		e.expireDue()
		e.ringAlarms()
	}
	e.match(e.now)
	e.answerCallers()
	e.save()
	e.submitBatch()
}

// sleep is how long nothing is due. While the batch is full, what is due cannot be done anyway.
func (e *Engine) sleep() time.Duration {
	if e.batch.full() {
		return idleTick
	}
	d := idleTick
	if e.set.live > 0 {
		d = tick
	}
	if e.lagging() {
		return d
	}
	now := e.clock.now()
	if k, ok := e.serving.next(); ok {
		d = min(d, lease.Instant(k.due).Sub(now.Serving))
	}
	if k, ok := e.wall.next(); ok {
		d = min(d, time.Duration(k.due-int64(now.Wall)))
	}
	if t, ok := e.throttled.Min(); ok {
		d = min(d, t.until.Sub(now.Serving))
	}
	if a, ok := e.alarms.set.Min(); ok {
		d = min(d, a.at.Sub(now.Serving))
	}
	return max(d, 0)
}

// save asks for a commit of the serving clock alone where no other has carried it for a while (A9).
func (e *Engine) save() {
	unsaved := e.now.Serving.Sub(e.savedAt)
	if e.set.live > 0 && unsaved >= saveClock || e.throttled.Len() > 0 && unsaved >= saveIdleClock {
		e.batch.clock = true
	}
}

// submitBatch hands the batch over where the committer takes one.
func (e *Engine) submitBatch() {
	b := e.batch
	if !e.wanted || b.empty() && len(b.ops) == 0 && len(b.tells) == 0 {
		return
	}
	b.seal(e.clock.now().Serving)
	b.lost = e.lost
	if !b.empty() {
		e.savedAt = b.serving
	}
	e.inflight = append(e.inflight, b)
	e.batch = newBatch(b.number+1, &e.blanks)
	e.wanted = false
	e.committer.work <- b // never waits: the committer has taken the one before
}

// durable takes note that batches were committed and told.
func (e *Engine) durable(told []*batch) {
	e.inflight = slices.Delete(e.inflight, 0, len(told))
	for _, b := range told {
		for _, c := range b.changes {
			e.set.durable(b.number, c)
		}
		e.blanks.put(b.changes) // the committer has told all that they say
		e.beginReading(b.number)
	}
}

// flush waits until the store holds everything that was decided, so that it may be scanned. It panics if the store fails.
func (e *Engine) flush() {
	for len(e.inflight) > 0 || !e.batch.empty() {
		e.submitBatch()
		select {
		case <-e.committer.free:
			e.wanted = true
		case told, ok := <-e.committer.done:
			if !ok {
				panic(corrupt{e.committer.err})
			}
			e.durable(told)
		}
	}
}

// drain is the orderly end: everything taken is made durable and answered.
func (e *Engine) drain() error {
	for _, o := range e.inbox.close(ErrStopped) {
		if o.after != nil {
			o.after(ErrStopped)
		}
	}
	e.batch.clock = true
	e.flush()
	return nil
}

// stop ends the committer and answers whatever is left.
func (e *Engine) stop(err error) {
	why := ErrStopped
	if err != nil {
		why = ErrStore
	}
	close(e.committer.work)
	for range e.committer.done { // until it is closed
	}
	for b := range e.committer.work {
		b.answer(why)
	}
	e.readers.Wait()
	e.batch.answer(why)
	for _, o := range append(e.taken, e.inbox.close(why)...) {
		if o.after != nil {
			o.after(why)
		}
	}
	e.hub.close()
}

// ask runs fn on the loop, in the tenant's turn, and returns its answer once what it did is durable. If ctx ends first the outcome is
// unknown to the caller, and fn may still run: so fn tells nothing but its answer. Where ctx has ended before, fn does not run.
func ask[T any](ctx context.Context, e *Engine, tenant string, fn func() (T, error)) (T, error) {
	var none, answer T
	var refusal error
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	done := make(chan error, 1)
	err := e.inbox.put(tenant, op{run: func() { answer, refusal = fn() }, after: func(err error) { done <- err }})
	if err != nil {
		return none, err
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if err != nil {
		return none, err
	}
	return answer, refusal
}
