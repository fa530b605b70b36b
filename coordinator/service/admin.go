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
	"github.com/lessor-dev/lessor/store/standby"
)

// adminService serves operators.
type adminService struct {
	lessorv1.UnimplementedAdminServiceServer
	*shared
	started lease.Wall
	backups backups
}

// GetStatus describes the coordinator itself.
func (s *adminService) GetStatus(ctx context.Context, _ *lessorv1.GetStatusRequest) (*lessorv1.GetStatusResponse, error) {
	who := gate.Identify(ctx)
	tenant := who.Tenant
	has, err := s.Engine.TenantCounts(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
	}
	var ends lease.Wall
	if !who.Until.IsZero() {
		ends = lease.WallOf(who.Until)
	}
	var holder *lessorv1.Holder
	if !s.Gate.Open() {
		holder = &lessorv1.Holder{Tenant: who.Tenant, Role: convert.RoleProto(who.Role), Subject: who.Subject}
	}
	var standbys []standby.Status
	var waits bool
	var wait *durationpb.Duration
	var free, needed, neededInside *uint64
	var size, inside uint64
	var host string
	if s.Gate.SeesAll(who) {
		stats := s.Store.Stats()
		size, inside = uint64(stats.FileBytes), uint64(stats.ReusableBytes)
	}
	if s.Gate.Hosts(who) {
		if !s.Gate.Open() {
			host = tenant
		}
		if s.DiskRoom != nil {
			bytes, onDisk, inStore := s.DiskRoom()
			free = new(uint64(bytes))
			if s.DiskFull() {
				needed, neededInside = new(uint64(onDisk)), new(uint64(inStore))
			}
		}
		standbys, waits = s.Feed.Standbys(), s.Feed.Waits()
		if s.StandbyWait > 0 {
			wait = durationpb.New(s.StandbyWait)
		}
	}
	return &lessorv1.GetStatusResponse{
		Version: s.Version, Epoch: s.Engine.Epoch(), StartedAt: convert.Stamp(s.started), ServerTime: convert.Stamp(s.Engine.Now().Wall),
		Leases: has.Leased, Sessions: uint32(s.Sessions.CountOf(tenant)), StoreBytes: size, DiskFull: s.DiskFull(),
		GrantsStopped: s.DiskSpent(), StoreGone: s.StoreGone(), Open: s.Gate.Open(), Quotas: quotasProto(s.Quotas.Usage(who.Caller()), has.Unended()),
		CredentialEndsAt: convert.Stamp(ends), Standbys: standbysProto(standbys), WaitsForStandby: waits, StandbyWait: wait, DiskFreeBytes: free,
		HostTenant: host, Holder: holder, StoreFreeBytes: inside, DiskNeededBytes: needed, StoreNeededBytes: neededInside,
	}, nil
}

// quotasProto converts limits and their use. unended is how many tasks of the tenant have not ended.
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
