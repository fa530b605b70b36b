package lease_test

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// What producers and operators do: submit, cancel, retry, delete, adopt, set queues.

// population bounds the number of tasks at once, so that commands often concern the same task and
// tasks often compete.
const population = 40

func (w *world) submit() error {
	for len(w.tasks) >= population {
		if err := w.delete(w.tasks[0], true); err != nil {
			return err
		}
		w.tasks = w.tasks[1:]
	}
	space := uint32(1 + w.rng.IntN(2))
	c := lease.Submit{Space: space, Tenant: [...]string{"", "acme", "other"}[space]}
	for range pick(w, 1, 1, 1, 3) {
		c.Specs = append(c.Specs, w.spec())
		c.Digests = append(c.Digests, lease.Digest{byte(w.rng.IntN(2))})
	}
	out, err := w.do(c)
	if err != nil {
		return err
	}
	refusal, first := w.model.refusalOf(c)
	if got := refusalIn(out.Err); got != refusal || refusal != "" && out.ErrSpec != first {
		return fmt.Errorf("submit is refused: %q for spec %d; the model says %q for %d", got, out.ErrSpec, refusal, first)
	}
	if refusal != "" {
		return w.countOutcome("submit", refusal)
	}
	outcome := "existing"
	for i, result := range out.Submitted {
		if result.Created {
			outcome = "created"
		}
		if err := w.submitted(c, i, result); err != nil {
			return err
		}
	}
	return w.countOutcome("submit", outcome)
}

// submitted compares the result for one spec of a batch with the model, and adds a new task to the
// model.
func (w *world) submitted(c lease.Submit, i int, result lease.Submitted) error {
	key := specKey{c.Space, c.Specs[i].IdempotencyKey}
	existing := w.model.existing(key)
	if result.Created != (existing == nil) {
		return fmt.Errorf("T1: Created of spec %d is %v, want %v", i, result.Created, existing == nil)
	}
	if existing != nil {
		if existing.id != result.Task.ID.String() {
			return fmt.Errorf("T1: spec %d got task %v, want the task that its key made before, %s",
				i, result.Task.ID, existing.id)
		}
		return nil
	}
	w.tasks = append(w.tasks, result.Task.ID)
	w.model.create(result.Task.ID, c.Tenant, c.Specs[i])
	if key.key != "" {
		w.model.setKey(key, modelKey{result.Task.ID.String(), c.Digests[i]})
	}
	return nil
}

// spec returns a random spec with short timeouts and few different names, so that timers are often
// due together and tasks often share a queue or a key.
func (w *world) spec() *lease.Spec {
	ttl := pick(w, 200*time.Millisecond, time.Second, 5*time.Second, 20*time.Second)
	spec := &lease.Spec{
		Queue: pick(w, "q", "q", "r"), Type: pick(w, "a", "a", "b"), HeartbeatTimeout: ttl,
		AttemptTimeout: pick(w, 0, 0, 3*time.Second, ttl),
		StartTimeout:   pick(w, 0, 0, 0, 2*time.Second),
		CancelGrace:    pick(w, 100*time.Millisecond, 500*time.Millisecond, ttl, time.Minute),
		Retention:      pick(w, time.Second, time.Minute, 24*time.Hour),
		Retry:          w.policy(),
	}
	if w.chance(20) {
		spec.Deadline = w.model.now.Wall.Add(pick(w, -time.Second, time.Second, ttl, 10*time.Second))
	}
	if w.chance(20) && spec.Deadline == 0 {
		spec.RunAt = w.model.now.Wall.Add(pick(w, -time.Second, 0, time.Millisecond, time.Second))
	}
	if w.chance(20) {
		spec.IdempotencyKey = "k" + strconv.Itoa(w.rng.IntN(3))
	}
	if w.chance(30) {
		spec.ConcurrencyKey, spec.ConcurrencyLimit = pick(w, "one", "two"), uint32(w.rng.IntN(4))
	}
	if w.chance(15) {
		spec.ResourceRefs = w.refs()
	}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		panic(err)
	}
	return spec
}

// refs returns references that pin a task to a worker. The rules grant the task to any worker,
// because the coordinator decides about placement. The references are here to test that resources
// expire and that workers are lost.
func (w *world) refs() []lease.ResourceRef {
	worker := pick(w, "w0", "w1")
	all := []lease.ResourceRef{{ResourceID: "r", Worker: worker}}
	if w.chance(70) {
		now := w.model.now.Wall
		all = append(all, lease.ResourceRef{
			ResourceID: "s", Worker: worker,
			ExpiresAt: now.Add(pick(w, -time.Second, time.Millisecond, time.Second, 20*time.Second)),
		})
	}
	return all
}

// policy returns a random retry policy, in which fields are sometimes unset.
func (w *world) policy() lease.RetryPolicy {
	p := lease.RetryPolicy{
		MaxAttempts: pick[uint32](w, 0, 1, 2, 4, 100), MaxLosses: pick[uint32](w, 0, 1, 2, 4, 100),
		InitialBackoff: pick(w, 1, 100*time.Millisecond, time.Second), Multiplier: pick(w, 1.0, 2, 3),
		MaxBackoff: 2 * time.Second,
	}
	if w.chance(20) {
		p.InitialBackoff, p.Multiplier = 0, 0
	}
	if w.chance(20) {
		p.MaxBackoff = 0
	}
	if w.chance(20) {
		p.NonRetryable = []lease.Category{pick(w, lease.UserCode, lease.Timeout, lease.Infrastructure)}
	}
	return p
}

