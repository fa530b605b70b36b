package coordinator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
)

// invoke makes any call with an empty request, and returns its error. Of a stream, it returns the error of the first message.
func (r *rig) invoke(ctx context.Context, method string) error {
	return r.invokeWith(ctx, method, &emptypb.Empty{})
}

func (r *rig) invokeWith(ctx context.Context, method string, request *emptypb.Empty) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if !r.streams()[method] {
		return r.conn.Invoke(ctx, method, request, &emptypb.Empty{})
	}
	stream, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(request) // RecvMsg returns the error of a failed call
	_ = stream.CloseSend()
	return stream.RecvMsg(&emptypb.Empty{})
}

// methods returns the full names of all methods of the server.
func (r *rig) methods() []string {
	return slices.Sorted(maps.Keys(r.streams()))
}

// streams returns for each method whether it is a stream.
func (r *rig) streams() map[string]bool {
	all := map[string]bool{}
	for service, info := range r.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			all["/"+service+"/"+m.Name] = m.IsClientStream || m.IsServerStream
		}
	}
	return all
}

// auditEvents returns the entries of the audit that req selects, from all pages.
func (r *rig) auditEvents(ctx context.Context, t *testing.T, req *lessorv1.ListAuditEventsRequest) (all []*lessorv1.AuditEvent) {
	t.Helper()
	for {
		page, err := r.admin.ListAuditEvents(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.GetEvents()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all
		}
	}
}

// wholeAudit returns a request for the whole audit.
func wholeAudit() *lessorv1.ListAuditEventsRequest { return &lessorv1.ListAuditEventsRequest{} }

// wantDiskFull checks that err refuses a call because the disk is full, with a wait of 5 s.
func wantDiskFull(t *testing.T, what string, err error) {
	t.Helper()
	wait := detail.Of[*errdetails.RetryInfo](status.Convert(err)).GetRetryDelay().AsDuration()
	if status.Code(err) != codes.ResourceExhausted || refusal.CodeOf(err) != refusal.CodeDiskFull || wait != 5*time.Second {
		t.Errorf("%s: %v with a wait of %v, want %s with 5 s", what, err, wait, refusal.CodeDiskFull)
	}
}

func (r *rig) healthStatus(t *testing.T) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	res, err := r.health.Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetStatus()
}

// cancel cancels the task of a.
func (r *rig) cancel(t *testing.T, a *lessorv1.Assignment) {
	t.Helper()
	_, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: a.GetTask().GetTaskId(), Reason: "not needed"})
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// wantBadField checks that err is INVALID_ARGUMENT with this field.
func wantBadField(t *testing.T, err error, field string) {
	t.Helper()
	st := status.Convert(err)
	v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations()
	if st.Code() != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != field {
		t.Errorf("%s: %v with %v, want INVALID_ARGUMENT of that field", field, err, v)
	}
}

// eventTypes returns the types of the events, separated by spaces.
func eventTypes(history []*lessorv1.HistoryEvent) string {
	var names []string
	for _, e := range history {
		names = append(names, strings.TrimPrefix(e.GetType().String(), "HISTORY_EVENT_TYPE_"))
	}
	return strings.Join(names, " ")
}

// leaseOfOtherTenant submits a task as the tenant "other", and leases it.
func (r *rig) leaseOfOtherTenant(t *testing.T) engine.Granted {
	t.Helper()
	spec := &lease.Spec{Queue: "q", RunID: "run"}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	theirs := engine.Space{Tenant: "other", Workspace: convert.DefaultWorkspace}
	if _, _, err := r.engine.Submit(t.Context(), theirs, []*lease.Spec{spec}, make([]lease.Digest, 1)); err != nil {
		t.Fatal(err)
	}
	granted, err := r.engine.Lease(t.Context(), engine.LeaseRequest{
		Wants: engine.Wants{Space: theirs, Worker: "w", Queues: []string{"q"}}, Max: 1,
	})
	if err != nil || len(granted) != 1 {
		t.Fatalf("lease: %v (%v)", granted, err)
	}
	return granted[0]
}

// drain calls DrainWorker, and returns the drained sessions.
func (r *rig) drain(t *testing.T, req *lessorv1.DrainWorkerRequest) []*lessorv1.Worker {
	t.Helper()
	res, err := r.admin.DrainWorker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetWorkers()
}

// kick calls KickWorker, and returns the ended sessions.
func (r *rig) kick(t *testing.T, req *lessorv1.KickWorkerRequest) []*lessorv1.Worker {
	t.Helper()
	res, err := r.admin.KickWorker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetWorkers()
}
