package engine

import "context"

// tenantTally counts what a tenant has in all its spaces: the tasks, the spaces that have a number,
// and the settings of queues, as settingsOf counts them.
type tenantTally struct {
	tally
	spaces   int
	settings int
}

// TenantCounts returns what a tenant has; only its name if it has nothing. Its cost does not depend
// on the number of queues and tasks.
func (e *Engine) TenantCounts(ctx context.Context, tenant string) (TenantCounts, error) {
	return ask(ctx, e, tenant, func() (TenantCounts, error) {
		if n := e.spaces.tenant(tenant); n != nil {
			return n.shown(tenant), nil
		}
		return TenantCounts{Name: tenant}, nil
	})
}

// Tenants lists at most limit tenants in the order of their names, beginning after the name after.
// It lists those that have a space, and those of which somebody has asked for work since the start.
func (e *Engine) Tenants(ctx context.Context, after string, limit int) ([]TenantCounts, error) {
	return ask(ctx, e, "", func() ([]TenantCounts, error) { return e.spaces.tenantsAfter(after, limit), nil })
}

func (all *spaces) tenantsAfter(name string, limit int) (found []TenantCounts) {
	all.tenants.Ascend(name, func(next string, n *tenantTally) bool {
		if next > name && len(found) < limit {
			found = append(found, n.shown(next))
		}
		return len(found) < limit
	})
	return found
}

func (n *tenantTally) shown(name string) TenantCounts {
	return TenantCounts{
		Name:       name,
		Workspaces: n.spaces,
		Ready:      n.counts[countReady],
		Scheduled:  n.counts[countScheduled],
		Leased:     n.counts[countLeased],
		Parked:     n.parked,
		Completed:  n.counts[countCompleted],
		Failed:     n.counts[countFailed],
		Cancelled:  n.counts[countCancelled],
	}
}
