package coordinator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// callHandlerDirectly is an interceptor that does nothing.
func callHandlerDirectly(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return next(ctx, req)
}

// invalidMark is a string that callMethod replaces by invalid UTF-8.
const invalidMark = "MARK"

// callMethod calls the handler of a method with an encoded request, in which invalid UTF-8 replaces
// each invalidMark.
func callMethod(t *testing.T, desc *grpc.ServiceDesc, method string, req proto.Message) (any, error) {
	t.Helper()
	raw, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	raw = []byte(strings.ReplaceAll(string(raw), invalidMark, "\xff\xfe\xfd\xfc"))
	codec := coordinator.NewCodec()
	decode := func(m any) error { return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m) }
	for _, m := range desc.Methods {
		if m.MethodName == method {
			return m.Handler(nil, context.Background(), decode, callHandlerDirectly)
		}
	}
	t.Fatalf("no method %s", method)
	return nil, nil
}

// S4: a string that is not valid UTF-8 is refused with INVALID_ARGUMENT and the path of the field.
func TestInvalidUTF8NamesItsField(t *testing.T) {
	t.Attr("rules", "S4")
	desc := reqcodec.Guard(&lessorv1.TaskService_ServiceDesc, true, nil)
	batch := &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{
		{Queue: "q"},
		{Queue: "q"},
		{Queue: "q", Type: invalidMark},
	}}
	for _, tt := range []struct {
		method, field string
		req           proto.Message
	}{
		{"SubmitTask", "request_id", &lessorv1.SubmitTaskRequest{RequestId: invalidMark}},
		{"SubmitTask", "task.queue", &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: invalidMark}}},
		{"SubmitTask", "task.labels", &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Labels: map[string]string{"k": invalidMark}}}},
		{"SubmitTask", "task.labels", &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Labels: map[string]string{invalidMark: "v"}}}},
		{"BatchSubmitTasks", "tasks[2].type", batch},
		{"ListTasks", "filter.run_id", &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{RunId: invalidMark}}},
		{"GetTask", "task_id", &lessorv1.GetTaskRequest{TaskId: invalidMark}},
	} {
		_, err := callMethod(t, desc, tt.method, tt.req)
		st := status.Convert(err)
		v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations()
		if st.Code() != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != tt.field {
			t.Errorf("%s of %s: %v with %v, want INVALID_ARGUMENT of that field", tt.method, tt.field, err, v)
		}
	}
}

// V1: a report with invalid UTF-8 is REJECTED, so that the worker does not repeat it; a worker
// would repeat a report that got an error (K5). The metrics count the verdict like any other.
func TestInvalidUTF8InReportIsRejected(t *testing.T) {
	t.Attr("rules", "V1")
	wiretest.Serve(t, nil, rejectsInvalidUTF8)
}

func rejectsInvalidUTF8(t *testing.T, r *wiretest.Rig) {
	desc := reqcodec.Guard(&lessorv1.WorkerService_ServiceDesc, false, r.Services.MalformedReports())
	for _, tt := range []struct {
		method, field string
		req           proto.Message
	}{
		{"Start", "worker_id", &lessorv1.StartRequest{WorkerId: invalidMark}},
		{"Heartbeat", "progress.message", &lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Message: invalidMark}}},
		{"Complete", "artifacts[1].type", &lessorv1.CompleteRequest{Artifacts: []*lessorv1.Artifact{{}, {Type: invalidMark}}}},
		{"Fail", "error.message", &lessorv1.FailRequest{Error: &lessorv1.TaskError{Message: invalidMark}}},
		{"Release", "reason", &lessorv1.ReleaseRequest{Reason: invalidMark}},
	} {
		res, err := callMethod(t, desc, tt.method, tt.req)
		v, ok := res.(interface {
			GetVerdict() lessorv1.Verdict
			GetReason() lessorv1.Reason
			GetDetail() string
		})
		if err != nil || !ok || v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED || v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST ||
			!strings.HasPrefix(v.GetDetail(), tt.field+": ") {
			t.Errorf("%s: %v (%v), want REJECTED / INVALID_REQUEST of %s", tt.method, res, err, tt.field)
		}
		r.WantMetric(t, fmt.Sprintf(`lessor_verdicts_total{kind=%q,reason="INVALID_REQUEST",verdict="REJECTED"}`,
			strings.ToLower(tt.method)), 1)
		served := res.(proto.Message).ProtoReflect().New().Interface().(interface {
			proto.Message
			GetVerdict() lessorv1.Verdict
		})
		err = r.Conn.Invoke(t.Context(), "/"+desc.ServiceName+"/"+tt.method, wiretest.RawBytes("\x0a\x01\xff"), served,
			grpc.ForceCodecV2(wiretest.RawBytesCodec{CodecV2: encoding.GetCodecV2(protocodec.Name)}))
		if err != nil || served.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED {
			t.Errorf("%s with an invalid task_id on the wire: %v (%v), want REJECTED", tt.method, served, err)
		}
	}
	if _, err := callMethod(t, desc, "Lease", &lessorv1.LeaseRequest{WorkerId: invalidMark}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Lease: %v, want INVALID_ARGUMENT", err)
	}
}

// S4: a message that cannot be decoded ends its stream with INVALID_ARGUMENT and the path of the
// field. On a SubmitStream, the frame before it is answered.
func TestStreamWithAMessageThatCannotBeDecoded(t *testing.T) {
	t.Attr("rules", "S4")
	const submits, watch, backup, await = lessorv1.TaskService_SubmitStream_FullMethodName,
		lessorv1.TaskService_WatchTask_FullMethodName, lessorv1.AdminService_Backup_FullMethodName,
		lessorv1.TaskService_AwaitTasks_FullMethodName
	for _, tt := range []struct {
		method string
		raw    wiretest.RawBytes
		field  string
	}{
		{submits, wiretest.RawBytes("\x0a\x01\xff"), "request_id"},
		{submits, wiretest.RawBytes("\x12\x03\x12\x01\xff"), "tasks[0].queue"},
		{submits, wiretest.RawBytes("\xff\xff"), "request"},
		{watch, wiretest.RawBytes("\x0a\x01\xff"), "task_id"},
		{watch, wiretest.RawBytes("\xff\xff"), "request"},
		{backup, wiretest.RawBytes("\xff\xff"), "request"},
		{await, wiretest.RawBytes("\x0a\x01\xff"), "add[0]"},
		{await, wiretest.RawBytes("\xff\xff"), "request"},
	} {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			desc := &grpc.StreamDesc{ClientStreams: tt.method == submits, ServerStreams: true}
			stream, err := r.Conn.NewStream(t.Context(), desc, tt.method,
				grpc.ForceCodecV2(wiretest.RawBytesCodec{CodecV2: coordinator.NewCodec()}))
			if err != nil {
				t.Fatal(err)
			}
			if desc.ClientStreams {
				if err := stream.SendMsg(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.SendMsg(tt.raw); err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if desc.ClientStreams {
				if first := new(lessorv1.SubmitStreamResponse); stream.RecvMsg(first) != nil || len(first.GetResults()) != 1 || !first.GetResults()[0].GetCreated() {
					t.Errorf("%s, %q: the frame before it got %v, want a created task", tt.method, tt.raw, first)
				}
			}
			err = stream.RecvMsg(&emptypb.Empty{})
			st := status.Convert(err)
			v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations()
			if st.Code() != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != tt.field {
				t.Errorf("%s, %q: %v with %v, want INVALID_ARGUMENT of %s", tt.method, tt.raw, err, v, tt.field)
			}
		})
	}
}
