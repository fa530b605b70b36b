package session

import (
	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// This file has what operators see of a session.

// ID returns the id of the session.
func (ss *Session) ID() string { return ss.id }

var workerStates = map[sessionState]lessorv1.WorkerState{
	handshaking:  lessorv1.WorkerState_WORKER_STATE_HANDSHAKING,
	registered:   lessorv1.WorkerState_WORKER_STATE_REGISTERED,
	heartbeating: lessorv1.WorkerState_WORKER_STATE_HEARTBEATING,
	draining:     lessorv1.WorkerState_WORKER_STATE_DRAINING,
}

// Worker returns what operators see of the session.
func (ss *Session) Worker() *lessorv1.Worker {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	state := ss.state
	if (ss.health.drains || ss.drainAsked != nil) && state != handshaking {
		state = draining
	}
	health, why := ss.shownHealth()
	return &lessorv1.Worker{
		WorkerId:         ss.info.GetName(),
		SessionId:        ss.id,
		Info:             ss.info,
		State:            workerStates[state],
		Capabilities:     ss.caps,
		WorkspaceId:      ss.wants.Space.Workspace,
		Queues:           ss.wants.Queues,
		PoolId:           ss.pool,
		ConnectedAt:      convert.Stamp(ss.connected),
		LastSeenAt:       convert.Stamp(ss.seen),
		Healthy:          !ss.health.unhealthy,
		Metrics:          ss.health.metrics,
		Health:           health,
		HealthDetail:     why,
		MissedHeartbeats: uint32(ss.health.missed),
		Drain:            ss.drainAsked,
		Packages:         ss.packages.list(),
		InstallsPackages: ss.installs,
	}
}

func (ss *Session) currentHealth() lessorv1.WorkerHealth {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	health, _ := ss.shownHealth()
	return health
}

// shownHealth returns the health of the worker for operators, and why it is so. A worker that gets
// no work because it was silent until a lease ended (W5, W9) is DEGRADED, even if no heartbeat is
// due yet.
func (ss *Session) shownHealth() (health lessorv1.WorkerHealth, why string) {
	if ss.health.takesWork() && ss.awaitsFrame.Load() {
		return lessorv1.WorkerHealth_WORKER_HEALTH_DEGRADED,
			"it was silent until one of its leases ended: no new work until it sends a frame"
	}
	health = ss.health.status()
	return health, ss.health.reason(health)
}
