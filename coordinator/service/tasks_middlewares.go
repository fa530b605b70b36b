package service

import (
	"cmp"
	"errors"
	"slices"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// middlewares returns the tasks that are mounted on a host task, either by its id or by its key
// within the run. Tasks with a chain index come first, in the order of the index; then come the
// others.
func middlewares(r store.Reader, host *lease.Task) (all []*lessorv1.Middleware, err error) {
	find := func(node string) error {
		return records.Mounted(r, host.ID.Space, host.Spec.RunID, node, func(t *lease.Task) bool {
			all = append(all, &lessorv1.Middleware{
				TaskId:     t.ID.String(),
				TaskKey:    t.Spec.TaskKey,
				ChainIndex: t.Spec.Trace.Index,
				State:      lessorv1.TaskState(t.State()),
			})
			return len(all) < lease.MaxMiddlewares
		})
	}
	err = find(host.ID.String())
	// a key identifies a task only within a run
	if key := host.Spec.TaskKey; key != "" && host.Spec.RunID != "" && len(all) < lease.MaxMiddlewares {
		err = errors.Join(err, find(key))
	}
	slices.SortStableFunc(all, func(a, b *lessorv1.Middleware) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.GetChainIndex(), b.GetChainIndex()))
	})
	return all, err
}

// rank sorts middlewares without an index after those with one.
func rank(m *lessorv1.Middleware) int {
	if m.ChainIndex == nil {
		return 1
	}
	return 0
}
