package engine

import (
	"context"
	"math"

	"github.com/lessor-dev/lessor/lease"
)

// The quota of tasks that have not ended (X5). Their number follows from the counts of the queues, which follow from the tasks: it is kept up with
// them, change by change, and counted anew at each start.

// crowded reports whether the tenant would have more tasks than it may with those of the specs that are new. s is the space that they are for, whose
// keys are settled.
func (e *Engine) crowded(s *space, specs []*lease.Spec) bool {
	if e.cfg.MaxTasks == nil {
		return false
	}
	most, has := uint64(max(e.cfg.MaxTasks(s.name.Tenant), 0)), e.unended[s.name.Tenant]
	if most == math.MaxInt || has+uint64(len(specs)) <= most {
		return false
	}
	for _, spec := range specs {
		if !e.submitted(s, spec) {
			has++
		}
	}
	return has > most
}

// reopens reports whether a command would bring back a task although its tenant has as many as it may: else one that is submitted, cancelled and
// retried again and again would know no limit.
func (e *Engine) reopens(c lease.Command) bool {
	r, ok := c.(lease.Retry)
	if !ok || e.cfg.MaxTasks == nil {
		return false
	}
	most := max(e.cfg.MaxTasks(r.Tenant), 0)
	if most == math.MaxInt || e.unended[r.Tenant] < uint64(most) {
		return false
	}
	t := e.set.task(r.Task)
	return t != nil && t.Tenant == r.Tenant && (t.Rest == lease.Failed || t.Rest == lease.Cancelled)
}

// submitted reports whether the task is there already; who submits it again is told so, however many there are.
func (e *Engine) submitted(s *space, spec *lease.Spec) bool {
	if spec.IdempotencyKey == "" {
		return false
	}
	_, _, found := e.set.key(s.number, spec.IdempotencyKey)
	return found
}

// populate keeps count of the tasks of a tenant that have not ended.
func (e *Engine) populate(tenant string, before, after int) {
	if before == uncounted && after != uncounted {
		e.unended[tenant]++
	}
	if before != uncounted && after == uncounted {
		if e.unended[tenant]--; e.unended[tenant] == 0 {
			delete(e.unended, tenant)
		}
	}
}

// Unended is the number of tasks of a tenant that have not ended.
func (e *Engine) Unended(ctx context.Context, tenant string) (uint64, error) {
	return ask(ctx, e, tenant, func() (uint64, error) { return e.unended[tenant], nil })
}
