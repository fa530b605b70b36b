package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/lease"
)

// NewSessionID returns the id of a new session of a worker's instance. Sessions of the same
// instance share the part before the dash. So the engine recognizes the same process when it
// connects again after a broken connection or a restart of the coordinator; see lease.InstanceOf.
func NewSessionID(tenant, worker, instance string) string {
	return Instance(tenant, worker, instance) + "-" + strings.ToLower(rand.Text()[:12])
}

// Instance returns the part that is common to all session ids of a worker's instance.
func Instance(tenant, worker, instance string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + worker + "\x00" + instance))
	return "s" + hex.EncodeToString(sum[:8])
}

// Join makes a session known: from now on it gets work. It takes over the leases that an earlier
// session of the same instance holds or held. If that instance still has a stream, the stream is
// displaced. Join does not wait.
func (e *Engine) Join(m *Member) {
	t := newTaker(m.Wants, m.Slots)
	t.member = m
	e.inbox.later(m.Wants.Space.Tenant, func() {
		instance := lease.InstanceOf(m.Session)
		e.displace(instance, newerStream)
		e.sessions.add(m.Session, t)
		for id, attempt := range e.sessions.takeOver(instance) {
			e.setHolder(t, id, attempt)
			e.redeliver(t, id)
			e.repeatCancel(t, id)
		}
		e.attend(t)
	})
}

// KnowsInstance reports whether one of the instances has a stream or a live lease. A new session of
// such an instance needs no additional place in the quota.
func (e *Engine) KnowsInstance(ctx context.Context, tenant string, instances ...string) (known bool, err error) {
	// its leases depend on whether it may come back
	return askAs(ctx, e, tenant, op{settles: true}, func() (bool, error) {
		return slices.ContainsFunc(instances, e.sessions.knows), nil
	})
}

// redeliver sends a lease again if the holder never acknowledged it, because it is not known
// whether the holder has received it (W8).
func (e *Engine) redeliver(t *taker, id lease.TaskID) {
	task := e.set.task(id)
	l := task.Lease
	if l.AwaitsAck() && (t.member.Redeliver || l.Session != t.member.Session) {
		g := e.newGranted(task)
		g.Again = true
		e.batch().grant(t.member, g)
	}
}

// repeatCancel tells the holder of a lease again that a cancel was asked, because it may have had
// no stream when that happened (T7). Its next heartbeat would tell it as well, but may be due only
// when the grace is over.
func (e *Engine) repeatCancel(t *taker, id lease.TaskID) {
	task := e.set.task(id)
	if task.Cancel == nil {
		return
	}
	if ends := task.Lease.CancelBy; ends > e.now().Serving {
		e.notify(t, task, Notice{Reason: lease.TaskCancelled, Detail: task.Cancel.Reason, GraceEnds: ends})
	}
}

// newerStream tells a displaced stream why it ends.
const newerStream = "a newer stream of this instance has taken over"

// displace ends the session that an instance has, if there is one. why tells it the reason.
func (e *Engine) displace(instance, why string) {
	if t := e.sessions.ofInstance(instance); t != nil {
		e.depart(t.member.Session)
		e.batch().addOp(op{after: func(error) { t.member.Displaced(why) }})
	}
}

// Update replaces what a member wants and how many slots it has. If it has more live leases than
// slots, none is revoked. If another stream has taken the session over meanwhile, nothing changes:
// then that stream says both.
func (e *Engine) Update(m *Member, wants Wants, slots int) {
	wants = wants.sorted()
	e.withSession(wants.Space.Tenant, m.Session, func(t *taker) {
		if t.member != m {
			return
		}
		wants.SingleFlight = wants.SingleFlight || t.forcedSingle
		t.wants, t.slots, t.fits = wants, slots, nil
		e.recountUsage(t)
		e.attend(t)
	})
}

// Resize sets the number of slots of a member; 0 stops new work. As with Update, another stream may
// have taken the session over.
func (e *Engine) Resize(m *Member, slots int) {
	e.withSession(m.Wants.Space.Tenant, m.Session, func(t *taker) {
		if t.member == m {
			t.slots = slots
			e.agenda.offer(t)
		}
	})
}

// Heard tells the engine that a session has sent a frame after it was silent until a lease ended:
// it may get work again (W5, W9).
func (e *Engine) Heard(tenant, session string) {
	e.withSession(tenant, session, func(t *taker) {
		t.awaitsFrame = false
		e.agenda.offer(t)
	})
}

// withSession runs fn with settle for a session, if the session is known.
func (e *Engine) withSession(tenant, session string, fn func(*taker)) {
	e.inbox.settle(tenant, func() {
		if t := e.sessions.find(session); t != nil {
			fn(t)
		}
	})
}

// Leave removes a member that joined. If goodbye is false, because the stream was lost, its leases
// stay live (W8). If goodbye is true, Leave requeues all its leases at once (W9). Leave does not
// wait.
func (e *Engine) Leave(m *Member, goodbye bool) {
	e.inbox.later(m.Wants.Space.Tenant, func() {
		t := e.sessions.find(m.Session)
		if t == nil || t.member != m { // another stream has taken over the session
			return
		}
		e.depart(m.Session)
		if goodbye {
			e.requeue(t.leases, saidGoodbye)
		}
	})
}

