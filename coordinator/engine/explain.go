package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/lease"
)

// Explain returns why a task is in its state. The error is lease.ErrNotFound if the tenant has no such task.
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
	switch {
	case t.State() != lease.Ready:
	case e.cfg.StoreGone():
		x.Findings = slices.Insert(x.Findings, 0, lease.Finding{
			Code: lease.FoundStoreGone, Since: e.now().WallAt(t.ReadyAt),
			Message: "the file of the coordinator's store was moved or removed: no tasks are granted; running tasks continue",
			Remedy:  "the file is back in its place; the log of the coordinator says what to do",
		})
	case e.cfg.DiskSpent():
		x.Findings = slices.Insert(x.Findings, 0, lease.Finding{
			Code: lease.FoundDiskFull, Since: e.now().WallAt(t.ReadyAt),
			Message: "the disk of the coordinator is almost full: no tasks are granted until there is room; running tasks continue",
			Remedy:  "there is room on that disk or inside the store; the log of the coordinator says how much it needs",
		})
	}
	switch {
	case t.State() != lease.Ready:
	case !heldBack(x.Findings):
		x.Findings = slices.Insert(x.Findings, 0, e.workersFor(t))
	case e.workers.absence(workerKey{t.Tenant, t.Spec.Pinned()}) != nil: // this may end the task before what holds it back ends
		x.Findings = slices.Insert(x.Findings, 1, e.workersFor(t))
	}
	return x, nil
}

// heldBack reports whether the rules, the disk or the store keep a READY task from being granted.
func heldBack(found []lease.Finding) bool {
	return len(found) > 0 && found[0].Code != lease.FoundTimeLimit && found[0].Code != lease.FoundLateResult
}

// nameHolders adds to the finding that the concurrency key of a task has no room the tasks that hold the key, at most five, oldest first.
func (e *Engine) nameHolders(t *lease.Task, found []lease.Finding) {
	const most = 5
	k := e.spaces.of(t.ID).keys[t.Spec.ConcurrencyKey]
	at := slices.IndexFunc(found, func(f lease.Finding) bool { return f.Code == lease.FoundConcurrencyKey })
	if at < 0 || k == nil || k.state().Room(t.Spec.ConcurrencyLimit) {
		return
	}
	var oldest []lease.TaskID
	for id := range k.holders { // there may be a million, too many to sort them all on the loop
		at, _ := slices.BinarySearchFunc(oldest, id, lease.TaskID.Compare)
		if at < most {
			oldest = slices.Insert(oldest, at, id)
			oldest = oldest[:min(most, len(oldest))]
		}
	}
	var names []string
	for _, id := range oldest {
		names = append(names, id.String())
	}
	if more := len(k.holders) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	found[at].Message += "; held by " + strings.Join(names, ", ")
}
