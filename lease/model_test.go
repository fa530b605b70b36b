package lease_test

import "github.com/lessor-dev/lessor/lease"

// model restates the rules of a task's life as plainly as it can, to be compared with the rules themselves: mutable records, no clever
// representation, no code in common. It takes its types and names from package lease, and the numbers of its draws from the same
// source of entropy; its lease ids are those that the rules gave out.
type model struct {
	now     lease.Now
	epoch   uint32
	entropy uint64 // every draw of the current step

	tasks  map[string]*modelTask
	keys   map[specKey]modelKey
	queues map[specKey]*modelQueue
	issued map[string]ticket // every lease id ever given out; a restore does not forget them

	// What the tasks and keys were that the batch under way has changed.
	oldTasks map[string]*modelTask
	oldKeys  map[specKey]modelKey
}

// Sizes in bytes from which on an output is refused, and a discarded result is not kept.
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

// modelTask is one task. A deleted one stays for its reports, until forgetAt.
type modelTask struct {
	id, tenant string
	space      uint32
	spec       *lease.Spec
	policy     lease.RetryPolicy // whole
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
	// counted is set while a lease counts that a grant finds at its end.
	counted bool
	// waits is since when it has not been held: its submit, or the end of its last lease.
	waits lease.Wall
	live  *modelLease
	ended []*modelLease
	// outcome is the attempt whose report ended the round, or 0.
	outcome uint32
	kept    []keptResult // that came too late
	history []modelEvent // all, but those of the live lease
}

// keptResult is what an attempt had to say after its end.
type keptResult struct {
	attempt uint32
	result  *lease.Result
}

// modelEvent is what is remembered of something that happened.
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

	expires, ackBy, attemptBy, cancelBy lease.Instant
	stalled                             lease.Instant
	acked, started                      bool
	events                              []modelEvent

	cause  lease.Reason  // once it has ended
	report *lease.Report // that was committed under it
	told   lease.Answer  // to that report
}

func newModel(now lease.Now, epoch uint32) *model {
	return &model{
		now: now, epoch: epoch,
		tasks: map[string]*modelTask{}, keys: map[specKey]modelKey{}, queues: map[specKey]*modelQueue{}, issued: map[string]ticket{},
		oldTasks: map[string]*modelTask{}, oldKeys: map[specKey]modelKey{},
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
	t := &modelTask{id: id.String(), tenant: tenant, space: id.Space, spec: spec, round: 1, deadline: spec.Deadline, waits: m.now.Wall}
	t.policy = m.policyOf(t)
	if spec.RunAt > m.now.Wall {
		t.state, t.runAt = lease.Scheduled, spec.RunAt
	} else {
		t.state, t.readyAt = lease.Ready, m.now.Serving
	}
	m.touch(t.id)
	m.tasks[t.id] = t
}

// note remembers an event, after the change that it tells of (T10).
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

// extend moves expires_at to until, never back and never past attempt_timeout if that applies (A3, T7).
func (m *model) extend(t *modelTask, until lease.Instant) {
	l := t.live
	if !t.cancelAsked && l.attemptBy > 0 && until > l.attemptBy {
		until = l.attemptBy
	}
	if until > l.expires {
		l.expires = until
	}
}

// until is when the holder is told that its lease ends (A3).
func (m *model) until(t *modelTask) lease.Instant {
	if left := lease.Instant(t.deadline - m.now.Wall); t.deadline > 0 && !t.cancelAsked && t.live.expires > m.now.Serving+left {
		return m.now.Serving + left
	}
	return t.live.expires
}

// end ends the live lease and returns it; the caller moves the task on.
func (t *modelTask) end(cause lease.Reason, at lease.Wall) *modelLease {
	l := t.live
	l.cause, t.live, t.waits = cause, nil, at
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

func (t *modelTask) schedule(at lease.Instant) {
	t.state, t.readyAt, t.retryAt = lease.Scheduled, 0, at
}

// backoff is the nth wait, counted from 0 (T3).
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

// failed counts a failure (T4, T5).
func (m *model) failed(t *modelTask, f *lease.Failure, at lease.Now) {
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

// forget drops the reports of tasks that are long gone (A10).
func (m *model) forget() {
	for _, t := range m.tasks {
		if t.gone && t.forgetAt <= m.now.Serving {
			for _, l := range t.ended {
				l.report = nil
			}
		}
	}
}
