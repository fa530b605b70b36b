package lease_test

import (
	"bytes"

	"github.com/lessor-dev/lessor/lease"
)

// judge decides about one report in the order of the verdict table (V1 to V12).
func (m *model) judge(tenant string, r *lease.Report) lease.Answer {
	k, genuine := m.issued[r.LeaseID]
	if k.tenant != tenant {
		genuine = false
	}
	if m.malformed(r) && !m.repeats(r, genuine) { // V1, V14
		return m.rejectMalformed(tenant, r, genuine && k.task == r.TaskID, k.attempt)
	}
	t := m.tasks[r.TaskID]
	if t != nil && !t.gone && t.tenant != tenant { // V2
		return lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.UnknownTask}
	}
	if t != nil && !t.gone {
		m.applyDueTimers(t)
	}
	known := t != nil && !t.gone
	l := m.leaseOf(r)
	a := lease.Answer{}
	switch {
	case !known && (!genuine || k.task != r.TaskID): // V2
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.UnknownTask}
	case !genuine || k.task != r.TaskID: // V3
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.InvalidLease}
	case l != nil && l.report != nil && !r.Kind.Closes(): // V5
		a = lease.Answer{Verdict: lease.VerdictCancelled, Reason: lease.AlreadyReported}
	case l != nil && l.report != nil && sameReport(r, l.report): // V4
		a = l.answer
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
	case r.Result != nil && len(r.Result.Output) > modelOutput: // V11
		a = lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.ResultTooLarge}
	default: // V12
		return m.commit(t, r)
	}
	switch {
	case !known && (a.Reason == lease.AlreadyReported || a.Reason == lease.DuplicateReport):
		a.State = l.answer.State
	case known:
		a.State = t.state
		if a.Verdict == lease.VerdictCancelled && t.attempts != k.attempt {
			a.CurrentAttempt = t.attempts
		}
		if a.ShouldCancel {
			a.CancelReason = t.cancelReason
		}
		if genuine && k.task == r.TaskID && (k.epoch >= m.knownFrom || t.endedLast(l)) {
			m.recordRefusal(t, k.attempt, r, a)
		}
	}
	return a
}

// rejectMalformed answers a malformed report (V1). It adds the refusal to the history if the report
// came under a genuine lease of the tenant's task (T10).
func (m *model) rejectMalformed(tenant string, r *lease.Report, genuine bool, attempt uint32) lease.Answer {
	a := lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.InvalidRequest}
	t := m.tasks[r.TaskID]
	if !genuine || t == nil || t.gone || t.tenant != tenant {
		return a
	}
	m.applyDueTimers(t)
	if l := m.leaseOf(r); !t.gone && (m.issued[r.LeaseID].epoch >= m.knownFrom || t.endedLast(l)) {
		m.recordRefusal(t, attempt, r, a)
	}
	return a
}

// recordRefusal adds the refusal of a report to the history, once for each lease, kind and reason
// (T10). It keeps the first result that came after the end of its lease (V15). Under a live lease,
// the report acknowledges the grant (W5).
func (m *model) recordRefusal(t *modelTask, attempt uint32, r *lease.Report, a lease.Answer) {
	if l := m.leaseOf(r); l != nil && l == t.live && m.issued[r.LeaseID].epoch == m.epoch {
		t.acknowledge()
	}
	if r.Kind == lease.KindAck || a.Reason == lease.AlreadyReported {
		return
	}
	e := modelEvent{typ: lease.EventRefused, attempt: attempt, reason: a.Reason, kind: r.Kind}
	if m.keepLateResult(t, attempt, r, a) || !t.hasEvent(e) {
		t.record(e)
	}
}

// endedLast reports whether l is the lease of the task that ended last. Of the leases from before a
// restore it is the only one of which the rules know that the restored task had it.
func (t *modelTask) endedLast(l *modelLease) bool {
	return l != nil && len(t.ended) > 0 && t.ended[len(t.ended)-1] == l
}

// hasEvent reports whether the event is among those that the rules still have: the newest
// MaxHistory, including those of the live lease.
func (t *modelTask) hasEvent(e modelEvent) bool {
	left := lease.MaxHistory
	if t.live != nil {
		for i := len(t.live.events) - 1; i >= 0 && left > 0; i-- {
			if t.live.events[i] == e {
				return true
			}
			left--
		}
	}
	for i := len(t.history) - 1; i >= 0 && left > 0; i-- {
		if t.history[i] == e {
			return true
		}
		left--
	}
	return false
}

func (m *model) keepLateResult(t *modelTask, attempt uint32, r *lease.Report, a lease.Answer) bool {
	if r.Kind != lease.KindComplete || a.Verdict != lease.VerdictCancelled || len(r.Result.Output) > modelDiscarded {
		return false
	}
	for _, k := range t.kept {
		if k.attempt == attempt {
			return false
		}
	}
	t.kept = append(t.kept, keptResult{attempt, r.Result})
	if len(t.kept) > lease.MaxDiscarded {
		t.kept = t.kept[1:]
	}
	return true
}

