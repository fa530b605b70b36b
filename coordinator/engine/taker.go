package engine

import (
	"container/list"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// taker is whoever takes work: a session, or a unary request that waits.
type taker struct {
	wants  Wants
	queues []*queue
	member *Member // nil for a unary request
	slots  int
	leases map[lease.TaskID]uint32 // live ones that count against slots, with their attempt
	// hushed is set after a dispatch that nobody acknowledged: no more until the session says something (W5).
	hushed bool
	rests  bool // it has refused a task for no known reason, see Refuse
	single bool // it has refused one of a key: it gets one task of a key at a time, whatever it says of itself
	left   bool
	room   room
	fits   map[lease.Class]bool     // whether it meets the requirements of a class, where that was asked
	asked  map[*queue]*list.Element // where it stands in the lists of the hungry

	request string    // id of a unary request
	granted []Granted // of a unary request
	bytes   int       // of their assignments, about
}

func newTaker(w Wants, slots int) *taker {
	return &taker{wants: w, slots: slots, leases: map[lease.TaskID]uint32{}, asked: map[*queue]*list.Element{}}
}

// maxHandOver is how many bytes a unary response may have before it gets no further task; with the largest one behind it, it still
// fits a message.
const maxHandOver = 2 << 20

// weight is about how many bytes the assignment of a leased task has, rather too many than too few.
func (e *Engine) weight(t *lease.Task) int {
	const rest = 1536 // what is not counted below; a task token names tenant, workspace and run again
	n := rest + t.Spec.Size + t.Spec.PlacementSize() + 3*len(t.Workspace) + 2*len(t.Spec.RunID) + 3*len(t.Tenant) + len(t.Lease.Worker)
	for _, s := range []string{t.Spec.Queue, t.Spec.Type, t.Spec.RunID, t.Spec.TaskKey, t.Spec.AssetID, t.Spec.IdempotencyKey} {
		n += len(s)
	}
	for k, v := range t.Spec.Labels {
		n += len(k) + len(v) + 8
	}
	if t.HasCheckpoint {
		n += e.cfg.Limits.Checkpoint
	}
	return n
}

func (t *taker) free() int {
	if t.left || t.hushed || t.rests || t.bytes >= maxHandOver || t.backlogged() {
		return 0
	}
	return t.slots - len(t.leases)
}

// offer puts the taker where the queues find it when it has room.
func (e *Engine) offer(t *taker) {
	if t.free() <= 0 {
		return
	}
	for _, q := range t.queues {
		if t.asked[q] == nil {
			t.asked[q] = q.hungry.PushBack(t)
		}
		e.stir(q)
	}
}

// sit takes the taker out of a queue's list of the hungry.
func (t *taker) sit(q *queue) {
	if place := t.asked[q]; place != nil {
		q.hungry.Remove(place)
		delete(t.asked, q)
	}
}

// grantAt leases a task of a line, its first unless the taker has no room for that. Should it turn out not to wait any more (its deadline is
// due, its concurrency key has no room), the step has taken it out of the line all the same.
func (e *Engine) grantAt(l *line, p place, t *taker, now lease.Now) {
	id := lease.TaskID{Space: l.queue.space.number, Seq: p.seq}
	grant := lease.Grant{Task: id, Worker: t.wants.Worker, Behind: e.behind(l, id, p)}
	if t.member != nil {
		grant.Session = t.member.Session
	} else {
		grant.Request = t.request
	}
	e.step(now, grant)
	task := e.set.task(id)
	if task == nil || task.Lease == nil {
		l.head.remove(p) // also where an index entry has no task, which must not stop the line
		e.settle(l)
		return
	}
	e.tookTurn(l.queue, l.flow, now.Serving)
	e.hold(t, id, task.Lease.Attempt)
	e.handOver(t, e.granted(task))
	if t.free() <= 0 || t.wants.choosy() {
		e.loosen(t)
	}
}

func (e *Engine) handOver(t *taker, g Granted) {
	if t.member != nil {
		e.batch.grant(t.member, g)
		return
	}
	if len(t.granted) == 0 {
		e.served = append(e.served, t)
	}
	t.granted = append(t.granted, g)
	t.bytes += g.Bytes
}

func (e *Engine) granted(t *lease.Task) Granted {
	return Granted{
		Task: t, LeaseID: e.leaseID(t, t.Lease), Token: lease.FencingToken(t.Lease.Epoch, t.Lease.Attempt), Bytes: e.weight(t),
	}
}

func (e *Engine) leaseID(t *lease.Task, l *lease.Lease) string {
	if l.ID != "" {
		return l.ID
	}
	return e.rules.Authority.Issue(t.Tenant, lease.Ticket{Epoch: l.Epoch, Task: t.ID, Attempt: l.Attempt, Nonce: l.Nonce})
}

// hold counts a live lease against a taker's slots.
func (e *Engine) hold(t *taker, id lease.TaskID, attempt uint32) {
	t.leases[id] = attempt
	e.set.find(id).holder = t // a live lease is always held
	e.burden(t, id)
}

// holderOf is who holds the live lease of a task; nil: nobody is there.
func (e *Engine) holderOf(id lease.TaskID) *taker {
	if h := e.set.find(id); h != nil {
		return h.holder
	}
	return nil
}

// unhold forgets who does.
func (e *Engine) unhold(id lease.TaskID) {
	if h := e.set.find(id); h != nil {
		h.holder = nil
	}
}

// letGo takes an ended lease from its holder, who has a slot more, but gets no work if he never acknowledged the lease.
func (e *Engine) letGo(id lease.TaskID, unacked bool) *taker {
	t := e.holderOf(id)
	if t == nil {
		e.unorphan(id)
		return nil
	}
	e.unhold(id)
	delete(t.leases, id)
	t.unburden(id)
	if unacked {
		t.hushed = true
	}
	e.offer(t)
	return t
}

// notice of a lease that its holder has to stop.
func (e *Engine) notice(t *lease.Task, l *lease.Lease, reason lease.Reason, detail string, grace time.Duration) Notice {
	return Notice{Task: t.ID, LeaseID: e.leaseID(t, l), Reason: reason, Detail: detail, Grace: grace}
}