// Replace ends an instance that another instance has replaced: it displaces its stream and requeues
// its leases at once (W8). It does not wait.
func (e *Engine) Replace(tenant, instance string) {
	e.inbox.later(tenant, func() {
		e.displace(instance, "another instance of the worker has replaced this one")
		e.requeue(e.sessions.orphansOf(instance),
			"another instance of the worker has replaced the one that held the task")
	})
}

// Dismiss is the goodbye of a session that was resumed but has not joined. It requeues the leases
// that wait for its worker at once (W9), unless a newer session of the instance has them. It does
// not wait.
func (e *Engine) Dismiss(tenant, session string) {
	e.inbox.later(tenant, func() {
		instance := lease.InstanceOf(session)
		if newest := e.sessions.newest(instance); newest != "" && newest != session {
			return
		}
		e.displace(instance, saidGoodbye) // the stream that had the session before may not have left yet
		e.requeue(e.sessions.orphansOf(instance), saidGoodbye)
	})
}

// revokedAtOnce is for how many instances Revoke waits together: they share commits, and other
// operations have their turn before the next ones.
var revokedAtOnce = 100

// Revoke ends all leases of some instances with REVOKED, for an operator, and removes the sessions
// that hold them, whichever they are by now (W10). It returns the members of these sessions, whose
// streams the caller must end, and how many leases it has ended; an instance without a session has
// no member. If waiting is set, Revoke ends only the leases that wait for a session. Revoke does
// not return before all that is durable, even if ctx ends: otherwise nobody would end the streams.
// The error is ErrStopped or ErrStore.
func (e *Engine) Revoke(
	ctx context.Context, tenant string, instances []string, waiting bool, detail string,
) (removed []*Member, leases int, err error) {
	entry := EntryOf(ctx)
	for some := range slices.Chunk(instances, revokedAtOnce) {
		done := make(chan error, len(some))
		for _, instance := range some {
			run := func() {
				m, n := e.revoke(instance, waiting, detail)
				if m != nil {
					removed = append(removed, m)
				}
				leases += n
				e.auditOnce(entry)
			}
			after := func(err error) { done <- err }
			err := e.inbox.put(tenant, op{settles: true, must: true, run: run, after: after})
			if err != nil {
				done <- err
			}
		}
		for range some {
			err = cmp.Or(err, <-done)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return removed, leases, nil
}

// revoke is Revoke for one instance, on the loop.
func (e *Engine) revoke(instance string, waiting bool, detail string) (removed *Member, leases int) {
	switch t := e.sessions.ofInstance(instance); {
	case t == nil:
		return nil, e.requeue(e.sessions.orphansOf(instance), detail)
	case waiting:
		return nil, 0
	default:
		e.depart(t.member.Session)
		return t.member, e.requeue(t.leases, detail)
	}
}

// LeaseRef names a lease.
type LeaseRef struct {
	Task    lease.TaskID
	Attempt uint32
}

// RevokeLeases ends leases of a tenant with REVOKED, for an operator, and returns how many; it
// leaves out those that have ended already. Their holders are told, and keep their sessions. If
// waiting is set, it leaves out those that a session holds. It takes some at a time, so that other
// operations have their turn, and does not return before that is durable. The error is ErrStopped
// or ErrStore.
func (e *Engine) RevokeLeases(
	ctx context.Context, tenant string, leases []LeaseRef, waiting bool, detail string,
) (revoked int, err error) {
	entry := EntryOf(ctx)
	for some := range slices.Chunk(leases, revokedAtOnce) {
		err := e.inbox.await(tenant, op{settles: true, must: true, run: func() {
			n := 0
			for _, l := range some {
				if !waiting || e.set.holderOf(l.Task) == nil {
					n += e.revokeLease(l.Task, l.Attempt, detail)
				}
			}
			if n > 0 {
				e.auditOnce(entry)
			}
			revoked += n
		}})
		if err != nil {
			return 0, err
		}
	}
	return revoked, nil
}

const saidGoodbye = "the worker said goodbye"

// requeue ends leases with REVOKED, and returns how many.
func (e *Engine) requeue(leases map[lease.TaskID]uint32, detail string) (revoked int) {
	for id, attempt := range leases {
		revoked += e.revokeLease(id, attempt, detail)
	}
	return revoked
}

// revokeLease ends a lease with REVOKED, and returns 1; or 0 if it has ended already, perhaps only
// now by a timer that was due.
func (e *Engine) revokeLease(id lease.TaskID, attempt uint32, detail string) int {
	_, changed := e.stepChanging(lease.Requeue{Task: id, Attempt: attempt, Cause: lease.Revoked, Detail: detail})
	if t := e.set.task(id); changed && t != nil && t.Last.Attempt == attempt && t.Last.Cause == lease.Revoked {
		return 1
	}
	return 0
}

// depart turns the leases of a session into orphans.
func (e *Engine) depart(session string) {
	t := e.sessions.remove(session)
	e.unattend(t, t.queues)
	e.workers.left(t)
	for id := range t.leases {
		e.set.hold(id, nil)
	}
}
