package lease_test

import "github.com/lessor-dev/lessor/lease"

// modelQueue is the settings of a queue and the state of its rate limit.
type modelQueue struct {
	settings        lease.Settings
	credit          float64       // how many grants the rate limit would allow at once
	creditAt        lease.Instant // the time to which credit refers
	committedCredit float64       // credit and creditAt, as they were last committed
	committedAt     lease.Instant
}

// setQueue sets the settings of a queue. Its rate limit begins used up.
func (m *model) setQueue(q specKey, s lease.Settings) {
	m.queues[q] = &modelQueue{settings: s, creditAt: m.now.Serving}
}

// useUpRateLimits uses up all rate limits, as a restore does: the coordinator does not know which
// grants it made after the backup.
func (m *model) useUpRateLimits() {
	for _, q := range m.queues {
		q.credit, q.creditAt = 0, m.now.Serving
	}
	m.committed()
}

// burst returns how many grants the rate limit allows at once.
func (q *modelQueue) burst() float64 {
	r := q.settings.Rate
	switch {
	case r.Burst > 0:
		return float64(r.Burst)
	case r.PerSecond < 1:
		return 1
	}
	return float64(int(r.PerSecond))
}

func (q *modelQueue) refill(now lease.Instant) {
	if now > q.creditAt {
		q.credit += float64(now-q.creditAt) / 1e9 * q.settings.Rate.PerSecond
		q.creditAt = now
	}
	if q.credit > q.burst() {
		q.credit = q.burst()
	}
}

// grant returns the new lease, or nil and why the task may not be granted (A1, A2, T11, T13).
// rulesBlock is what the rules answered; see exhausted.
func (m *model) grant(id, session string, rulesBlock lease.Block) (l *modelLease, outcome string) {
	t := m.tasks[id]
	if t == nil || t.gone {
		return nil, "no such task"
	}
	t.counted = t.live != nil
	defer func() { t.counted = false }()
	m.applyDueTimers(t)
	if t.gone || t.state != lease.Ready {
		return nil, "not ready"
	}
	switch m.blocked(t, rulesBlock) {
	case lease.BlockedByPause:
		return nil, "paused"
	case lease.BlockedByInflight:
		return nil, "max_inflight"
	case lease.BlockedByRate:
		return nil, "rate limit"
	case lease.BlockedByKey:
		t.parked = true
		return nil, "key held"
	}
	return m.newLease(t, session), "granted"
}

func (m *model) blocked(t *modelTask, rulesBlock lease.Block) lease.Block {
	if q := m.queues[specKey{t.space, t.spec.Queue}]; q != nil {
		switch s := &q.settings; {
		case s.Paused:
			return lease.BlockedByPause
		case s.MaxInflight > 0 && m.inflight(t.space, t.spec.Queue) >= s.MaxInflight:
			return lease.BlockedByInflight
		case s.Rate.PerSecond > 0 && q.exhausted(m.now.Serving, rulesBlock):
			return lease.BlockedByRate
		}
	}
	if t.spec.ConcurrencyKey != "" && !m.hasRoom(t) {
		return lease.BlockedByKey
	}
	return lease.NoBlock
}

// exhausted reports whether the rate limit allows no grant now. The rules calculate in another way.
// So if the next grant is so close that rounding decides, exhausted returns the answer of the
// rules.
func (q *modelQueue) exhausted(now lease.Instant, rulesBlock lease.Block) bool {
	q.refill(now)
	const rounding = 1e-6
	if q.credit > 1-rounding && q.credit < 1+rounding {
		return rulesBlock == lease.BlockedByRate
	}
	return q.credit < 1
}

// countsAsLeased reports whether the task counts as leased when a grant checks limits. If a due
// timer ends a lease in the same step as the grant, that lease still counts, because the caller of
// the rules counts leases before the step.
func (t *modelTask) countsAsLeased() bool { return t.live != nil || t.counted }

func (m *model) inflight(space uint32, queue string) (n uint32) {
	for _, t := range m.tasks {
		if t.countsAsLeased() && t.space == space && t.spec.Queue == queue {
			n++
		}
	}
	return n
}

// hasRoom reports whether the live leases that share the task's concurrency key are fewer than the
// smallest limit among them and the task (T11).
func (m *model) hasRoom(t *modelTask) bool {
	n, limit := uint32(0), t.spec.ConcurrencyLimit
	for _, o := range m.tasks {
		if o.countsAsLeased() && o.space == t.space && o.spec.ConcurrencyKey == t.spec.ConcurrencyKey {
			n++
			if o.spec.ConcurrencyLimit < limit {
				limit = o.spec.ConcurrencyLimit
			}
		}
	}
	return n < limit
}

