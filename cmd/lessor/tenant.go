package main

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// tenantCmd is lessor tenant.
type tenantCmd struct {
	List tenantListCmd `cmd:"" help:"List the tenants, with what each has and uses."`
}

// tenantListCmd is lessor tenant list.
type tenantListCmd struct {
	server `embed:""`
}

// Help is shown below the flags.
func (tenantListCmd) Help() string {
	return `OPEN are the tasks that have not ended, LEASED those of them that a worker holds, and ENDED those that are there until their retention is over. With
--json also the states of the tasks, the workspaces, and all quotas with their use. With serve --auth it needs the token of a viewer or an operator of
the host tenant (serve --host-tenant).

Example:
  lessor tenant list --json | jq -r 'select(.sessions > 0) | .name'`
}

func (c tenantListCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		list := newListing(a, "TENANT", "OPEN", "LEASED", "ENDED", "SESSIONS", "TOKENS")
		req := &lessorv1.ListTenantsRequest{}
		return printPages(list, tenantCells, func(token string) ([]*lessorv1.Tenant, string, error) {
			req.PageToken = token
			page, err := cl.admin.ListTenants(a.ctx, req)
			return page.GetTenants(), page.GetNextPageToken(), err
		})
	})
}

func tenantCells(t *lessorv1.Tenant) []string {
	return []string{
		t.GetName(),
		ofQuota(t, t.GetReady()+t.GetScheduled()+t.GetLeased(), "tasks"),
		fmt.Sprint(t.GetLeased()),
		fmt.Sprint(t.GetCompleted() + t.GetFailed() + t.GetCancelled()),
		ofQuota(t, uint64(t.GetSessions()), "sessions"),
		fmt.Sprint(t.GetTokens()),
	}
}

// ofQuota returns a number, with the limit that a tenant has for it, if it has one.
func ofQuota(t *lessorv1.Tenant, n uint64, limit string) string {
	for _, q := range t.GetQuotas() {
		if q.GetLimit() == limit && q.GetValue() != "none" {
			return fmt.Sprintf("%d of %s", n, q.GetValue())
		}
	}
	return fmt.Sprint(n)
}
