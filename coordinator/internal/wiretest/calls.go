package wiretest

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
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
)

// Invoke makes any call with an empty request, and returns its error. Of a stream, it returns the
// error of the first message.
func (r *Rig) Invoke(ctx context.Context, method string) error {
	return r.InvokeWith(ctx, method, &emptypb.Empty{})
}

// InvokeWith is like Invoke, with a request that may have unknown fields.
func (r *Rig) InvokeWith(ctx context.Context, method string, request *emptypb.Empty) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if !r.streams()[method] {
		return r.Conn.Invoke(ctx, method, request, &emptypb.Empty{})
	}
	stream, err := r.Conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(request) // RecvMsg returns the error of a failed call
	_ = stream.CloseSend()
	return stream.RecvMsg(&emptypb.Empty{})
}

// Methods returns the full names of all methods of the server.
func (r *Rig) Methods() []string {
	return slices.Sorted(maps.Keys(r.streams()))
}

// streams returns for each method whether it is a stream.
func (r *Rig) streams() map[string]bool {
	all := map[string]bool{}
	for service, info := range r.GRPC.GetServiceInfo() {
		for _, m := range info.Methods {
			all["/"+service+"/"+m.Name] = m.IsClientStream || m.IsServerStream
		}
	}
	return all
}

// AuditEvents returns the entries of the audit that req selects, from all pages.
func (r *Rig) AuditEvents(
	ctx context.Context, t *testing.T, req *lessorv1.ListAuditEventsRequest,
) (all []*lessorv1.AuditEvent) {
	t.Helper()
	for {
		page, err := r.Admin.ListAuditEvents(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.GetEvents()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all
		}
	}
}

// WholeAudit returns a request for the whole audit.
func WholeAudit() *lessorv1.ListAuditEventsRequest { return &lessorv1.ListAuditEventsRequest{} }

// WantDiskFull checks that err refuses a call because the disk is full, with a wait of 5 s.
func WantDiskFull(t *testing.T, what string, err error) {
	t.Helper()
	wait := detail.Of[*errdetails.RetryInfo](status.Convert(err)).GetRetryDelay().AsDuration()
	if status.Code(err) != codes.ResourceExhausted || refusal.CodeOf(err) != refusal.CodeDiskFull ||
		wait != 5*time.Second {
		t.Errorf("%s: %v with a wait of %v, want %s with 5 s", what, err, wait, refusal.CodeDiskFull)
	}
}

// HealthStatus returns what the health service says of the coordinator.
func (r *Rig) HealthStatus(t *testing.T) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	res, err := r.Health.Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetStatus()
}

// Cancel cancels the task of a.
func (r *Rig) Cancel(t *testing.T, a *lessorv1.Assignment) {
	t.Helper()
	_, err := r.Tasks.CancelTask(t.Context(),
		&lessorv1.CancelTaskRequest{TaskId: a.GetTask().GetTaskId(), Reason: "not needed"})
	if err != nil {
		t.Fatal(err)
	}
}

// ErrOf returns the error of a call.
func ErrOf[T any](_ T, err error) error { return err }

// WantBadField checks that err is INVALID_ARGUMENT with this field.
func WantBadField(t *testing.T, err error, field string) {
	t.Helper()
	st := status.Convert(err)
	v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations()
	if st.Code() != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != field {
		t.Errorf("%s: %v with %v, want INVALID_ARGUMENT of that field", field, err, v)
	}
}

// EventTypes returns the types of the events, separated by spaces.
func EventTypes(history []*lessorv1.HistoryEvent) string {
	var names []string
	for _, e := range history {
		names = append(names, strings.TrimPrefix(e.GetType().String(), "HISTORY_EVENT_TYPE_"))
	}
	return strings.Join(names, " ")
}

// LeaseOfOtherTenant submits a task as the tenant "other", and leases it.
func (r *Rig) LeaseOfOtherTenant(t *testing.T) engine.Granted {
	t.Helper()
	spec := &lease.Spec{Queue: "q", RunID: "run"}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	theirs := engine.Space{Tenant: "other", Workspace: convert.DefaultWorkspace}
	if _, _, err := r.Engine.Submit(t.Context(), theirs, []*lease.Spec{spec}, make([]lease.Digest, 1)); err != nil {
		t.Fatal(err)
	}
	granted, err := r.Engine.Lease(t.Context(), engine.LeaseRequest{
		Wants: engine.Wants{Space: theirs, Worker: "w", Queues: []string{"q"}}, Max: 1,
	})
	if err != nil || len(granted) != 1 {
		t.Fatalf("lease: %v (%v)", granted, err)
	}
	return granted[0]
}

// Drain calls DrainWorker, and returns the drained sessions.
func (r *Rig) Drain(t *testing.T, req *lessorv1.DrainWorkerRequest) []*lessorv1.Worker {
	t.Helper()
	res, err := r.Admin.DrainWorker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetWorkers()
}

// Kick calls KickWorker, and returns the ended sessions.
func (r *Rig) Kick(t *testing.T, req *lessorv1.KickWorkerRequest) []*lessorv1.Worker {
	t.Helper()
	res, err := r.Admin.KickWorker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetWorkers()
}

// CancelTask cancels the task with an id.
func (r *Rig) CancelTask(t *testing.T, id string) {
	t.Helper()
	if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
		t.Fatal(err)
	}
}

// Cancelled submits n tasks with payloads of so many bytes, and cancels them. It returns their ids.
func (r *Rig) Cancelled(t *testing.T, n, payload int) (ids []string) {
	t.Helper()
	for range n {
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, payload) }).GetTaskId()
		r.CancelTask(t, id)
		ids = append(ids, id)
	}
	return ids
}