func (w *world) operate() error {
	switch n := w.rng.IntN(100); {
	case n < 25:
		return w.expire(w.dueTask())
	case n < 40:
		return w.cancel()
	case n < 60:
		return w.retry()
	case n < 68:
		return w.delete(w.anyTask(), w.chance(50))
	case n < 80:
		return w.adopt()
	case n < 88:
		id := w.anyTask()
		if t := w.host.Task(id); t != nil {
			return w.requeue(id, t.Attempt()-uint32(w.rng.IntN(5)/4), lease.Revoked)
		}
		return w.requeue(id, 1, lease.Revoked)
	case n < 89:
		return w.unpark(w.anyTask())
	case n < 91:
		return w.loseResource()
	case n < 95:
		return w.forget()
	}
	return w.updateRandomQueue()
}

func (w *world) cancel() error {
	id := w.anyTask()
	c := lease.Cancel{Tenant: w.tenantOf(id), Task: id, Reason: pick(w, "", "mind changed")}
	return w.runCommand("cancel", c, func() string { return w.model.cancel(c.Tenant, id.String(), c.Reason) })
}

func (w *world) retry() error {
	id := w.anyTask()
	now := w.model.now.Wall
	c := lease.Retry{Tenant: w.tenantOf(id), Task: id, Deadline: pick(w, 0, 0, now, now+1, now.Add(time.Minute))}
	return w.runCommand("retry", c, func() string { return w.model.retry(c.Tenant, id.String(), c.Deadline) })
}

func (w *world) delete(id lease.TaskID, force bool) error {
	c := lease.Delete{Tenant: w.tenantOf(id), Task: id, Force: force}
	return w.runCommand("delete", c, func() string { return w.model.delete(c.Tenant, id.String(), c.Force) })
}

// adopt tries a few tasks, to find one with a kept result.
func (w *world) adopt() error {
	id := w.anyTask()
	for range 5 {
		if t := w.host.Task(id); t == nil || len(t.Discarded) == 0 {
			id = w.anyTask()
		}
	}
	c := lease.Adopt{Tenant: w.tenantOf(id), Task: id, Attempt: uint32(max(0, w.rng.IntN(8)-4))}
	out, err := w.do(c)
	if err != nil {
		return err
	}
	result, outcome := w.model.adopt(c.Tenant, id.String(), c.Attempt)
	if err := sameRefusal(out.Err, outcome); err != nil {
		return err
	}
	if outcome == "adopted" && out.Changes[0].Result != result {
		return fmt.Errorf("V15: the result that is adopted is not the one that the model has kept for the attempt")
	}
	return w.countOutcome("adopt", outcome)
}

// runCommand runs a command in the rules and in the model, and compares whether and why they refuse
// it.
func (w *world) runCommand(command string, c lease.Command, inModel func() string) error {
	out, err := w.do(c)
	if err != nil {
		return err
	}
	outcome := inModel()
	if err := sameRefusal(out.Err, outcome); err != nil {
		return err
	}
	return w.countOutcome(command, outcome)
}

func sameRefusal(err error, outcome string) error {
	switch outcome {
	case refusedNotFound, refusedState, refusedField, refusedExists:
	default:
		outcome = ""
	}
	if got := refusalIn(err); got != outcome {
		return fmt.Errorf("refused: %q; the model says %q", got, outcome)
	}
	return nil
}

// refusalIn returns an error of the rules in the words of the model.
func refusalIn(err error) string {
	var state *lease.StateError
	var field *lease.FieldError
	var exists *lease.ExistsError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, lease.ErrNotFound):
		return refusedNotFound
	case errors.As(err, &state):
		return refusedState
	case errors.As(err, &field):
		return refusedField
	case errors.As(err, &exists):
		return refusedExists
	}
	return err.Error()
}

// updateRandomQueue changes the settings of a random queue, and commits the change at once.
func (w *world) updateRandomQueue() error {
	s := lease.Settings{Paused: w.chance(15), MaxInflight: pick[uint32](w, 0, 0, 0, 1, 3)}
	if w.chance(40) {
		s.Rate = lease.Rate{PerSecond: pick(w, 0.5, 3, 50), Burst: pick[uint32](w, 0, 1, 3)}
	}
	if w.chance(40) {
		s.Retry = w.policy()
	}
	if w.chance(20) { // longer than the backoffs that tasks set, so that policyOf has to adjust
		s.Retry.InitialBackoff, s.Retry.MaxBackoff = 5*time.Second, pick(w, 0, 10*time.Second)
	}
	return w.setQueue(pick(w, queues...), s)
}

// queues are all queues of the simulation.
var queues = []specKey{{1, "q"}, {1, "r"}, {2, "q"}, {2, "r"}}

func (w *world) setQueue(queue specKey, s lease.Settings) error {
	if err := s.Check(w.host.rules.Limits); err != nil {
		return err
	}
	w.host.setQueue(queue, &s, w.model.now.Serving)
	w.model.setQueue(queue, s)
	return w.commit()
}

// forget drops the committed reports of tasks that were deleted at least an hour ago (A10).
func (w *world) forget() error {
	if err := w.commit(); err != nil {
		return err
	}
	now := w.model.now.Serving
	w.host.expireLedgers(now)
	w.host.disk.expireLedgers(now)
	w.model.forget()
	return nil
}
