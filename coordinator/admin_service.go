package coordinator

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// adminService serves operators.
type adminService struct {
	lessorv1.UnimplementedAdminServiceServer
	*edge
	sessions *session.Registry
	noAuth   bool // no credentials are required
	started  lease.Wall
	feed     *standby.Feed
	// following is done when no standby need follow any more: a stop has committed everything.
	following context.Context

	backup      atomic.Bool     // a backup is under way
	backups     records.Backups // when the last ones ended; only the backup under way may use it
	showBackups func(records.Backups)
}

// GetStatus describes the coordinator itself.
func (s *adminService) GetStatus(ctx context.Context, _ *lessorv1.GetStatusRequest) (*lessorv1.GetStatusResponse, error) {
	who := gate.Identify(ctx)
	tenant := who.Tenant
	has, err := s.engine.TenantCounts(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
	}
	var ends lease.Wall
	if !who.Until.IsZero() {
		ends = lease.WallOf(who.Until)
	}
	var standbys []standby.Status
	var waits bool
	var wait *durationpb.Duration
	if tenant == s.cfg.Backup.Tenant {
		standbys, waits = s.feed.Standbys(), s.feed.Waits()
		if s.cfg.Standbys.Wait > 0 {
			wait = durationpb.New(s.cfg.Standbys.Wait)
		}
	}
	return &lessorv1.GetStatusResponse{
		Version: s.cfg.Version, Epoch: s.engine.Epoch(), StartedAt: convert.Stamp(s.started), ServerTime: convert.Stamp(s.engine.Now().Wall),
		Leases: has.Leases, Sessions: uint32(s.sessions.CountOf(tenant)), StoreBytes: uint64(s.store.Stats().FileBytes), DiskFull: s.cfg.DiskFull(),
		GrantsStopped: s.cfg.DiskSpent(), StoreGone: s.cfg.StoreGone(), Open: s.noAuth, Quotas: quotasProto(s.quotas.Usage(who.Caller()), has.Unended),
		CredentialEndsAt: convert.Stamp(ends), Standbys: standbysProto(standbys), WaitsForStandby: waits, StandbyWait: wait,
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
