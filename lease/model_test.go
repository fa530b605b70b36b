package lease_test

import (
	"bytes"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// model restates the rules of a task's life as plainly as it can, to be compared with the rules themselves: mutable records, no clever
// representation, no code in common. It takes its types and names from package lease, and the numbers of its draws from the same
// source of entropy; its lease ids are those that the rules gave out.
type model struct {
	now     lease.Now
	epoch   uint32
	limit   int    // bytes of an output
	entropy uint64 // every draw of the current step

	tasks  map[string]*modelTask
	keys   map[specKey]modelKey
	issued map[string]ticket // every lease id ever given out; a restore does not forget them
}

type modelKey struct {
	task   string
	digest lease.Digest
}

type ticket struct {
	tenant, task   string
	attempt, epoch uint32
}

// modelTask is one task. A deleted one stays for its reports, until forgetAt.
type modelTask struct {
	id, tenant string
	space      uint32
	spec       *lease.Spec
	gone       bool
	forgetAt   lease.Instant

	state    lease.State
	reason   lease.Reason
	round    uint32
	attempts uint32 // grants so far

	failures, losses, releases, unacked uint32
	unackedBy                           string

	readyAt, retryAt            lease.Instant
	runAt, finishedAt, deadline lease.Wall

	cancelAsked  bool
	cancelReason string

	leases map[uint32]*modelLease // by attempt
	live   *modelLease
	// outcome is the attempt whose report ended the round, or 0.
	outcome uint32
}

type modelLease struct {
	id      string
	attempt uint32
	session string

	expires, ackBy, attemptBy, cancelBy lease.Instant
	stalled                             time.Duration
	acked, started                      bool

	cause  lease.Reason  // once it has ended
	report *lease.Report // that was committed under it
	told   lease.Answer  // to that report
}

func newModel(now lease.Now, epoch uint32, limit int) *model {
	return &model{
		now: now, epoch: epoch, limit: limit,
		tasks: map[string]*modelTask{}, keys: map[specKey]modelKey{}, issued: map[string]ticket{},
	}
}

// task settles and returns a task of the tenant, or nil.
func (m *model) task(tenant, id string) *modelTask {
	t := m.tasks[id]
	if t == nil || t.gone {
		return nil
	}
	m.settle(t)
	if t.gone || t.tenant != tenant {
		return nil
	}
	return t
}

func (m *model) create(id lease.TaskID, tenant string, spec *lease.Spec) {
	t := &modelTask{
		id: id.String(), tenant: tenant, space: id.Space, spec: spec, round: 1, deadline: spec.Deadline, leases: map[uint32]*modelLease{},
	}
	if spec.RunAt > m.now.Wall {
		t.state, t.runAt = lease.Scheduled, spec.RunAt
	} else {
		t.state, t.readyAt = lease.Ready, m.now.Serving
	}
	m.tasks[t.id] = t
}

// grant returns the new lease, or nil where none is due (A1, A2).
func (m *model) grant(id, session string) *modelLease {
	t := m.tasks[id]
	if t == nil || t.gone {
		return nil
	}
	m.settle(t)
	if t.gone || t.state != lease.Ready {
		return nil
	}
	t.attempts++
	l := &modelLease{attempt: t.attempts, session: session}
	if session != "" {
		l.ackBy = m.now.Serving + lease.Instant(5*time.Second)
	}
	if t.spec.AttemptTimeout > 0 {
		l.attemptBy = m.now.Serving + lease.Instant(t.spec.AttemptTimeout)
	}
	t.leases[l.attempt], t.live, t.state = l, l, lease.Leased
	m.extend(t, m.now.Serving+lease.Instant(t.spec.HeartbeatTimeout))
	return l
}

// extend moves expires_at to until, never back and never past a limit that applies (A3, T7).
func (m *model) extend(t *modelTask, until lease.Instant) {
	l := t.live
	if !t.cancelAsked && l.attemptBy > 0 && until > l.attemptBy {
		until = l.attemptBy
	}
	if !t.cancelAsked && t.deadline > 0 {
		left := lease.Instant(t.deadline - m.now.Wall)
		if until > m.now.Serving+left {
			until = m.now.Serving + left
		}
	}
	if until > l.expires {
		l.expires = until
	}
}

// end ends the live lease and returns it; the caller moves the task on.
func (t *modelTask) end(cause lease.Reason) *modelLease {
	l := t.live
	l.cause, t.live = cause, nil
	if l.acked || cause == lease.Reported {
		t.unacked, t.unackedBy = 0, ""
	}
	return l
}

func (t *modelTask) finish(state lease.State, reason lease.Reason, at lease.Wall) {
	t.state, t.reason, t.finishedAt, t.runAt, t.retryAt = state, reason, at, 0, 0
}

func (t *modelTask) ready(at lease.Instant) {
	t.state, t.readyAt, t.runAt, t.retryAt = lease.Ready, at, 0, 0
}

func (t *modelTask) schedule(at lease.Instant) {
	t.state, t.readyAt, t.retryAt = lease.Scheduled, 0, at
}

// backoff is the nth wait, counted from 0 (T3).
func (m *model) backoff(t *modelTask, n uint32) lease.Instant {
	p := t.spec.Retry
	d := float64(p.InitialBackoff)
	for ; n > 0 && d < float64(p.MaxBackoff); n-- {
		d *= p.Multiplier
	}
	if d > float64(p.MaxBackoff) {
		d = float64(p.MaxBackoff)
	}
	share := float64(m.entropy>>11) / (1 << 53)
	return max(1, lease.Instant(d*(0.8+0.4*share)))
}

// failed counts a failure (T4, T5).
func (m *model) failed(t *modelTask, f *lease.Failure, at lease.Now) {
	t.releases = 0
	t.failures++
	switch {
	case t.failures >= t.spec.Retry.MaxAttempts || !retriable(t.spec.Retry.NonRetryable, f):
		t.finish(lease.Failed, lease.NoReason, at.Wall)
	case f.RetryAfter > 0:
		t.schedule(at.Serving + lease.Instant(f.RetryAfter))
	default:
		t.schedule(at.Serving + m.backoff(t, t.failures-1))
	}
}

func retriable(never []lease.Category, f *lease.Failure) bool {
	c := f.Category
	if c == lease.NoCategory {
		c = lease.UserCode
	}
	for _, n := range never {
		if n == c {
			return false
		}
	}
	if c == lease.CategoryCancelled {
		return false
	}
	if f.Retryable != nil {
		return *f.Retryable
	}
	return c == lease.UserCode || c == lease.Infrastructure || c == lease.Timeout
}

func (m *model) requeue(id string, attempt uint32, cause lease.Reason) {
	t := m.tasks[id]
	if t == nil || t.gone {
		return
	}
	m.settle(t)
	if t.gone || t.live == nil || t.live.attempt != attempt {
		return
	}
	t.end(cause)
	if t.cancelAsked {
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
	} else {
		t.ready(m.now.Serving)
	}
}

// stall comes before what fell due meanwhile (A8).
func (m *model) stall(id string, by time.Duration) {
	t := m.tasks[id]
	if t == nil || t.gone {
		return
	}
	now := m.now
	m.now = lease.Now{Serving: now.Serving - lease.Instant(by), Wall: now.Wall - lease.Wall(by)}
	m.settle(t)
	m.now = now
	if t.gone || t.live == nil {
		return
	}
	l := t.live
	if room := t.spec.HeartbeatTimeout - l.stalled; by > room {
		by = room
	}
	l.stalled += by
	m.extend(t, l.expires+lease.Instant(by))
	if l.ackBy > 0 {
		l.ackBy += lease.Instant(by)
	}
	if l.cancelBy > 0 {
		l.cancelBy += lease.Instant(by)
	}
}

// The refusals of what a producer asks.
const (
	refusedNotFound = "not found"
	refusedState    = "state"
	refusedField    = "field"
	refusedExists   = "exists"
)

func (m *model) cancel(tenant, id, reason string) (refusal string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return refusedNotFound
	case t.state == lease.Completed || t.state == lease.Failed:
		return refusedState
	case t.cancelAsked: // the same answer again
		return ""
	}
	t.cancelAsked, t.cancelReason = true, reason
	if t.live == nil {
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
		return ""
	}
	t.state = lease.Cancelling
	t.live.cancelBy = m.now.Serving + lease.Instant(t.spec.CancelGrace)
	return ""
}

