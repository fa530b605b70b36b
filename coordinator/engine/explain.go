package engine

import (
	"context"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// Explain returns why a task is in its state. The error is lease.ErrNotFound if the tenant has no such task.
func (e *Engine) Explain(ctx context.Context, tenant string, id lease.TaskID) (lease.Explanation, error) {
	return ask(ctx, e, tenant, func() (lease.Explanation, error) { return e.explain(tenant, id) })
}

func (e *Engine) explain(tenant string, id lease.TaskID) (x lease.Explanation, err error) {
	if e.spaces[id.Space] == nil {
		return x, lease.ErrNotFound
	}
	e.step(lease.Expire{Task: id})
	t := e.set.task(id)
	if t == nil || t.Tenant != tenant {
		return x, lease.ErrNotFound
	}
	x = lease.Explain(e.now, view{e}, t)
	if t.State() == lease.Ready && !heldBack(x.Findings) {
		x.Findings = slices.Insert(x.Findings, 0, e.workersFor(t))
	}
	return x, nil
}

// heldBack reports whether the rules keep a READY task from being granted.
func heldBack(found []lease.Finding) bool {
	return len(found) > 0 && found[0].Code != lease.FoundTimeLimit && found[0].Code != lease.FoundLateResult
}
