package engine

import "github.com/lessor-dev/lessor/lease"

// sessions has the sessions of workers, and the leases that wait for a session. A session is one
// stream of an instance, which has one session at a time. It belongs to the loop.
type sessions struct {
	byID    map[string]*taker
	current map[string]string // session of each instance that has one
	orphans map[string]orphans
}

// orphans are the attempts of the live leases of an instance whose session has gone, by task. The
// next session of the instance takes them over. An instance without such a lease has no entry in
// sessions.orphans.
type orphans map[lease.TaskID]uint32

func newSessions() *sessions {
	return &sessions{byID: map[string]*taker{}, current: map[string]string{}, orphans: map[string]orphans{}}
}

// find finds a session by its id, and ofInstance finds that of an instance. They return nil if
// there is none.
func (ss *sessions) find(session string) *taker        { return ss.byID[session] }
func (ss *sessions) ofInstance(instance string) *taker { return ss.byID[ss.current[instance]] }

// newest returns the session of an instance; "" if it has none.
func (ss *sessions) newest(instance string) string { return ss.current[instance] }

// knows reports whether an instance has a session, or leases that wait for one.
func (ss *sessions) knows(instance string) bool {
	return ss.current[instance] != "" || len(ss.orphans[instance]) > 0
}

// add adds the session of an instance that has none.
func (ss *sessions) add(session string, t *taker) {
	ss.byID[session], ss.current[lease.InstanceOf(session)] = t, session
}

// remove removes a session; its leases wait for the next one.
func (ss *sessions) remove(session string) *taker {
	t := ss.byID[session]
	delete(ss.byID, session)
	delete(ss.current, lease.InstanceOf(session))
	for id, attempt := range t.leases {
		ss.addOrphan(session, id, attempt)
	}
	return t
}

// addOrphan adds a lease that belonged to a session and waits for the next one of the instance.
func (ss *sessions) addOrphan(session string, id lease.TaskID, attempt uint32) {
	instance := lease.InstanceOf(session)
	if ss.orphans[instance] == nil {
		ss.orphans[instance] = orphans{}
	}
	ss.orphans[instance][id] = attempt
}

// removeOrphan removes a lease that has ended, or that a session of another instance holds now, if
// it is there; t is the version that had the lease.
func (ss *sessions) removeOrphan(t *lease.Task) {
	instance := lease.InstanceOf(t.Lease.Session)
	if delete(ss.orphans[instance], t.ID); len(ss.orphans[instance]) == 0 {
		delete(ss.orphans, instance)
	}
}

// orphansOf returns the leases of an instance that wait for a session.
func (ss *sessions) orphansOf(instance string) orphans { return ss.orphans[instance] }

// takeOver returns the leases of an instance that wait for a session, and removes them.
func (ss *sessions) takeOver(instance string) orphans {
	all := ss.orphans[instance]
	delete(ss.orphans, instance)
	return all
}

// isOrphan reports whether the live lease of a task waits for a session.
func (ss *sessions) isOrphan(t *lease.Task) bool {
	if t.Lease == nil {
		return false
	}
	_, orphan := ss.orphans[lease.InstanceOf(t.Lease.Session)][t.ID]
	return orphan
}

// leasesOf counts the live leases of each session of a tenant.
func (ss *sessions) leasesOf(tenant string) map[string]int {
	held := make(map[string]int)
	for session, t := range ss.byID {
		if t.wants.Space.Tenant == tenant {
			held[session] = len(t.leases)
		}
	}
	return held
}
