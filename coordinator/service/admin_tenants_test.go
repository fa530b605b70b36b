package service_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// tenantsOf returns all tenants that the caller may list, read in pages of a size.
func tenantsOf(ctx context.Context, t *testing.T, r *wiretest.Rig, size uint32) (all []*lessorv1.Tenant) {
	t.Helper()
	for token := ""; ; {
		page, err := r.Admin.ListTenants(ctx, &lessorv1.ListTenantsRequest{PageSize: size, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(page.GetTenants()); n > int(size) {
			t.Errorf("a page of %d has %d tenants", size, n)
		}
		all = append(all, page.GetTenants()...)
		if token = page.GetNextPageToken(); token == "" {
			return all
		}
	}
}

// X2, X5: the host sees of each tenant its tasks, sessions, tokens and quotas, whatever the size of
// the pages. Tenants that have only tokens are there, too.
func TestTenantsAreListedWithWhatTheyHave(t *testing.T) {
	t.Attr("rules", "X2 X5")
	quotas := quota.Config{Tenants: map[string]quota.Limits{"busy": {Tasks: 100, Sessions: 7}}}
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, HostTenant: "host", Quotas: quotas}, func(t *testing.T, r *wiretest.Rig) {
		ctxs := map[string]context.Context{}
		for _, tenant := range []string{"busy", "host", "idle"} {
			ctxs[tenant] = r.OperatorContext(t, tenant)
		}
		r.IssueFor(t, "a former one", auth.Viewer, time.Second)
		_, revoked := r.Issue(t, "busy", auth.Viewer)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), "busy", revoked, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		var ids []string
		for _, spec := range []*lessorv1.TaskSpec{
			{Queue: "q"}, {Queue: "q"}, {Queue: "q"}, {Queue: "r", WorkspaceId: "other"}, {Queue: "never taken", WorkspaceId: "other"},
		} {
			made, err := r.Tasks.SubmitTask(ctxs["busy"], &lessorv1.SubmitTaskRequest{Task: spec})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, made.GetTask().GetTaskId())
		}
		if _, err := r.Tasks.CancelTask(ctxs["busy"], &lessorv1.CancelTaskRequest{TaskId: ids[0]}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Workers.Lease(ctxs["busy"], &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}, MaxTasks: 1}); err != nil {
			t.Fatal(err)
		}
		r.Token, _ = r.Issue(t, "busy", auth.Worker)
		worker := r.OpenStream(t, "w2")
		worker.Tenant = "busy"
		worker.Handshake()
		register := wiretest.Registration(1)
		register.Queues = []string{"none"}
		worker.Send(register)
		synctest.Wait()
		viewer, _ := r.Issue(t, "host", auth.Viewer)
		for _, ctx := range []context.Context{ctxs["host"], wiretest.WithToken(t.Context(), viewer)} {
			for _, size := range []uint32{1, 2, 3, 100} {
				var got []string
				for _, n := range tenantsOf(ctx, t, r, size) {
					text := fmt.Sprintf("%s: %d ready, %d leased, %d completed, %d cancelled, %d workspaces, %d sessions, %d tokens", n.GetName(), n.GetReady(),
						n.GetLeased(), n.GetCompleted(), n.GetCancelled(), n.GetWorkspaces(), n.GetSessions(), n.GetTokens())
					for _, q := range n.GetQuotas() {
						if q.GetLimit() == "tasks" || q.GetLimit() == "sessions" {
							text += fmt.Sprintf(", %s of the %s %d of %s", q.GetLimit(), q.GetOf(), q.GetUsed(), q.GetValue())
						}
					}
					got = append(got, text)
				}
				want := []string{
					"a former one: 0 ready, 0 leased, 0 completed, 0 cancelled, 0 workspaces, 0 sessions, 0 tokens, sessions of the tenant 0 of 20000, tasks of the tenant 0 of none",
					"busy: 3 ready, 1 leased, 0 completed, 1 cancelled, 2 workspaces, 1 sessions, 2 tokens, sessions of the tenant 1 of 7, tasks of the tenant 4 of 100",
					"host: 0 ready, 0 leased, 0 completed, 0 cancelled, 0 workspaces, 0 sessions, 2 tokens, sessions of the tenant 0 of 20000, tasks of the tenant 0 of none",
					"idle: 0 ready, 0 leased, 0 completed, 0 cancelled, 0 workspaces, 0 sessions, 1 tokens, sessions of the tenant 0 of 20000, tasks of the tenant 0 of none",
				}
				if !slices.Equal(got, want) {
					t.Errorf("in pages of %d, the tenants are\n%q, want\n%q", size, got, want)
				}
			}
		}
	})
}

