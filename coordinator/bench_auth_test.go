package coordinator_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// BenchmarkAuth measures what credentials cost: they are checked with each unary call, but only
// once for a stream. One operation is one Start of a task that is already started; it is judged and
// renews the lease. (A REJECTED one would be delayed.)
func BenchmarkAuth(b *testing.B) {
	for _, name := range []string{"open", "token"} {
		var rules *gate.Auth
		if name == "token" {
			rules = &gate.Auth{}
		}
		b.Run("unary/"+name, func(b *testing.B) {
			ctx, workers, start := startBenchmark(b, rules)
			b.ReportAllocs()
			for b.Loop() {
				if res, err := workers.Start(ctx, start); err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
					b.Fatal(res, err)
				}
			}
		})
		b.Run("stream/"+name, func(b *testing.B) {
			ctx, workers, start := startBenchmark(b, rules)
			send, receive := openBenchSession(ctx, b, workers)
			b.ReportAllocs()
			for b.Loop() {
				send(&lessorv1.Reports{Reports: []*lessorv1.Report{{Report: &lessorv1.Report_Start{Start: start}}}})
				receive()
			}
		})
	}
}

// openBenchSession opens and registers a session. send sends a frame with a payload, and receive
// waits for a frame.
func openBenchSession(
	ctx context.Context, b *testing.B, workers lessorv1.WorkerServiceClient,
) (send func(proto.Message), receive func()) {
	b.Helper()
	stream, err := workers.Session(ctx)
	if err != nil {
		b.Fatal(err)
	}
	sent := 0
	send = func(payload proto.Message) {
		sent++
		m := &lessorv1.SessionRequest{
			Id: strconv.Itoa(sent), Tenant: gate.DefaultTenant,
			Sender: &lessorv1.Sender{Role: "worker", Id: "w"},
		}
		wiretest.SetPayload(m, payload)
		if err := stream.Send(m); err != nil {
			b.Fatal(err)
		}
	}
	receive = func() {
		if _, err := stream.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	send(wiretest.HandshakeOf("w"))
	receive()
	send(wiretest.Registration(1))
	return send, receive
}

// startBenchmark starts a coordinator. It returns a context for calls of an operator, a client, and
// the Start of a leased task.
func startBenchmark(b *testing.B, rules *gate.Auth) (context.Context, lessorv1.WorkerServiceClient, *lessorv1.StartRequest) {
	b.Helper()
	co, conn := wiretest.StartPlain(b, coordinator.Config{Auth: rules})
	calls := b.Context()
	if rules != nil {
		token, _, err := co.Gate.Keyring().Create(calls,
			auth.Request{Tenant: gate.DefaultTenant, Role: auth.Operator, Subject: "w"}, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		calls = wiretest.WithToken(calls, token)
	}
	workers := lessorv1.NewWorkerServiceClient(conn)
	_, err := lessorv1.NewTaskServiceClient(conn).SubmitTask(calls, &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: "q", HeartbeatTimeout: durationpb.New(time.Hour)},
	})
	if err != nil {
		b.Fatal(err)
	}
	granted, err := workers.Lease(calls, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
	if err != nil || len(granted.GetAssignments()) != 1 {
		b.Fatal(granted, err)
	}
	a := granted.GetAssignments()[0]
	return calls, workers, &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), WorkerId: "w"}
}