// malformed reports whether the form of a report is bad (V1). It knows only the mistakes that
// addMistake makes.
func (m *model) malformed(r *lease.Report) bool {
	return r.Invalid != nil || r.TaskID == "" || r.LeaseID == ""
}

func (m *model) leaseOf(r *lease.Report) *modelLease {
	t := m.tasks[r.TaskID]
	if t == nil {
		return nil
	}
	if t.live != nil && t.live.id == r.LeaseID {
		return t.live
	}
	for _, l := range t.ended {
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
		if t.cancelAsked && !l.started && !r.Started { // T7
			t.acknowledge()
			t.end(lease.TaskCancelled, m.now.Wall)
			t.note(lease.EventLeaseEnded, lease.TaskCancelled)
			t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
			return lease.Answer{
				Verdict: lease.VerdictCancelled, Reason: lease.TaskCancelled, State: lease.Cancelled,
				ShouldCancel: true, CancelReason: t.cancelReason,
			}
		}
		if !l.started {
			t.note(lease.EventStarted, lease.NoReason)
		}
		l.acked, l.started = true, true
		if !t.cancelAsked {
			t.state = lease.Running
		}
		return m.renew(t)
	case lease.KindHeartbeat:
		t.acknowledge()
		t.checkpoint = t.checkpoint || len(r.Checkpoint) > 0
		return m.renew(t)
	case lease.KindAck:
		t.acknowledge()
		return m.liveAnswer(t)
	default:
		return m.commitClosing(t, r)
	}
}

func (t *modelTask) acknowledge() {
	if !t.live.acked {
		t.live.acked = true
		t.note(lease.EventAcknowledged, lease.NoReason)
	}
}

func (m *model) renew(t *modelTask) lease.Answer {
	t.live.stalled = 0
	m.extend(t, m.now.Serving+lease.Instant(t.spec.HeartbeatTimeout))
	return m.liveAnswer(t)
}

func (m *model) liveAnswer(t *modelTask) lease.Answer {
	return lease.Answer{
		Verdict: lease.VerdictCommitted, Reason: lease.None, State: t.state, ExpiresAt: m.expiresAt(t),
		ShouldCancel: t.cancelAsked, CancelReason: t.cancelReason, CancelBy: t.live.cancelBy,
	}
}

var closing = map[lease.Kind]lease.EventType{
	lease.KindComplete: lease.EventCompleted, lease.KindFail: lease.EventFailed, lease.KindRelease: lease.EventReleased,
}

// commitClosing commits a Complete, Fail or Release, which ends the attempt (V16).
func (m *model) commitClosing(t *modelTask, r *lease.Report) lease.Answer {
	if r.Started && !t.live.started {
		t.note(lease.EventStarted, lease.NoReason)
		t.live.acked, t.live.started = true, true
	}
	l := t.end(lease.Reported, m.now.Wall)
	t.failure = t.failure || r.Kind == lease.KindFail
	switch {
	case r.Kind == lease.KindComplete:
		t.releases = 0
		t.finish(lease.Completed, lease.NoReason, m.now.Wall)
	case r.Kind == lease.KindRelease:
		m.release(t, r)
	case t.cancelAsked:
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
	default:
		m.countFailure(t, r.Failure, m.now)
	}
	t.note(closing[r.Kind], lease.None)
	l.report = r
	l.answer = lease.Answer{Verdict: lease.VerdictCommitted, Reason: lease.None, State: t.state}
	if t.retryAt != 0 {
		l.answer.RetryAt = m.now.Wall + lease.Wall(t.retryAt-m.now.Serving)
	}
	if t.state.Final() {
		t.outcome = l.attempt
	}
	return l.answer
}

// release puts the task back in line after the delay of the report. From the third release in a row
// on, the wait is at least a backoff (T5).
func (m *model) release(t *modelTask, r *lease.Report) {
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

// sameReport reports whether a repeats b (V13). It compares what the simulation's reports carry.
func sameReport(a, b *lease.Report) bool {
	if a.Kind != b.Kind {
		return false
	}
	switch a.Kind {
	case lease.KindComplete:
		return bytes.Equal(a.Result.Output, b.Result.Output)
	case lease.KindFail:
		return sameFailure(a.Failure, b.Failure)
	}
	return true
}

func sameFailure(a, b *lease.Failure) bool {
	sameWord := a.Retryable == nil && b.Retryable == nil ||
		a.Retryable != nil && b.Retryable != nil && *a.Retryable == *b.Retryable
	category := func(f *lease.Failure) lease.Category {
		if f.Category == lease.NoCategory {
			return lease.UserCode
		}
		return f.Category
	}
	return category(a) == category(b) && a.Message == b.Message && a.Stack == b.Stack && sameWord
}
