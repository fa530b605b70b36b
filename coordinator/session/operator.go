package session

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// This file has what operators do to sessions: drain and kick.

// Drain makes the instances to which the given sessions belong drain; a nil d ends that drain.
// There must be at least one session, and all must be of one worker. Drain returns all open
// sessions of these instances, also those that were opened in the meantime. by says, for the log,
// who asks.
func (r *Registry) Drain(some []*Session, d *lessorv1.Drain, by string) []*Session {
	for _, ss := range some {
		r.rememberDrain(ss.who.Tenant, lease.InstanceOf(ss.id), d)
	}
	all := r.sameInstances(some)
	for _, ss := range all {
		ss.updateDrain(r, by)
	}
	return all
}

// sameInstances returns all open sessions of the instances to which the given sessions belong.
func (r *Registry) sameInstances(some []*Session) []*Session {
	var all []*Session
	instances := map[string]bool{}
	for _, ss := range some {
		instances[lease.InstanceOf(ss.id)] = true
	}
	for _, ss := range r.Named(some[0].who.Tenant, some[0].info.GetName(), "") {
		if instances[lease.InstanceOf(ss.id)] {
			all = append(all, ss)
		}
	}
	return all
}

// updateDrain makes the session follow the drain that is remembered of its instance, which another
// operator may have changed meanwhile: it stops new work and sends the drain to the worker, or lets
// the session get work again.
func (ss *Session) updateDrain(r *Registry, by string) {
	ss.mu.Lock()
	d := r.drainOf(lease.InstanceOf(ss.id))
	news := d != nil && !proto.Equal(d, ss.drainAsked)
	ss.drainAsked = d
	tell := news && ss.state != handshaking // while handshaking, register sends it later
	ss.mu.Unlock()
	ss.resize()
	if tell {
		ss.out.drain(d)
	}
	if news || d == nil {
		ss.logger().Info("drain changed by an operator", "by", by, "drain", d != nil, "reason", d.GetReason())
	}
}

// BlockJoin keeps the session from joining the engine if it has not joined yet, so that it gets no
// leases any more. It reports whether the session has joined before. The caller kicks the session
// afterwards.
func (ss *Session) BlockJoin() (joined bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.left = true
	return ss.member != nil
}

// OfMembers returns the open sessions of members that are all of one worker, sorted by id. A member
// whose session has ended has none.
func (r *Registry) OfMembers(members []*engine.Member) []*Session {
	if len(members) == 0 {
		return nil
	}
	asked := map[*engine.Member]bool{}
	for _, m := range members {
		asked[m] = true
	}
	of := members[0].Wants
	return slices.DeleteFunc(r.Named(of.Space.Tenant, of.Worker, ""), func(ss *Session) bool {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		return ss.member == nil || !asked[ss.member]
	})
}

// Kick ends the session with a reset that asks the worker to wait for the time away before it
// connects again. ended says that all leases of its instance were ended before, so that the worker
// must not work on meanwhile. by says, for the log, who asks.
func (ss *Session) Kick(reason string, away time.Duration, ended bool, by string) {
	ss.logger().Warn("kicked by an operator", "by", by, "reason", reason, "requeue", ended)
	why := "an operator ended the session"
	if reason != "" {
		why += ": " + reason
	}
	ss.resetWith(&lessorv1.Reset{
		Code:        refusal.CodeKicked,
		Reason:      why,
		RetryAfter:  convert.Span(away),
		LeasesEnded: ended,
	})
}
