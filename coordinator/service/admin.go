package service

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// adminService serves operators.
type adminService struct {
	lessorv1.UnimplementedAdminServiceServer
	*shared
	started lease.Wall
	backups backups
}

// GetStatus describes the coordinator itself.
func (s *adminService) GetStatus(
	ctx context.Context, _ *lessorv1.GetStatusRequest,
) (*lessorv1.GetStatusResponse, error) {
	who := gate.Identify(ctx)
	tenant := who.Tenant
	has, err := s.Engine.TenantCounts(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
	}
	m := &lessorv1.GetStatusResponse{
		Version:       s.Version,
		Epoch:         s.Engine.Epoch(),
		StartedAt:     convert.Stamp(s.started),
		ServerTime:    convert.Stamp(s.Engine.Now().Wall),
		Leases:        has.Leased,
		Sessions:      uint32(s.Sessions.CountOf(tenant)),
		Quotas:        quotasProto(s.Quotas.Usage(who.Caller()), has.Unended()),
		DiskFull:      s.DiskFull(),
		GrantsStopped: s.DiskSpent(),
		StoreGone:     s.StoreGone(),
		Open:          s.Gate.Open(),
	}
	if !who.Until.IsZero() {
		m.CredentialEndsAt = convert.Stamp(lease.WallOf(who.Until))
	}
	if !m.GetOpen() {
		m.Holder = &lessorv1.Holder{Tenant: tenant, Role: convert.RoleProto(who.Role), Subject: who.Subject}
	}
	if s.Gate.SeesAll(who) {
		stats := s.Store.Stats()
		m.StoreBytes, m.StoreFreeBytes = uint64(stats.FileBytes), uint64(stats.ReusableBytes)
	}
	if s.Gate.Hosts(who) {
		s.addHosting(m, tenant)
	}
	return m, nil
}

// addHosting adds what only callers of the host tenant see: its name, the disk, and the standbys.
func (s *adminService) addHosting(m *lessorv1.GetStatusResponse, host string) {
	if !m.GetOpen() {
		m.HostTenant = host
	}
	if s.DiskRoom != nil {
		free, onDisk, inStore := s.DiskRoom()
		m.DiskFreeBytes = new(uint64(free))
		if m.GetDiskFull() {
			m.DiskNeededBytes, m.StoreNeededBytes = new(uint64(onDisk)), new(uint64(inStore))
		}
	}
	m.Standbys, m.WaitsForStandby = standbysProto(s.Feed.Standbys()), s.Feed.Waits()
	if s.StandbyWait > 0 {
		m.StandbyWait = durationpb.New(s.StandbyWait)
	}
}

// quotasProto converts limits and their use. unended is how many tasks of the tenant have not
// ended.
func quotasProto(all []quota.Use, unended uint64) []*lessorv1.Quota {
	shown := make([]*lessorv1.Quota, len(all))
	for i, u := range all {
		shown[i] = &lessorv1.Quota{Limit: u.Limit.String(), Of: u.Of, Value: u.Most, Used: uint64(u.Used)}
		if u.Limit == quota.Tasks {
			shown[i].Used = unended
		}
	}
	return shown
}
