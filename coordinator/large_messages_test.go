package coordinator_test

import (
	"bytes"
	"context"
	"net"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// emptyEntries returns a list of empty messages, as the field with this number.
func emptyEntries(number protowire.Number, n int) []byte {
	return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), nil), n)
}

// X5: nobody can make the coordinator allocate much more than the size of a message. An empty entry
// of a list has two bytes, and would take hundreds when it is decoded, or tens if it is a string.
// Without a valid credential, a large message is not decoded at all; with one, it is refused for
// the number of its entries.
func TestMessagesOfManyEmptyEntries(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, "acme", auth.Operator)
		expired, _ := r.IssueFor(t, "acme", auth.Operator, time.Second)
		time.Sleep(time.Second)
		tasks := wiretest.RawBytes(emptyEntries(1, 512<<10))
		trace := (&lessorv1.TaskSpec{}).ProtoReflect().Descriptor().Fields().ByName("trace_meta").Number()
		names := emptyEntries((&lessorv1.TraceMeta{}).ProtoReflect().Descriptor().Fields().ByName("middleware_chain").Number(), 2<<20-64)
		task := protowire.AppendBytes(protowire.AppendTag(nil, trace, protowire.BytesType), names)
		for who, tt := range map[string]struct {
			ctx     context.Context
			message wiretest.RawBytes
			want    codes.Code
		}{
			"without a credential":             {t.Context(), tasks, codes.Unauthenticated},
			"with an expired token":            {wiretest.WithToken(t.Context(), expired), tasks, codes.Unauthenticated},
			"with a valid credential":          {wiretest.WithToken(t.Context(), token), tasks, codes.InvalidArgument},
			"strings, with a valid credential": {wiretest.WithToken(t.Context(), token), protowire.AppendBytes([]byte{0x0a}, task), codes.InvalidArgument},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := r.Conn.Invoke(tt.ctx, lessorv1.TaskService_BatchSubmitTasks_FullMethodName, tt.message,
				&emptypb.Empty{}, grpc.ForceCodecV2(wiretest.RawBytesCodec{CodecV2: coordinator.NewCodec()}))
			runtime.ReadMemStats(&after)
			if status.Code(err) != tt.want {
				t.Errorf("%s: %v, want %v", who, err, tt.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
				t.Errorf("%s: the call allocated %d MiB, want at most 32", who, used>>20)
			}
		}
	})
}

// S7, V1: a message with too many entries is refused like any other bad message: a call with
// INVALID_ARGUMENT, a report with the verdict REJECTED, and a frame with an error frame, after
// which the session goes on.
func TestTooManyEntriesAreRefused(t *testing.T) {
	t.Attr("rules", "S7 V1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		raw := grpc.ForceCodecV2(wiretest.RawBytesCodec{CodecV2: coordinator.NewCodec()})
		err := r.Conn.Invoke(t.Context(), lessorv1.TaskService_BatchSubmitTasks_FullMethodName,
			wiretest.RawBytes(emptyEntries(1, reqcodec.MaxEntries+1)), &emptypb.Empty{}, raw)
		wiretest.WantContains(t, "a batch", err.Error(), "request: has 100001 entries in its lists; the limit is 100000")
		var told lessorv1.CompleteResponse
		artifacts := (&lessorv1.CompleteRequest{}).ProtoReflect().Descriptor().Fields().ByName("artifacts").Number()
		err = r.Conn.Invoke(t.Context(), lessorv1.WorkerService_Complete_FullMethodName,
			wiretest.RawBytes(emptyEntries(artifacts, reqcodec.MaxEntries+1)), &told, raw)
		if err != nil || told.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED || told.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
			t.Errorf("a report: %v (%v), want REJECTED for INVALID_REQUEST", &told, err)
		}
		worker := r.OpenSession(t, "w", 1)
		fields := (&lessorv1.SessionRequest{}).ProtoReflect().Descriptor().Fields()
		frame := protowire.AppendTag(nil, fields.ByName("reports").Number(), protowire.BytesType)
		if err := worker.Stream.SendMsg(wiretest.RawBytes(protowire.AppendBytes(frame, emptyEntries(1, reqcodec.MaxEntries+1)))); err != nil {
			t.Fatal(err)
		}
		worker.WantError("", refusal.CodeInvalid, "has 100001 entries in its lists")
		worker.Heartbeat()
	})
}

