package engine

import (
	"container/list"
	"slices"
	"sync/atomic"

	"github.com/lessor-dev/lessor/lease"
)

// taker is a receiver of work: a session, or a call of a unary request.
type taker struct {
	member *Member   // the session; nil for a call
	call   unaryCall // empty for a session
	wants  Wants
	queues []*queue
	slots  int
	leases map[lease.TaskID]uint32 // attempts of the live leases that count against slots, by task
	// awaitsFrame is set after a dispatch that was not acknowledged (W5), or a lease that expired
	// (W9): the session gets no work until it sends a frame.
	awaitsFrame bool
	// forcedSingle: it has refused a task because of its concurrency key, and gets one task of a
	// key at a time even if it declares otherwise.
	forcedSingle bool
	gone         bool // its session has ended, or the call no longer waits
	used         usage
	refused      refusedKeys
	// makesRoom: it gets no work until this rings, or a lease of it ends; nil: it may get some. See
	// makeRoom.
	makesRoom *alarm
	fits      map[lease.Class]bool     // whether it meets the requirements of a class; a cache, see meets
	placeIn   map[*queue]*list.Element // its places in queue.available of its queues
}

// unaryCall is what only a call of a unary request has.
type unaryCall struct {
	request string // its request id; empty: none
	granted []Granted
	bytes   int                    // estimated size of granted
	reply   func([]Granted, error) // gives the caller its answer
	left    atomic.Bool            // the caller has left, and waits for no answer
}

func newTaker(w Wants, slots int) *taker {
	return &taker{
		wants:   w.sorted(),
		slots:   slots,
		leases:  map[lease.TaskID]uint32{},
		placeIn: map[*queue]*list.Element{},
	}
}

// maxResponse is the size in bytes from which on a unary response gets no further task. The last
// task may exceed it: even a task of the largest size then still fits into a message.
var maxResponse = 2 << 20

// assignmentSize estimates how many bytes the assignment of a leased task has; the estimate is
// rather too high than too low.
func assignmentSize(t *lease.Task) int {
	const rest = 1536 // bytes for all fields that are not counted below
	n := rest + t.Spec.Size + t.CheckpointBound() + t.Spec.PlacementSize() + len(t.Lease.Worker)
	n += 3*len(t.Workspace) + 2*len(t.Spec.RunID) + 3*len(t.Tenant) // the task token has them, too
	for _, s := range []string{
		t.Spec.Queue, t.Spec.Type, t.Spec.RunID, t.Spec.TaskKey, t.Spec.AssetID, t.Spec.IdempotencyKey,
	} {
		n += len(s)
	}
	for k, v := range t.Spec.Labels {
		n += len(k) + len(v) + 8
	}
	return n
}

// free returns how many more leases the taker may get now.
func (t *taker) free() int {
	if t.gone || t.awaitsFrame || t.refused.tooMany() || t.makesRoom != nil || t.call.bytes >= maxResponse ||
		t.backlogged() {
		return 0
	}
	return t.slots - len(t.leases)
}

func (t *taker) attends(q *queue) bool { return slices.Contains(t.queues, q) }

// withdraw removes the taker from the available takers of a queue. If a turn of the queue is under
// way, takers at which it has looked already may have left tasks to this one, for which its worker
// goes first.
func (t *taker) withdraw(q *queue) {
	q.news = q.news || len(q.pools.preferred[t.wants.Worker]) > 0
	if place := t.placeIn[q]; place != nil {
		if q.goOnAt == place {
			q.goOnAt = place.Next()
		}
		q.available.Remove(place)
		delete(t.placeIn, q)
	}
}

// attend registers a taker with the queues it wants, and with no others.
func (e *Engine) attend(t *taker) {
	e.workers.arrived(t)
	before := t.queues
	t.queues = nil
	s := e.spaces.obtain(t.wants.Space)
	for _, name := range t.wants.Queues {
		q := s.queue(name)
		q.attending++
		t.queues = append(t.queues, q)
	}
	e.unattend(t, before)
	e.agenda.offer(t)
}

