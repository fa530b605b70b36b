package engine

import (
	"math"

	"github.com/lessor-dev/lessor/lease"
)

// The quota of tasks that have not ended (X5). Every change updates tenantTally, and each start
// counts again from the queues.

// submitQuota returns a *TaskLimitError if a submit of the specs into s would give the tenant more
// tasks than it may have. A submit that makes no task is always allowed, even if the tenant already
// has more tasks than a lowered limit. The caller must have called expireByKey for the specs.
func (e *Engine) submitQuota(s *space, specs []*lease.Spec) error {
	if e.cfg.MaxTasks == nil {
		return nil
	}
	most, has := uint64(max(e.cfg.MaxTasks(s.name.Tenant), 0)), s.tenant.unended()
	if most == math.MaxInt || has+uint64(len(specs)) <= most {
		return nil
	}
	if made := e.set.newTasks(s.number, specs); made > 0 && has+made > most {
		return &TaskLimitError{Used: has, Asked: made}
	}
	return nil
}

// newTasks returns how many tasks the specs would make: none for an idempotency key that has made a
// task already, and one for a key that occurs twice.
func (w *workset) newTasks(space uint32, specs []*lease.Spec) (n uint64) {
	seen := map[string]bool{}
	for _, spec := range specs {
		key := spec.IdempotencyKey
		if key == "" || !seen[key] && !w.submitted(space, key) {
			n++
		}
		seen[key] = true
	}
	return n
}

// submitted reports whether an idempotency key has made a task already.
func (w *workset) submitted(space uint32, key string) bool {
	_, _, found := w.key(space, key)
	return found
}

// retryQuota returns a *TaskLimitError if a command is a retry that would give the tenant more
// tasks than it may have. Without this check, a tenant could get around the quota by submitting,
// cancelling and later retrying tasks.
func (e *Engine) retryQuota(c lease.Command) error {
	r, ok := c.(lease.Retry)
	if !ok || e.cfg.MaxTasks == nil {
		return nil
	}
	most, has := max(e.cfg.MaxTasks(r.Tenant), 0), e.spaces.tenant(r.Tenant)
	if has == nil || most == math.MaxInt || has.unended() < uint64(most) {
		return nil
	}
	t := e.set.task(r.Task)
	if t == nil || t.Tenant != r.Tenant || t.Rest != lease.Failed && t.Rest != lease.Cancelled { // the rules refuse it
		return nil
	}
	return &TaskLimitError{Used: has.unended(), Asked: 1}
}
