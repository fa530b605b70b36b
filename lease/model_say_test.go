package lease_test

import "github.com/lessor-dev/lessor/lease"

// say goes down the verdict table.
func (m *model) say(c lease.Say) lease.Answer {
	r := c.Report
	k, genuine := m.issued[r.LeaseID]
	if k.tenant != c.Tenant {
		genuine = false
	}
	if m.malformed(r) && !m.repeats(r, genuine) { // V1, V14
		return lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.InvalidRequest}
	}
	t := m.tasks[r.TaskID]
	if t != nil && !t.gone && t.tenant != c.Tenant { // V2
		return lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.UnknownTask}
	}
	if t != nil && !t.gone {
		m.settle(t)
	}
	known := t != nil && !t.gone
	l := m.leaseOf(r)
	a := lease.Answer{}
	switch {
	case !known && !genuine: // V2
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.UnknownTask}
	case !genuine || k.task != r.TaskID: // V3
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.InvalidLease}
	case l != nil && l.report != nil && !r.Kind.Closes(): // V5
		a = lease.Answer{Verdict: lease.VerdictCancelled, Reason: lease.AlreadyReported}
	case l != nil && l.report != nil && sameReport(r, l.report): // V4
		a = l.told
		a.Replayed = true
		return a
	case l != nil && l.report != nil: // V5
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.DuplicateReport}
	case r.Attempt != 0 && r.Attempt != k.attempt: // V6
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.InvalidRequest}
	case k.epoch != m.epoch: // V7
		a = lease.Answer{Verdict: lease.VerdictCancelled, Reason: lease.CoordinatorRecovered, ShouldCancel: true}
	case !known: // V8
		a = lease.Answer{Verdict: lease.VerdictCancelled, Reason: lease.TaskGone, ShouldCancel: true}
	case t.attempts > k.attempt: // V9
		a = lease.Answer{Verdict: lease.VerdictCancelled, Reason: lease.Superseded, ShouldCancel: true}
	case t.live != l: // V10
		a = lease.Answer{Verdict: lease.VerdictCancelled, Reason: l.cause, ShouldCancel: true}
	case r.Result != nil && len(r.Result.Output) > m.limit: // V11
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.ResultTooLarge}
	default: // V12
		return m.commit(t, r)
	}
	if known {
		a.State = t.state
		if a.Verdict == lease.VerdictCancelled && t.attempts != k.attempt {
			a.CurrentAttempt = t.attempts
		}
		if a.ShouldCancel {
			a.CancelReason = t.cancelReason
		}
	}
	return a
}

// malformed knows what the random reports can have wrong.
func (m *model) malformed(r *lease.Report) bool {
	return r.Invalid != nil || r.TaskID == "" || r.LeaseID == ""
}

func (m *model) leaseOf(r *lease.Report) *modelLease {
	t := m.tasks[r.TaskID]
	if t == nil {
		return nil
	}
	for _, l := range t.leases {
		if l.id == r.LeaseID {
			return l
		}
	}
	return nil
}

func (m *model) repeats(r *lease.Report, genuine bool) bool {
	l := m.leaseOf(r)
	return genuine && l != nil && l.report != nil && sameReport(r, l.report)
}

func (m *model) commit(t *modelTask, r *lease.Report) lease.Answer {
	l := t.live
	if r.Session != "" {
		l.session = r.Session
	}
	switch r.Kind {
	case lease.KindStart:
		if t.cancelAsked && !l.started { // T7
			t.end(lease.TaskCancelled)
			t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
			return lease.Answer{
				Verdict: lease.VerdictCancelled, Reason: lease.TaskCancelled, State: lease.Cancelled,
				ShouldCancel: true, CancelReason: t.cancelReason,
			}
		}
		l.started = true
		if !t.cancelAsked {
			t.state = lease.Running
		}
		return m.renewed(t)
	case lease.KindHeartbeat:
		return m.renewed(t)
	case lease.KindAck:
		l.acked = true
		return m.alive(t)
	default:
		return m.closed(t, r)
	}
}

func (m *model) renewed(t *modelTask) lease.Answer {
	t.live.acked, t.live.stalled = true, 0
	m.extend(t, m.now.Serving+lease.Instant(t.spec.HeartbeatTimeout))
	return m.alive(t)
}

func (m *model) alive(t *modelTask) lease.Answer {
	return lease.Answer{
		Verdict: lease.VerdictCommitted, Reason: lease.None, State: t.state, ExpiresAt: t.live.expires,
		ShouldCancel: t.cancelAsked, CancelReason: t.cancelReason,
	}
}

// closed commits a report that ends the attempt (V16).
func (m *model) closed(t *modelTask, r *lease.Report) lease.Answer {
	l := t.end(lease.Reported)
	switch {
	case r.Kind == lease.KindComplete:
		t.releases = 0
		t.finish(lease.Completed, lease.NoReason, m.now.Wall)
	case r.Kind == lease.KindRelease:
		m.released(t, r)
	case t.cancelAsked:
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
	default:
		m.failed(t, r.Failure, m.now)
	}
	l.report = r
	l.told = lease.Answer{Verdict: lease.VerdictCommitted, Reason: lease.None, State: t.state}
	if t.retryAt != 0 {
		l.told.RetryAt = m.now.Wall + lease.Wall(t.retryAt-m.now.Serving)
	}
	if t.state.Final() {
		t.outcome = l.attempt
	}
	return l.told
}

// released gives work back; from the third time in a row it waits (T5).
func (m *model) released(t *modelTask, r *lease.Report) {
	t.releases++
	delay := lease.Instant(r.Delay)
	if t.releases >= 3 {
		if wait := m.backoff(t, t.releases-3); wait > delay {
			delay = wait
		}
	}
	switch {
	case t.cancelAsked:
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
	case delay > 0:
		t.schedule(m.now.Serving + delay)
	default:
		t.ready(m.now.Serving)
	}
}