// unattend removes a taker from the given queues. It deletes a queue that does not exist in the
// store when its last taker leaves, and a space without a number when its last queue is deleted.
func (e *Engine) unattend(t *taker, queues []*queue) {
	for _, q := range queues {
		t.withdraw(q)
		if q.attending--; q.attending > 0 {
			continue
		}
		q.leftAt = e.now().Wall
		if q.createdAt != 0 {
			e.batch().forgetIfUnused(q)
			continue
		}
		q.space.drop(q)
		e.spaces.forgetUnused(q.space)
	}
}

// grantAt leases the task at a place of a line to a taker. If the task cannot be granted (its
// deadline is due, its concurrency key has no room), the step takes it out of the line instead.
func (e *Engine) grantAt(l *line, p place, t *taker) {
	id := lease.TaskID{Space: l.queue.space.number, Seq: p.seq}
	grant := lease.Grant{Task: id, Worker: t.wants.Worker, Behind: e.parking.behind(l, id, p)}
	if t.member != nil {
		grant.Session = t.member.Session
	} else {
		grant.Request = t.call.request
	}
	e.effort.add(1)
	before := e.set.leased(id) // not nil: the index entry is wrong, and the lease is that of another taker
	e.step(grant)
	task := e.set.task(id)
	if !isLeased(task) || before != nil && before.Lease.Attempt == task.Lease.Attempt {
		l.head.remove(p) // even if the index entry is wrong: such an entry must not block the line
		e.lines.relist(l)
		if t.wants.limitsByTask() {
			e.agenda.releasePreferred(t)
		}
		return
	}
	e.agenda.granted(l.queue, l.flow, e.now().Serving)
	if l.lineup != nil {
		l.queue.waiting.granted(l)
	}
	e.setHolder(t, id, task.Lease.Attempt)
	e.deliver(t, e.newGranted(task))
	if t.free() <= 0 || t.wants.hasLimits() {
		e.agenda.releasePreferred(t)
	}
}

// deliver adds a granted task to what a session gets after the commit, or to the answer of a call.
func (e *Engine) deliver(t *taker, g Granted) {
	if t.member != nil {
		e.batch().grant(t.member, g)
		return
	}
	if len(t.call.granted) == 0 {
		e.requests.answerSoon(t)
	}
	t.call.granted = append(t.call.granted, g)
	t.call.bytes += g.Bytes
}

func (e *Engine) newGranted(t *lease.Task) Granted {
	return Granted{
		Task:    t,
		LeaseID: e.leaseID(t),
		Token:   lease.FencingToken(t.Lease.Epoch, t.Lease.Attempt),
		Bytes:   assignmentSize(t),
	}
}

// leaseID returns the id of a task's lease. For a lease that was granted before a restart, it
// computes the same id again.
func (e *Engine) leaseID(t *lease.Task) string {
	if t.Lease.ID != "" {
		return t.Lease.ID
	}
	return e.LeaseID(t.Holding())
}

// setHolder makes a taker the holder of a live lease, which counts against its slots.
func (e *Engine) setHolder(t *taker, id lease.TaskID, attempt uint32) {
	t.leases[id] = attempt
	e.set.hold(id, t)
	e.addUsage(t, id)
}

// removeHolder takes a lease from its holder, which then has one more free slot, and returns the
// holder, or nil; t is the version that had the lease. If silent is set, the holder gets no work
// until it sends a frame (W5, W9): a process that stands still would hold up one task after the
// other.
func (e *Engine) removeHolder(t *lease.Task, silent bool) *taker {
	holder := e.set.holderOf(t.ID)
	if holder == nil {
		e.sessions.removeOrphan(t)
		return nil
	}
	e.set.hold(t.ID, nil)
	delete(holder.leases, t.ID)
	holder.removeUsage(t.ID)
	holder.refused.took(t.Spec.ConcurrencyKey)
	e.stopMakingRoom(holder)
	if silent {
		holder.awaitsFrame = true
	}
	e.agenda.offer(holder)
	return holder
}
