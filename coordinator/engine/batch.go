package engine

import (
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/timerindex"
)

// Caps of a batch, and of a commit of several batches. About 1,000 tasks per flush is the best size
// if a flush takes a few milliseconds; where it takes longer, larger commits make up for that.
// While several tenants have operations, commits are short, because a call of one waits for some
// five commits of the others (T12).
var (
	maxBatchOps      = 1000
	maxBatchBytes    = 8 << 20
	maxBatchChanges  = 4000
	maxSharedChanges = 1000 // instead of maxBatchChanges, while several tenants have operations
)

// batchNumber says which batch it is. Batches become durable in the order of their numbers, which
// begin at 1 with each start.
type batchNumber uint64

// batch holds the changes of a number of operations, which become durable together, and the
// answers, grants and news to send after that.
type batch struct {
	number     batchNumber
	changes    []*change
	pool       *changePool // memory for further changes
	spaces     []*space    // the spaces whose record it writes, each once; see touchSpace
	queues     []*queue
	configured []*queue             // the queues whose settings it writes
	ledgers    []expiredLedger      // deleted tasks whose ledger it removes
	puts       []func(*store.Batch) // writes of Keep, and of moveKeys
	timersGone []store.TimerKey     // timers of tasks that waited, to be removed from Timer
	audits     []*records.Audit
	clock      bool           // commit the batch even if it holds only the clock
	feeds      []ResolvedFeed // what live attempts reported during the batch

	ops         []op
	deliveries  []*delivery // grants and notices, one entry per member
	deliveryOf  map[*Member]*delivery
	bytes       int
	mostChanges int // from which on it is full
	handedOut   int // to how many calls and sessions match has handed out tasks; see takersPerBatch

	sealed
}

// sealed is what a batch gets last: the loop sets it at the hand-over (finishBatch), except for the
// feedback, which the committer adds (hub.absorb).
type sealed struct {
	spaceRecords []records.Space
	queueRecords []records.Queue
	forgotten    []records.Queue // the ones that are unused
	settings     []setting
	serving      lease.Instant
	extended     time.Duration // value of stalls.extended
	timers       timerindex.Changes
	feedback     []finalFeedback // last feedback of the attempts that the batch ends
}

// setting is the settings of a queue, to be written.
type setting struct {
	space    uint32
	queue    string
	settings *lease.Settings
}

// change is everything that a batch changes in one task: from the version before the batch to the
// version after it.
type change struct {
	lease.Change
	id    lease.TaskID
	entry *taskEntry // the entry of the task in the working set; only the loop may use it
	key   string     // idempotency key that the change adds or removes; empty: none
}

// expiredLedger is a ledger to remove, and the timer that was due for it.
type expiredLedger struct {
	task lease.TaskID
	due  lease.Instant
}

// delivery holds the grants and notices for a member, to be sent after the commit.
type delivery struct {
	member  *Member
	granted []Granted
	notices []Notice
}

func newBatch(number batchNumber, memory *changePool) *batch {
	return &batch{
		number: number, pool: memory, mostChanges: maxBatchChanges, deliveryOf: map[*Member]*delivery{},
	}
}

// changePool holds changes of finished batches, to use their memory again: there are thousands of
// changes several times a second.
type changePool struct{ all []*change }

// take returns an empty change.
func (p *changePool) take() *change {
	last := len(p.all) - 1
	if last < 0 {
		return new(change)
	}
	c := p.all[last]
	p.all = p.all[:last]
	return c
}

// put returns changes that nobody needs any more to the pool. It clears them, so that the pool
// keeps no tasks alive.
func (p *changePool) put(all []*change) {
	for _, c := range all {
		*c = change{}
	}
	p.all = append(p.all, all[:min(len(all), maxBatchChanges-len(p.all))]...)
}