func (m *model) newLease(t *modelTask, session string) *modelLease {
	if q := m.queues[specKey{t.space, t.spec.Queue}]; q != nil && q.settings.Rate.PerSecond > 0 {
		q.credit--
	}
	t.attempts++
	l := &modelLease{attempt: t.attempts, session: session, granted: m.now.Serving}
	if session != "" {
		l.ackBy = m.now.Serving + lease.Instant(lease.DefaultAckWithin)
	}
	if t.spec.AttemptTimeout > 0 {
		l.attemptBy = m.now.Serving + lease.Instant(t.spec.AttemptTimeout)
	}
	t.live, t.state, t.parked = l, lease.Leased, false
	m.extend(t, m.now.Serving+lease.Instant(t.spec.HeartbeatTimeout))
	t.note(lease.EventGranted, lease.NoReason)
	return l
}

func (m *model) unpark(id string) string {
	t := m.tasks[id]
	if t == nil || t.gone {
		return noEffect
	}
	m.applyDueTimers(t)
	if t.gone || !t.parked {
		return noEffect
	}
	t.parked = false
	return "back in line"
}

// loseResource ends a READY task that is pinned to the worker, which has been gone for too long
// (W12).
func (m *model) loseResource(id, worker string) string {
	t := m.tasks[id]
	if t == nil || t.gone {
		return noEffect
	}
	m.applyDueTimers(t)
	if t.gone || t.state != lease.Ready || len(t.spec.ResourceRefs) == 0 || t.spec.ResourceRefs[0].Worker != worker {
		return noEffect
	}
	t.loseResource(m.now.Wall)
	return "given up"
}

// policyOf returns the task's retry policy, with unset fields taken from its queue and then from
// the defaults (T3).
func (m *model) policyOf(t *modelTask) lease.RetryPolicy {
	p, ofQueue := t.spec.Retry, lease.RetryPolicy{}
	if q := m.queues[specKey{t.space, t.spec.Queue}]; q != nil {
		ofQueue = q.settings.Retry
	}
	p = fillPolicy(p, ofQueue)
	p = fillPolicy(p, lease.RetryPolicy{
		MaxAttempts: lease.DefaultMaxAttempts, MaxLosses: lease.DefaultMaxLosses, InitialBackoff: lease.DefaultInitialBackoff,
		Multiplier: lease.DefaultMultiplier, MaxBackoff: lease.DefaultMaxBackoff,
	})
	if p.InitialBackoff > p.MaxBackoff { // adjust the one that the task did not set, or else a default
		if t.spec.Retry.InitialBackoff == 0 && (t.spec.Retry.MaxBackoff != 0 || ofQueue.MaxBackoff != 0) {
			p.InitialBackoff = p.MaxBackoff
		} else {
			p.MaxBackoff = p.InitialBackoff
		}
	}
	return p
}

func fillPolicy(p, from lease.RetryPolicy) lease.RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = from.MaxAttempts
	}
	if p.MaxLosses == 0 {
		p.MaxLosses = from.MaxLosses
	}
	if p.InitialBackoff == 0 {
		p.InitialBackoff = from.InitialBackoff
	}
	if p.Multiplier == 0 {
		p.Multiplier = from.Multiplier
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = from.MaxBackoff
	}
	if len(p.NonRetryable) == 0 {
		p.NonRetryable = from.NonRetryable
	}
	return p
}

func (m *model) requeue(id string, attempt uint32, cause lease.Reason) string {
	t := m.tasks[id]
	if t == nil || t.gone {
		return noEffect
	}
	m.applyDueTimers(t)
	if t.gone || t.live == nil || t.live.attempt != attempt {
		return noEffect
	}
	l := t.end(cause, m.now.Wall)
	t.note(lease.EventLeaseEnded, cause)
	switch {
	case t.cancelAsked:
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
		return "cancelled"
	case !l.acked:
		t.readyAgain(l, m.now.Serving)
	default:
		t.ready(m.now.Serving)
	}
	return "taken back"
}

// stall extends the lease by the time for which the coordinator stood still, at most one TTL
// between two renewals. Timers that became due during the stall do not fire before (A8).
func (m *model) stall(id string, by lease.Instant) string {
	t := m.tasks[id]
	if t == nil || t.gone {
		return noEffect
	}
	now := m.now
	m.now = lease.Now{Serving: now.Serving - by, Wall: now.Wall - lease.Wall(by)}
	m.applyDueTimers(t)
	m.now = now
	if t.gone || t.live == nil {
		return noEffect
	}
	l := t.live
	if room := lease.Instant(t.spec.HeartbeatTimeout) - l.stalled; by > room {
		by = room
	}
	if by <= 0 {
		return noEffect
	}
	l.stalled += by
	m.extend(t, l.expires+by)
	if l.ackBy > 0 {
		l.ackBy += by
	}
	if l.attemptBy > 0 {
		l.attemptBy += by
	}
	if l.cancelBy > 0 {
		l.cancelBy += by
	}
	return "extended"
}