// X2: the size of the store is about all tenants: if there is a host tenant, its callers alone see
// it, and that their tenant is the host. Without one every tenant sees the size, as it sees the
// metrics. How much room there is and is missing is for callers of the host tenant only.
func TestWhoSeesTheSizeOfTheStore(t *testing.T) {
	t.Attr("rules", "X2")
	for _, host := range []string{"host", ""} {
		cfg := coordinator.Config{
			Auth: &gate.Auth{}, HostTenant: host,
			DiskFull: func() bool { return true }, DiskRoom: func() (free, needed, inside int64) { return 1, 2, 3 },
		}
		wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
			for _, tenant := range []string{"host", "acme"} {
				for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
					token, _ := r.Issue(t, tenant, role)
					s, err := r.Admin.GetStatus(wiretest.WithToken(t.Context(), token), &lessorv1.GetStatusRequest{})
					hosts := tenant == host
					if err != nil || (s.GetStoreBytes() > 0) != (hosts || host == "") || s.GetHostTenant() != map[bool]string{true: host}[hosts] {
						t.Errorf("a %v of tenant %q, with the host tenant %q, sees %v (%v)", role, tenant, host, s, err)
					}
					if s.GetDiskFreeBytes() > 0 != hosts || s.GetDiskNeededBytes() > 0 != hosts || s.GetStoreNeededBytes() > 0 != hosts {
						t.Errorf("a %v of tenant %q, with the host tenant %q, sees of the room %v", role, tenant, host, s)
					}
				}
			}
		})
	}
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		if s, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{}); err != nil || s.GetHostTenant() != "" {
			t.Errorf("without credentials there is no host tenant, and the status has %q (%v)", s.GetHostTenant(), err)
		}
	})
}

// X2: only viewers and operators of the host tenant list tenants, and nobody does if there is none.
// What others are told says which flag it is about, and not which tenants there are. Without
// credentials everybody does.
func TestWhoMayListTenants(t *testing.T) {
	t.Attr("rules", "X2")
	for _, host := range []string{"host", ""} {
		refused := &refusal.HostError{What: "ListTenants", NoHost: host == ""}
		wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, HostTenant: host}, func(t *testing.T, r *wiretest.Rig) {
			for _, tenant := range []string{"host", "acme", gate.DefaultTenant} {
				for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
					token, _ := r.Issue(t, tenant, role)
					_, err := r.Admin.ListTenants(wiretest.WithToken(t.Context(), token), &lessorv1.ListTenantsRequest{})
					reads := role == auth.Viewer || role == auth.Operator
					switch {
					case reads && tenant == host:
						if err != nil {
							t.Errorf("a %v of the host: %v", role, err)
						}
					case status.Code(err) != codes.PermissionDenied, refusal.CodeOf(err) != refusal.CodeForbidden,
						reads && status.Convert(err).Message() != refused.Error():
						t.Errorf("a %v of tenant %q, with the host tenant %q: %v, want PERMISSION_DENIED",
							role, tenant, host, err)
					}
				}
			}
		})
	}
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "q" })
		if all := tenantsOf(t.Context(), t, r, 10); len(all) != 1 || all[0].GetName() != gate.DefaultTenant || all[0].GetReady() != 1 || all[0].GetTokens() != 0 {
			t.Errorf("without credentials the tenants are %v, want the default one with a task", all)
		}
	})
}

// X2: a page token of another list is refused.
func TestPageTokenOfTenants(t *testing.T) {
	t.Attr("rules", "X2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		_, err := r.Admin.ListTenants(t.Context(), &lessorv1.ListTenantsRequest{PageToken: "AAAA"})
		wiretest.WantBadField(t, err, "page_token")
	})
}