// These add to what the batch writes and tells. An op that is added has run.
func (b *batch) addOp(o op)                    { b.ops = append(b.ops, o) }
func (b *batch) addFeed(n ResolvedFeed)        { b.feeds = append(b.feeds, n) }
func (b *batch) addAudit(a *records.Audit)     { b.audits = append(b.audits, a) }
func (b *batch) addPut(put func(*store.Batch)) { b.puts = append(b.puts, put) }
func (b *batch) addSettings(q *queue)          { b.configured = append(b.configured, q) }
func (b *batch) dropTimer(k store.TimerKey)    { b.timersGone = append(b.timersGone, k) }
func (b *batch) dropLedger(id lease.TaskID, due lease.Instant) {
	b.ledgers = append(b.ledgers, expiredLedger{id, due})
}
func (b *batch) keepClock() { b.clock = true }

// touchSpace makes the batch write the record of a space. The record has the state of the space at
// the time of seal.
func (b *batch) touchSpace(s *space) {
	if s.writtenIn != b.number {
		s.writtenIn = b.number
		b.spaces = append(b.spaces, s)
	}
}

// leaveSpace undoes touchSpace.
func (b *batch) leaveSpace(s *space) {
	s.writtenIn = 0
	b.spaces = slices.DeleteFunc(b.spaces, func(other *space) bool { return other == s })
}

// touchQueue does the same as touchSpace for a queue.
func (b *batch) touchQueue(q *queue) {
	if q.writtenIn != b.number {
		q.writtenIn = b.number
		b.queues = append(b.queues, q)
	}
}

// forgetIfUnused makes the batch forget a queue if it is unused by then.
func (b *batch) forgetIfUnused(q *queue) {
	if q.unused() {
		b.touchQueue(q)
	}
}

// deliveryTo finds the delivery to a member or makes it.
func (b *batch) deliveryTo(m *Member) *delivery {
	d := b.deliveryOf[m]
	if d == nil {
		d = &delivery{member: m}
		b.deliveryOf[m] = d
		b.deliveries = append(b.deliveries, d)
	}
	return d
}

// grant hands a lease to a member once the batch is durable.
func (b *batch) grant(m *Member, g Granted) {
	d := b.deliveryTo(m)
	d.granted = append(d.granted, g)
	if m.Backlog != nil {
		m.Backlog.Add(g.Bytes)
	}
}

// empty reports whether there is nothing to make durable.
func (b *batch) empty() bool {
	return len(b.changes) == 0 && len(b.spaces) == 0 && len(b.queues) == 0 && len(b.configured) == 0 &&
		len(b.ledgers) == 0 && len(b.puts) == 0 && len(b.audits) == 0 && !b.clock
}

// full reports whether all further work is left to the next batch. Until then, each kind of work in
// a round has a bound of its own: if what the operations have changed counted against the grants, a
// flood of submits would end all grants.
func (b *batch) full() bool {
	return len(b.ops) >= maxBatchOps || b.bytes >= maxBatchBytes || len(b.changes) >= b.mostChanges
}

// add merges a step's change with what the batch already does to the task.
func (b *batch) add(entry *taskEntry, c *lease.Change) {
	b.bytes += size(c)
	if entry.changedIn != b.number {
		have := b.pool.take()
		have.Change, have.id, have.entry = *c, entry.id, entry
		entry.changedIn, entry.change = b.number, have
		b.changes = append(b.changes, have)
	} else {
		entry.change.merge(c)
	}
	if c.Old == nil || c.New == nil {
		_, spec := c.Subject()
		entry.change.key = spec.IdempotencyKey
	}
}

func (have *change) merge(c *lease.Change) {
	have.New = c.New
	have.Row = have.Row || c.Row
	have.Ledger = append(have.Ledger, c.Ledger...)
	if c.Result != nil {
		have.Result = c.Result
	}
	if c.Failure != nil {
		have.Failure = c.Failure
	}
	if c.Checkpoint != nil {
		have.Checkpoint = c.Checkpoint
	}
	have.Kept = append(have.Kept, c.Kept...)
	have.Dropped = append(have.Dropped, c.Dropped...)
	have.ForgetAt = c.ForgetAt
}

