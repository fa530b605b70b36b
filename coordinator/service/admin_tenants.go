package service

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
)

// ListTenants lists what the coordinator knows of each tenant, sorted by name.
func (s *adminService) ListTenants(
	ctx context.Context, req *lessorv1.ListTenantsRequest,
) (*lessorv1.ListTenantsResponse, error) {
	f := s.fields()
	size := f.Items("page_size", req.GetPageSize(), defaultPage)
	list := newListing("tenants", gate.Identify(ctx).Tenant, &lessorv1.ListTenantsRequest{})
	after := string(list.cursor(f, req.GetPageToken()))
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	counted, err := s.Engine.Tenants(ctx, after, size+1)
	if err != nil {
		return nil, refusal.Status(err)
	}
	sessions := s.Sessions.Counts()
	found := withOthers(counted, s.othersOf(sessions), after, size+1)
	res, page := &lessorv1.ListTenantsResponse{}, pageSize{most: size}
	var shown turn.Counter
	for i := range found {
		if page.full() {
			res.NextPageToken = list.token([]byte(found[i-1].Name))
			break
		}
		shown.Every(10)
		tenant := s.tenantProto(&found[i], sessions[found[i].Name])
		res.Tenants = append(res.Tenants, tenant)
		page.add(tenant)
	}
	return res, nil
}

// othersOf returns the tenants that have sessions or tokens; some of them may be there twice.
func (s *adminService) othersOf(sessions map[string]int) []string {
	others := slices.Collect(maps.Keys(sessions))
	if keyring := s.Gate.Keyring(); keyring != nil {
		others = append(others, keyring.Tenants()...)
	}
	return others
}

// withOthers adds those to the tenants that the engine has counted of which it knows nothing, and
// returns the first ones after a name, at most limit. counted has the first ones of the engine, at
// most limit, so that those behind the last one of them are not needed if there are so many.
func withOthers(counted []engine.TenantCounts, others []string, after string, limit int) []engine.TenantCounts {
	known := make(map[string]bool, len(counted))
	for i := range counted {
		known[counted[i].Name] = true
	}
	var seen turn.Counter // there may be a hundred thousand
	others = slices.DeleteFunc(others, func(name string) bool {
		seen.Every(1000)
		skip := known[name] || name <= after || len(counted) == limit && name > counted[limit-1].Name
		known[name] = true
		return skip
	})
	slices.SortFunc(others, func(a, b string) int { seen.Every(1000); return strings.Compare(a, b) })
	for _, name := range others[:min(len(others), limit)] {
		counted = append(counted, engine.TenantCounts{Name: name})
	}
	slices.SortFunc(counted, func(a, b engine.TenantCounts) int { return strings.Compare(a.Name, b.Name) })
	return counted[:min(len(counted), limit)]
}

// tenantProto converts what the engine has counted of a tenant, with what other parts know of it.
func (s *adminService) tenantProto(n *engine.TenantCounts, sessions int) *lessorv1.Tenant {
	m := &lessorv1.Tenant{
		Name:       n.Name,
		Ready:      n.Ready,
		Scheduled:  n.Scheduled,
		Leased:     n.Leased,
		Blocked:    n.Parked,
		Completed:  n.Completed,
		Failed:     n.Failed,
		Cancelled:  n.Cancelled,
		Workspaces: uint32(n.Workspaces),
		Sessions:   uint32(sessions),
		Quotas:     quotasProto(s.Quotas.Usage(quota.Caller{Tenant: n.Name}), n.Unended()),
	}
	if keyring := s.Gate.Keyring(); keyring != nil {
		m.Tokens = uint32(keyring.Valid(n.Name, time.Now()))
	}
	return m
}
