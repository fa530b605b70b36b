package service_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// X4, X2: an operator reads only the audit of its own tenant, and a page token is valid only for
// its tenant.
func TestAuditBelongsToItsTenant(t *testing.T) {
	t.Attr("rules", "X4 X2")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		ctxs := map[string]context.Context{}
		for _, tenant := range []string{"acme", "acm", "evil"} {
			token, _ := r.Issue(t, tenant, auth.Operator)
			ctxs[tenant] = wiretest.WithToken(t.Context(), token)
		}
		for _, queue := range []string{"a", "b", "c"} {
			if _, err := r.Admin.UpdateQueue(ctxs["acme"], &lessorv1.UpdateQueueRequest{Name: queue}); err != nil {
				t.Fatal(err)
			}
		}
		if all := r.AuditEvents(ctxs["acme"], t, &lessorv1.ListAuditEventsRequest{PageSize: 1}); len(all) != 3 || all[0].GetObject() != "a" || all[2].GetObject() != "c" {
			t.Errorf("the audit of acme, page by page, is %v, want the queues a, b and c", all)
		}
		page, err := r.Admin.ListAuditEvents(ctxs["acme"], &lessorv1.ListAuditEventsRequest{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{"acm", "evil"} {
			if all := r.AuditEvents(ctxs[tenant], t, wiretest.WholeAudit()); len(all) > 0 {
				t.Errorf("%s sees %v", tenant, all)
			}
			_, err := r.Admin.ListAuditEvents(ctxs[tenant],
				&lessorv1.ListAuditEventsRequest{PageSize: 1, PageToken: page.GetNextPageToken()})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("a page token of another tenant: %v, want INVALID_ARGUMENT", err)
			}
		}
	})
}

// X4: the audit can be filtered by subject, call, outcome and time. A name that no entry can have
// is refused: an empty answer would say that nobody did it.
func TestAuditFilter(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		operator, _ := r.Issue(t, "acme", auth.Operator)
		viewer, _ := r.Issue(t, "acme", auth.Viewer)
		ctx := wiretest.WithToken(t.Context(), operator)
		update := func(name string) {
			if _, err := r.Admin.UpdateQueue(ctx, &lessorv1.UpdateQueueRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		update("early")
		time.Sleep(time.Minute)
		noon := timestamppb.Now()
		_ = r.Invoke(wiretest.WithToken(t.Context(), viewer), lessorv1.AdminService_PurgeQueue_FullMethodName)
		time.Sleep(time.Minute)
		later := timestamppb.Now()
		update("late")
		for _, tt := range []struct {
			req  *lessorv1.ListAuditEventsRequest
			want string // queues of the updates, and the action of the refused call, which has no object
		}{
			{&lessorv1.ListAuditEventsRequest{}, "early PurgeQueue late"},
			{&lessorv1.ListAuditEventsRequest{Subject: "acme-operator"}, "early late"},
			{&lessorv1.ListAuditEventsRequest{Outcome: "E.AUTH."}, "PurgeQueue"},
			{&lessorv1.ListAuditEventsRequest{Until: later}, "early PurgeQueue"},
			{&lessorv1.ListAuditEventsRequest{Since: noon}, "PurgeQueue late"},
			{&lessorv1.ListAuditEventsRequest{Outcome: "OK", Since: noon}, "late"},
			{&lessorv1.ListAuditEventsRequest{Subject: "nobody"}, ""},
			{&lessorv1.ListAuditEventsRequest{Action: "UpdateQueue"}, "early late"},
		} {
			var got []string
			for _, e := range r.AuditEvents(ctx, t, tt.req) {
				if e.GetObject() != "" {
					got = append(got, e.GetObject())
				} else {
					got = append(got, e.GetAction())
				}
			}
			wiretest.WantEqual(t, tt.req.String(), strings.Join(got, " "), tt.want)
		}
		for _, known := range []*lessorv1.ListAuditEventsRequest{
			{Action: "GetTask"},
			{Action: "PkgEvent"},
			{Action: "various"},
			{Action: "metrics"},
			{Outcome: "O"},
			{Outcome: "E"},
			{Outcome: "E.AUTH"},
			{Outcome: "E.PKG.INVALID"},
			{Outcome: "E.QUOTA.CALLS"},
		} {
			_ = r.AuditEvents(ctx, t, known)
		}
		const outcomes = `; it is "OK", or a code as docs/errors.md has them, such as E.AUTH.FORBIDDEN, or how one begins`
		for _, tt := range []struct {
			req         *lessorv1.ListAuditEventsRequest
			field, want string
		}{
			{&lessorv1.ListAuditEventsRequest{Action: "Foo"}, "action", `is "Foo", which is no call; docs/security.md has a list of those that are audited`},
			{&lessorv1.ListAuditEventsRequest{Action: "cancelTask"}, "action", `is "cancelTask", in the wrong case; it is CancelTask`},
			{&lessorv1.ListAuditEventsRequest{Action: "Metrics"}, "action", `is "Metrics", in the wrong case; it is metrics`},
			{&lessorv1.ListAuditEventsRequest{Action: "canceltsk"}, "action", `is "canceltsk", which is no call; some that begin like it are CancelTask`},
			{
				&lessorv1.ListAuditEventsRequest{Action: "batch"}, "action",
				`is "batch", which is no call; some that begin like it are BatchCancelTasks, BatchDeleteTasks, BatchRetryTasks`,
			},
			{&lessorv1.ListAuditEventsRequest{Action: "é"}, "action", `is "é", which is no call; docs/security.md has a list of those that are audited`},
			{&lessorv1.ListAuditEventsRequest{Outcome: "foo"}, "outcome", `is "foo"` + outcomes},
			{&lessorv1.ListAuditEventsRequest{Outcome: "ok"}, "outcome", `is "ok"` + outcomes},
			{&lessorv1.ListAuditEventsRequest{Outcome: "E.AUHT"}, "outcome", `is "E.AUHT"` + outcomes},
			{&lessorv1.ListAuditEventsRequest{Outcome: "E.AUTH.FORBIDDEN.X"}, "outcome", `is "E.AUTH.FORBIDDEN.X"` + outcomes},
		} {
			_, err := r.Admin.ListAuditEvents(ctx, tt.req)
			if field, what := detail.Field(status.Convert(err)); status.Code(err) != codes.InvalidArgument || field != tt.field || what != tt.want {
				t.Errorf("%v: %v, want INVALID_ARGUMENT about %s: %s", tt.req, err, tt.field, tt.want)
			}
		}
	})
}