// X5: health checks need no credential, and a watch keeps its request for as long as it lasts. So a
// request for another service than ours must be short.
func TestLongHealthChecksAreRefused(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const most = 4 << 10 // bytes, of which 3 are not the name's
		for size, want := range map[int]codes.Code{most - 3: codes.NotFound, most: codes.Internal} {
			request := &healthv1.HealthCheckRequest{Service: wiretest.Text(size)}
			if _, err := r.Health.Check(t.Context(), request); status.Code(err) != want {
				t.Errorf("a check of a service with a name of %d bytes: %v, want %v", size, err, want)
			}
			watch, err := r.Health.Watch(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			// the answer to a short one is that the service is not known
			if _, err := watch.Recv(); (err == nil) != (want == codes.NotFound) {
				t.Errorf("a watch of a service with a name of %d bytes: %v", size, err)
			}
		}
	})
}

// S7: a message is refused only if it has more entries than the limit. No batch of the default size
// has.
func TestManyEntriesAreRead(t *testing.T) {
	t.Attr("rules", "S7")
	largest := &lessorv1.TaskSpec{
		Requirements: &lessorv1.Requirements{
			Runtimes: make([]string, lease.MaxRequired),
			Features: make([]string, lease.MaxRequired),
		},
		TraceMeta: &lessorv1.TraceMeta{MiddlewareChain: make([]string, lease.MaxMiddlewares)},
	}
	for range lease.MaxResourceRefs {
		largest.ResourceRefs = append(largest.ResourceRefs, &lessorv1.ResourceRef{})
	}
	batch, err := proto.Marshal(&lessorv1.BatchSubmitTasksRequest{Tasks: slices.Repeat([]*lessorv1.TaskSpec{largest}, lease.DefaultLimits().Batch)})
	if err != nil {
		t.Fatal(err)
	}
	if err := coordinator.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(batch)}, &lessorv1.BatchSubmitTasksRequest{}); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	var m lessorv1.BatchSubmitTasksRequest
	data := mem.BufferSlice{mem.SliceBuffer(emptyEntries(1, reqcodec.MaxEntries)), mem.SliceBuffer("\x12\x01r")}
	if err := coordinator.NewCodec().Unmarshal(data, &m); err != nil || len(m.GetTasks()) != reqcodec.MaxEntries || m.GetRequestId() != "r" {
		t.Errorf("error %v, %d tasks, request_id %q, want %d tasks and r",
			err, len(m.GetTasks()), m.GetRequestId(), reqcodec.MaxEntries)
	}
}

// K5: if the gate lets in a call whose message was not read or not decoded, the caller is asked to
// repeat it. A report must not be REJECTED then. Without a valid credential, a message is read only
// if the audit gets something of it, and decoded only if it is short (X5).
func TestCallThatWasNotDecoded(t *testing.T) {
	t.Attr("rules", "K5 X5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		expired, _ := r.IssueFor(t, "acme", auth.Operator, time.Second)
		time.Sleep(time.Second)
		const short = 4 << 10
		const report, audited = lessorv1.WorkerService_Complete_FullMethodName, lessorv1.TaskService_CancelTask_FullMethodName
		for _, tt := range []struct {
			token, method string
			size          int
			read, decoded bool
		}{
			{"", report, 3, false, false},
			{"", audited, 3, false, false},
			{expired, report, 3, false, false},
			{expired, audited, short, true, true},
			{expired, audited, short + 1, true, false},
		} {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}})
			if tt.token != "" {
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+tt.token))
			}
			ctx, err := preauth.NewCallLimiter(r.Gate, 1).Tap(ctx, &tap.Info{FullMethodName: tt.method})
			if err != nil {
				t.Fatal(err)
			}
			codec, read, handled := coordinator.NewCodec(), false, false
			unmarshal := func(m any) error {
				read = true
				return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(protowire.AppendBytes([]byte{0x7a}, make([]byte, max(tt.size-3, 1))))}, m)
			}
			handler := func(_ any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
				var m lessorv1.CompleteRequest
				if err := decode(&m); err != nil {
					return nil, err
				}
				return chain(ctx, &m, nil, func(context.Context, any) (any, error) { handled = true; return nil, nil })
			}
			service, method := path.Split(tt.method)
			desc := &grpc.ServiceDesc{
				ServiceName: strings.Trim(service, "/"),
				Methods:     []grpc.MethodDesc{{MethodName: method, Handler: handler}},
			}
			_, err = reqcodec.Guard(desc, false, nil).Methods[0].Handler(nil, ctx, unmarshal, callHandlerDirectly)
			if read != tt.read || handled != tt.decoded || !tt.decoded && status.Code(err) != codes.Unavailable {
				t.Errorf("%+v: read %t, handled %t, %v", tt, read, handled, err)
			}
		}
	})
}
