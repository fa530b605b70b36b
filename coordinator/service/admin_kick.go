package service

import (
	"context"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// How long a worker may not open a session after a kick: the default, and the maximum.
const (
	kickedFor    = 5 * time.Second
	kickedAtMost = 24 * time.Hour
)

// kick is what a kick ends.
type kick struct {
	sessions []*session.Session
	held     map[string]int // leases by session id, as they were before
	revoked  int            // how many leases have ended
	all      bool           // all leases of the instances of the sessions have ended
}

// KickWorker ends sessions of a worker, and with requeue also the leases that workers of this name
// hold.
func (s *adminService) KickWorker(
	ctx context.Context, req *lessorv1.KickWorkerRequest,
) (*lessorv1.KickWorkerResponse, error) {
	f := s.fields()
	reason := f.Text("reason", req.GetReason(), convert.MaxReason)
	away := f.Span("retry_after", req.GetRetryAfter(), kickedAtMost)
	if away > kickedAtMost {
		f.Fail("retry_after", "is %v; the limit is %v", away, kickedAtMost)
	}
	if req.GetRetryAfter() == nil {
		away = kickedFor
	}
	name, err := parseWorkerName(ctx, f, req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	var k kick
	if req.GetRequeue() {
		k, err = s.revoke(ctx, name, reason)
	} else {
		k.sessions, k.held, err = s.sessionsToChange(ctx, name)
	}
	if err != nil {
		return nil, refusal.Status(err)
	}
	res := &lessorv1.KickWorkerResponse{
		Workers:  described(k.sessions, k.held),
		Sessions: uint32(len(k.sessions)), Revoked: uint32(k.revoked),
	}
	for _, ss := range k.sessions {
		ss.Kick(reason, away, k.all, gate.Identify(ctx).Subject)
	}
	return res, nil
}

// revoke ends the leases that workers of a name hold: those of its sessions, and those without an
// open session, such as of a process that has died. If the name has a session, it ends only the
// leases of that one's instance. It returns the sessions to end.
func (s *adminService) revoke(ctx context.Context, name workerName, reason string) (k kick, err error) {
	tenant := gate.Identify(ctx).Tenant
	why := "an operator revoked the worker's leases"
	if reason != "" {
		why += ": " + reason
	}
	if k.held, err = s.Engine.LeasesBySession(ctx, tenant); err != nil {
		return k, err
	}
	// Before the sessions: the leases of one that is opened or ends meanwhile must be here or
	// there.
	held, err := s.leasesNamed(tenant, name)
	if err != nil {
		return k, err
	}
	k.sessions = s.Sessions.Named(tenant, name.worker, name.session)
	if len(k.sessions) > 0 {
		if k, err = s.revokeSessions(ctx, k, name.session != "", why); err != nil || name.session != "" {
			return k, err
		}
	}
	n, err := s.Engine.RevokeLeases(ctx, tenant, held, name.session != "", why)
	if err != nil {
		return k, err
	}
	if k.revoked += n; k.revoked == 0 && len(k.sessions) == 0 {
		return k, notHeld(name)
	}
	return k, nil
}

// notHeld says that a name has neither a session nor a lease.
func notHeld(name workerName) error {
	if name.session != "" {
		return fmt.Errorf("%w, and no lease waits for it", refusal.ErrNoSession)
	}
	return fmt.Errorf("%w, and none holds a lease", refusal.ErrNoWorker)
}

// leasesNamed finds the leases that were granted to workers of a name; if the name has a session,
// only those that its instance had last. It reads them from the store, so that many leases do not
// hold up the engine: no worker knows of one that is not there yet.
func (s *adminService) leasesNamed(tenant string, name workerName) (held []engine.LeaseRef, err error) {
	instance := lease.InstanceOf(name.session)
	err = s.longView(func(r store.Reader) error {
		return records.Spaces(r, func(sp records.Space) error {
			if sp.Tenant != tenant {
				return nil
			}
			return records.LeasedTasksOf(r, sp.Number, 0, func(t *lease.Task) bool {
				if t.Lease.Worker == name.worker &&
					(name.session == "" || lease.InstanceOf(t.Lease.Session) == instance) {
					held = append(held, engine.LeaseRef{Task: t.ID, Attempt: t.Lease.Attempt})
				}
				return true
			})
		})
	})
	return held, err
}

// revokeSessions ends the leases of the instances of the sessions of k, before these sessions are
// ended, so that no report of the worker can arrive in between. It adds the sessions that have
// taken leases over from the given ones meanwhile. If one session is named by its id and has not
// taken over the leases of its instance yet, they stay with the session that has them; otherwise
// all of them have ended.
func (s *adminService) revokeSessions(ctx context.Context, k kick, byID bool, why string) (kick, error) {
	joined, ending := false, map[*session.Session]bool{}
	instances := make([]string, len(k.sessions))
	for i, ss := range k.sessions {
		joined = ss.BlockJoin() || joined
		ending[ss] = true
		instances[i] = lease.InstanceOf(ss.ID())
	}
	waiting := byID && !joined
	removed, revoked, err := s.Engine.Revoke(ctx, gate.Identify(ctx).Tenant, instances, waiting, why)
	if err != nil {
		return k, err
	}
	for _, other := range s.Sessions.OfMembers(removed) {
		if !ending[other] {
			k.sessions = append(k.sessions, other)
		}
	}
	k.revoked, k.all = revoked, !waiting
	return k, nil
}