func (m *model) retry(tenant, id string, deadline lease.Wall) (refusal string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return refusedNotFound
	case t.state != lease.Failed && t.state != lease.Cancelled:
		return refusedState
	}
	if deadline == 0 {
		deadline = t.deadline
	}
	if deadline != 0 && deadline <= m.now.Wall {
		return refusedField
	}
	t.deadline = deadline
	t.round++
	t.failures, t.losses, t.releases, t.unacked, t.unackedBy = 0, 0, 0, 0, ""
	t.cancelAsked, t.cancelReason, t.reason, t.outcome, t.finishedAt = false, "", lease.NoReason, 0, 0
	t.ready(m.now.Serving)
	return ""
}

func (m *model) delete(tenant, id string, force bool) (refusal string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return refusedNotFound
	case t.live != nil && !force:
		return refusedState
	}
	m.remove(t)
	return ""
}

func (m *model) remove(t *modelTask) {
	if t.live != nil {
		t.end(lease.Revoked)
	}
	t.gone = true
	t.forgetAt = m.now.Serving + lease.Instant(time.Hour)
}

// forget drops the reports of tasks that are long gone (A10).
func (m *model) forget() {
	for _, t := range m.tasks {
		if t.gone && t.forgetAt <= m.now.Serving {
			for _, l := range t.leases {
				l.report = nil
			}
		}
	}
}

// sameReport is V13.
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

// backup returns a copy that later steps do not touch. What was issued is not rolled back by a restore, and is shared.
func (m *model) backup() *model {
	saved := newModel(m.now, m.epoch, m.limit)
	saved.issued = m.issued
	for k, v := range m.keys {
		saved.keys[k] = v
	}
	for id, t := range m.tasks {
		c := *t
		c.leases = map[uint32]*modelLease{}
		for attempt, l := range t.leases {
			lc := *l
			c.leases[attempt] = &lc
			if t.live == l {
				c.live = &lc
			}
		}
		saved.tasks[id] = &c
	}
	return saved
}
