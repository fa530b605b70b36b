package session

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// What operators do to sessions.

// Drain asks the instances to which some sessions belong to drain; a nil d takes that back. The sessions must be of one worker, and at least one. It
// returns all sessions of these instances, also those that were opened meanwhile.
func (r *Registry) Drain(some []*Session, d *lessorv1.Drain) []*Session {
	for _, ss := range some {
		r.remember(lease.InstanceOf(ss.id), d)
	}
	all := r.sameInstances(some)
	for _, ss := range all {
		ss.setDrain(d)
	}
	return all
}

// sameInstances returns all sessions of the instances to which some sessions belong.
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

// setDrain stops new work for the session and tells the worker of the drain; a nil d lets it have work again.
func (ss *Session) setDrain(d *lessorv1.Drain) {
	ss.mu.Lock()
	news := d != nil && !proto.Equal(d, ss.drain)
	ss.drain = d
	tell := news && ss.state != handshaking // else register tells it
	ss.mu.Unlock()
	ss.resize()
	if tell {
		ss.out.drain(d)
	}
	if news || d == nil {
		ss.logger().Info("drain changed by an operator", "drain", d != nil, "reason", d.GetReason())
	}
}

// Kick ends the session with a reset; the worker is asked to stay away for the time away. requeue, for the log, says that its leases were taken from it
// before.
func (ss *Session) Kick(reason string, away time.Duration, requeue bool) {
	ss.logger().Warn("kicked by an operator", "reason", reason, "requeue", requeue)
	why := "an operator ended the session"
	if reason != "" {
		why += ": " + reason
	}
	ss.reset(refusal.CodeKicked, why, away)
}