// One call of ListAuditEvents reads no more than maxScan entries, so a page may be empty and still
// have a token for the next page.
func TestAuditScansABoundedNumber(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		var all store.Batch
		for i := range *service.MaxScan + 1 {
			a := &records.Audit{
				Tenant: gate.DefaultTenant, At: lease.Wall(time.Now().UnixNano()),
				Serving: lease.Instant(i), Subject: "ann", Outcome: records.OutcomeOK,
			}
			if i == *service.MaxScan {
				a.Subject = "bob"
			}
			records.PutAudit(&all, a)
		}
		if err := st.Commit(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		req := &lessorv1.ListAuditEventsRequest{Subject: "bob"}
		res, err := r.Admin.ListAuditEvents(t.Context(), req)
		if err != nil || len(res.GetEvents()) != 0 || res.GetNextPageToken() == "" {
			t.Fatalf("first page: %v (%v), want an empty one with a token", res, err)
		}
		req.PageToken = res.GetNextPageToken()
		res, err = r.Admin.ListAuditEvents(t.Context(), req)
		if err != nil || len(res.GetEvents()) != 1 || res.GetEvents()[0].GetSubject() != "bob" || res.GetNextPageToken() != "" {
			t.Errorf("second page: %v (%v), want the entry of bob and no token", res, err)
		}
	})
}

// X4: an entry whose object is not UTF-8 is shown with U+FFFD instead. Otherwise neither its page
// nor any later one could be read.
func TestAuditEntryThatIsNotUTF8IsShown(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, object := range []string{"o\xff", "later"} {
			if err := r.Engine.Record(records.Audit{Tenant: gate.DefaultTenant, Object: object}); err != nil {
				t.Fatal(err)
			}
		}
		events := r.AuditEvents(t.Context(), t, wiretest.WholeAudit())
		if len(events) != 2 || events[0].GetObject() != "o\ufffd" || events[1].GetObject() != "later" {
			t.Errorf("the audit has %v, want entries of the objects o\ufffd and later", events)
		}
	})
}