// size estimates how many bytes a change adds to the batch in memory. It counts only what can be
// long.
func size(c *lease.Change) int {
	n := len(c.Checkpoint)
	if c.Old == nil {
		n += len(c.New.Spec.Payload) + c.New.Spec.PlacementSize()
		for k, v := range c.New.Spec.Labels {
			n += len(k) + len(v)
		}
	}
	if c.New != nil {
		if c.Row {
			n += historySize(c.New.History)
		}
		if c.New.Lease != nil {
			n += historySize(c.New.Lease.Events)
		}
	}
	if c.Result != nil {
		n += c.Result.Size()
	}
	if f := c.Failure; f != nil {
		n += len(f.Message) + len(f.Stack) + len(f.Partial)
		for k := range f.Metrics {
			n += len(k) + 8
		}
	}
	for _, k := range c.Kept {
		n += k.Result.Size()
	}
	return n
}

func historySize(events []lease.Event) (n int) {
	const rest = 24 // bytes of an event in the store, without its texts
	for i := range events {
		n += rest + len(events[i].Actor) + len(events[i].Detail)
	}
	return n
}

// seal copies the counters that the batch writes, because the loop changes them while the batch is
// being committed. Queues that are unused by now are removed from memory, and the batch deletes
// their records: from now on a submit to such a queue makes a new one, which a later batch writes.
func (b *batch) seal(now lease.Instant) {
	b.serving = now
	for _, s := range b.spaces {
		b.spaceRecords = append(b.spaceRecords, records.Space{
			Number:      s.number,
			Tenant:      s.name.Tenant,
			Workspace:   s.name.Workspace,
			NextSeq:     s.nextSeq,
			LostFrom:    s.lost.from,
			LostTo:      s.lost.to,
			CountedFrom: s.countedFrom,
		})
	}
	for _, q := range b.queues {
		if q.unused() {
			q.createdAt = 0
			q.space.drop(q)
			b.forgotten = append(b.forgotten, q.record())
			continue
		}
		b.queueRecords = append(b.queueRecords, q.record())
	}
	for _, q := range b.configured {
		b.settings = append(b.settings, setting{q.space.number, q.name, q.settings})
	}
}

// encode adds the records of the batch to a store batch.
func (b *batch) encode(to *store.Batch, st store.Store) error {
	for _, s := range b.spaceRecords {
		records.PutSpace(to, s)
	}
	for _, q := range b.forgotten {
		records.DeleteQueue(to, q.Space, q.Name)
	}
	for _, q := range b.queueRecords {
		records.PutQueue(to, q)
	}
	for _, s := range b.settings {
		records.PutSettings(to, s.space, s.queue, s.settings)
	}
	for _, k := range b.timersGone { // before the changes: a task that has ended may have a timer at the same time
		records.DeleteTimer(to, k)
	}
	for _, c := range b.changes {
		if c.Old != nil || c.New != nil {
			records.Put(to, &c.Change)
		}
	}
	for _, f := range b.feedback {
		records.PutFeedback(to, f.task, f.feedback)
	}
	for _, put := range b.puts {
		put(to)
	}
	b.timers.Put(to)
	for _, a := range b.audits {
		records.PutAudit(to, a)
	}
	records.PutClock(to, b.serving)
	if len(b.ledgers) == 0 {
		return nil
	}
	return store.Peek(st, func(r store.Reader) error {
		for _, g := range b.ledgers {
			if err := records.ForgetLedger(to, r, g.task, g.due); err != nil {
				return err
			}
		}
		return nil
	})
}

// answer ends the operations of the batch, in their order.
func (b *batch) answer(err error) { answerAll(b.ops, err) }
