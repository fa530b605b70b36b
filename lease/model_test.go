package lease_test

import "github.com/lessor-dev/lessor/lease"

// model is a second implementation of the rules, as plain as possible, which the simulation
// compares with package lease. Its records are mutable, and it shares no code with the rules, only
// types and constants. It uses the same random numbers and the lease ids that the rules issued.
type model struct {
	now   lease.Now
	epoch uint32
	// knownFrom is the epoch of the last restore, or 1: the model has all leases of the epochs from
	// then on.
	knownFrom uint32
	entropy   uint64 // what every draw of the current step returns, in the rules as well

	tasks  map[string]*modelTask
	keys   map[specKey]modelKey
	queues map[specKey]*modelQueue
	issued map[string]ticket // every lease id that was ever issued; a restore keeps them

	// The tasks and keys that the current batch has changed, as they were before it.
	oldTasks map[string]*modelTask
	oldKeys  map[specKey]modelKey
}

// Limits of the simulation, in bytes: a longer output is refused (V11), and a larger discarded
// result is not kept (V15).
const (
	modelOutput    = 4
	modelDiscarded = 3
)

type modelKey struct {
	task   string
	digest lease.Digest
}

type ticket struct {
	tenant, task   string
	attempt, epoch uint32
}

// modelTask is one task. A deleted one stays, with gone set: its reports are replayed until
// forgetAt, and its leases are known for ever.
type modelTask struct {
	id, tenant string
	space      uint32
	spec       *lease.Spec
	policy     lease.RetryPolicy // with all fields filled in
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

	parked bool
	// failure is set once an attempt has failed, checkpoint once a heartbeat has brought one: both
	// stay stored beside the task.
	failure, checkpoint bool
	// counted is set during a grant if the task had a live lease when the grant began; see
	// countsAsLeased.
	counted bool
	// waitingSince is when the task was submitted or its last lease ended. A resource that expired
	// earlier ends the task at this time.
	waitingSince lease.Wall
	live         *modelLease
	ended        []*modelLease
	// outcome is the attempt whose report ended the round, or 0.
	outcome uint32
	kept    []keptResult // results that came too late (V15)
	history []modelEvent // all events except those of the live lease
}

// keptResult is the result that an attempt reported after its lease had ended.
type keptResult struct {
	attempt uint32
	result  *lease.Result
}

// modelEvent is what the model compares of an event in the history.
type modelEvent struct {
	typ     lease.EventType
	attempt uint32
	reason  lease.Reason
	kind    lease.Kind
}

type modelLease struct {
	id      string
	attempt uint32
	session string

	granted                             lease.Instant
	expires, ackBy, attemptBy, cancelBy lease.Instant
	stalled                             lease.Instant
	acked, started                      bool
	events                              []modelEvent

	cause  lease.Reason  // why it has ended; 0 while it is live
	report *lease.Report // the one that was COMMITTED under it, or nil
	answer lease.Answer  // the answer to that report
}

func newModel(now lease.Now, epoch uint32) *model {
	return &model{
		now: now, epoch: epoch, knownFrom: 1,
		tasks: map[string]*modelTask{}, keys: map[specKey]modelKey{}, queues: map[specKey]*modelQueue{},
		issued:   map[string]ticket{},
		oldTasks: map[string]*modelTask{}, oldKeys: map[specKey]modelKey{},
	}
}

// task returns a task of the tenant, with its due timers applied; nil if there is none.
func (m *model) task(tenant, id string) *modelTask {
	t := m.tasks[id]
	if t == nil || t.gone {
		return nil
	}
	m.applyDueTimers(t)
	if t.gone || t.tenant != tenant {
		return nil
	}
	return t
}

func (m *model) create(id lease.TaskID, tenant string, spec *lease.Spec) {
	t := &modelTask{
		id: id.String(), tenant: tenant, space: id.Space, spec: spec, round: 1, deadline: spec.Deadline,
		waitingSince: m.now.Wall,
	}
	t.policy = m.policyOf(t)
	if spec.RunAt > m.now.Wall {
		t.state, t.runAt = lease.Scheduled, spec.RunAt
	} else {
		t.state, t.readyAt = lease.Ready, m.now.Serving
	}
	m.touch(t.id)
	m.tasks[t.id] = t
}

// note adds an event to the history (T10).
func (t *modelTask) note(typ lease.EventType, reason lease.Reason) {
	t.record(modelEvent{typ: typ, attempt: t.attempts, reason: reason})
}

func (t *modelTask) record(e modelEvent) {
	if t.live != nil {
		t.live.events = append(t.live.events, e)
		return
	}
	t.history = append(t.history, e)
}

// extend moves the expiry of the lease to until, but never back (A3).
func (m *model) extend(t *modelTask, until lease.Instant) {
	if until > t.live.expires {
		t.live.expires = until
	}
}

// expiresAt returns the end of the lease that an answer to the holder names: its expiry, or the
// first of attempt_timeout and the deadline that is earlier and applies (A3, T7).
func (m *model) expiresAt(t *modelTask) lease.Instant {
	until := t.live.expires
	if t.cancelAsked {
		return until
	}
	if by := t.live.attemptBy; by > 0 && by < until {
		until = by
	}
	if by := m.now.Serving + lease.Instant(t.deadline-m.now.Wall); t.deadline > 0 && by < until {
		until = by
	}
	return until
}

// end ends the live lease and returns it. The caller sets the new state of the task.
func (t *modelTask) end(cause lease.Reason, at lease.Wall) *modelLease {
	l := t.live
	l.cause, t.live, t.waitingSince = cause, nil, at
	t.ended = append(t.ended, l)
	t.history = append(t.history, l.events...)
	if l.acked || cause == lease.Reported {
		t.unacked, t.unackedBy = 0, ""
	}
	return l
}

func (t *modelTask) finish(state lease.State, reason lease.Reason, at lease.Wall) {
	t.state, t.reason, t.finishedAt, t.runAt, t.retryAt, t.parked = state, reason, at, 0, 0, false
}

func (t *modelTask) ready(at lease.Instant) {
	t.state, t.readyAt, t.runAt, t.retryAt, t.parked = lease.Ready, at, 0, 0, false
}

// readyAgain makes the task READY after a lease of which nobody gave a sign: it has been READY for
// as long as before the grant (T6).
func (t *modelTask) readyAgain(l *modelLease, at lease.Instant) {
	was := l.granted - t.readyAt
	t.ready(at - was)
}

func (t *modelTask) schedule(at lease.Instant) {
	t.state, t.readyAt, t.retryAt = lease.Scheduled, 0, at
}

// backoff returns how long the task waits after n earlier backoffs (T3).
func (m *model) backoff(t *modelTask, n uint32) lease.Instant {
	p := t.policy
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

// countFailure counts a failure, and fails the task or schedules its retry (T4, T5).
func (m *model) countFailure(t *modelTask, f *lease.Failure, at lease.Now) {
	t.releases = 0
	t.failures++
	switch {
	case t.failures >= t.policy.MaxAttempts || !retriable(t.policy.NonRetryable, f):
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

// forget drops the committed reports of tasks that were deleted an hour ago (A10).
func (m *model) forget() {
	for _, t := range m.tasks {
		if t.gone && t.forgetAt <= m.now.Serving {
			for _, l := range t.ended {
				l.report = nil
			}
		}
	}
}
