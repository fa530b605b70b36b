package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/lease"
)

// Explain returns why a task is in its state. The error is lease.ErrNotFound if the tenant has no
// such task.
func (e *Engine) Explain(ctx context.Context, tenant string, id lease.TaskID) (lease.Explanation, error) {
	return ask(ctx, e, tenant, func() (lease.Explanation, error) { return e.explain(tenant, id) })
}

func (e *Engine) explain(tenant string, id lease.TaskID) (x lease.Explanation, err error) {
	if e.spaces.of(id) == nil {
		return x, lease.ErrNotFound
	}
	e.step(lease.Expire{Task: id})
	t := e.set.task(id)
	if t == nil || t.Tenant != tenant {
		return x, lease.ErrNotFound
	}
	x = lease.Explain(e.now(), view{e}, t)
	e.nameHolders(t, x.Findings)
	if e.sessions.isOrphan(t) {
		x.Findings[0].Message += "; its process has no session any more"
	}
	if t.State() == lease.Ready {
		e.addObstacles(t, &x)
	}
	return x, nil
}

// addObstacles adds to the explanation of a READY task what the rules do not know: the workers, the
// disk and the store. What keeps all tasks from being granted comes first, then what somebody has
// to change, then what passes as other tasks end.
func (e *Engine) addObstacles(t *lease.Task, x *lease.Explanation) {
	ofRules := slices.IndexFunc(x.Findings, func(f lease.Finding) bool { return !heldBack(f.Code) })
	if ofRules < 0 {
		ofRules = len(x.Findings)
	}
	if f, passes := e.workersFor(t); f.Code != 0 {
		at := ofRules
		if !passes {
			at = 0
			if ofRules > 0 && x.Findings[0].Code == lease.FoundQueuePaused {
				at = 1
			}
		}
		x.Findings = slices.Insert(x.Findings, at, f)
	} else if ofRules == 0 && !e.mayNotGrant() {
		x.Findings = slices.Insert(x.Findings, 0, e.inLine(t))
	}
	if e.cfg.DiskSpent() {
		x.Findings = slices.Insert(x.Findings, 0, lease.Finding{
			Code:    lease.FoundDiskFull,
			Message: "the disk of the coordinator is almost full: no tasks are granted until there is room; running tasks continue",
			Remedy:  "there is room on that disk or inside the store; the log of the coordinator says how much it needs",
		})
	}
	if e.cfg.StoreGone() {
		x.Findings = slices.Insert(x.Findings, 0, lease.Finding{
			Code:    lease.FoundStoreGone,
			Message: "the file of the coordinator's store was moved or removed: no tasks are granted; running tasks continue",
			Remedy:  "the file is back in its place; the log of the coordinator says what to do",
		})
	}
}

// heldBack reports whether a finding of the rules about a READY task keeps it from being granted.
func heldBack(c lease.FindingCode) bool {
	return c != lease.FoundTimeLimit && c != lease.FoundLateResult
}

// nameHolders adds to the finding that the concurrency key of a task has no room the tasks that
// hold the key, at most five, the one first whose lease is the oldest.
func (e *Engine) nameHolders(t *lease.Task, found []lease.Finding) {
	const most = 5
	k := e.spaces.of(t.ID).keys[t.Spec.ConcurrencyKey]
	at := slices.IndexFunc(found, func(f lease.Finding) bool { return f.Code == lease.FoundConcurrencyKey })
	if at < 0 || k == nil || k.state().Room(t.Spec.ConcurrencyLimit) {
		return
	}
	var names []string
	k.holders.Scan(func(h holder) bool {
		names = append(names, h.task.String())
		return len(names) < most
	})
	if more := k.holders.Len() - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	found[at].Message += "; held by " + strings.Join(names, ", ")
}
