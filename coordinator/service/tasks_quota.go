package service

import (
	"errors"
	"fmt"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// ifTaskLimit replaces engine.ErrTaskLimit, which the engine returns for a task above the tenant's
// limit, by the error of the quota of tasks. It returns any other error unchanged.
func (sh *shared) ifTaskLimit(who gate.Identity, err error) error {
	if over, ok := errors.AsType[*engine.TaskLimitError](err); ok {
		return sh.Quotas.RefuseTasks(who.Caller(), over.Used, over.Asked)
	}
	return err
}

// refundSubmits gives back what n submits took from the rate of submits, if they were refused
// because there was no room for them. Their caller is asked to repeat them: if each repeat were
// charged, the rate would be used up, by no task, when there is room.
func (sh *shared) refundSubmits(who gate.Identity, err error, n int) {
	if errors.Is(err, engine.ErrTaskLimit) || errors.Is(err, engine.ErrDiskFull) ||
		errors.Is(err, engine.ErrStoreGone) {
		sh.Quotas.Refund(who.Caller(), quota.Submits, n)
	}
}

// ifTooMany replaces the refusal by the quota of tasks, if a batch makes more tasks than the tenant
// may ever have: a repeat would not help, but smaller batches do. It returns any other error
// unchanged.
func (sh *shared) ifTooMany(tenant string, batch []*lessorv1.TaskSpec, err error) error {
	over, ok := errors.AsType[*quota.Error](err)
	if !ok || over.Limit != quota.Tasks {
		return err
	}
	if n, most := tasksOf(batch), sh.Quotas.Most(tenant, quota.Tasks); n > max(most, 1) {
		return &lease.FieldError{
			Field:   "tasks",
			Problem: fmt.Sprintf("makes %d tasks; the tenant's quota of tasks that have not ended is %d", n, most),
		}
	}
	return err
}

// tasksOf returns how many tasks a batch makes if none of them exists: one for all specs with the
// same idempotency key.
func tasksOf(batch []*lessorv1.TaskSpec) (n int) {
	keys := map[string]bool{}
	for _, spec := range batch {
		if key := spec.GetIdempotencyKey(); key == "" || !keys[key] {
			keys[key] = true
			n++
		}
	}
	return n
}
