package coordinator

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// BenchmarkAuth is what it costs to ask for credentials: with each unary call, and once for a stream. One operation is one start of a task that nobody
// has, which is judged and changes nothing.
func BenchmarkAuth(b *testing.B) {
	for _, name := range []string{"open", "token"} {
		var asks *Auth
		if name == "token" {
			asks = &Auth{}
		}
		b.Run("unary/"+name, func(b *testing.B) {
			ctx, workers := benched(b, asks)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := workers.Start(ctx, nobodysStart()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("stream/"+name, func(b *testing.B) {
			ctx, workers := benched(b, asks)
			say, hear := opened(ctx, b, workers)
			b.ReportAllocs()
			for b.Loop() {
				say(&lessorv1.Reports{Reports: []*lessorv1.Report{{Report: &lessorv1.Report_Start{Start: nobodysStart()}}}})
				hear()
			}
		})
	}
}

func nobodysStart() *lessorv1.StartRequest {
	return &lessorv1.StartRequest{TaskId: "t0000200000000001", LeaseId: "none", WorkerId: "w"}
}

// opened is a registered session: what says a frame, and what waits for one.
func opened(ctx context.Context, b *testing.B, workers lessorv1.WorkerServiceClient) (say func(proto.Message), hear func()) {
	b.Helper()
	stream, err := workers.Session(ctx)
	if err != nil {
		b.Fatal(err)
	}
	said := 0
	say = func(payload proto.Message) {
		said++
		m := &lessorv1.SessionRequest{Id: strconv.Itoa(said), Tenant: DefaultTenant, Sender: &lessorv1.Sender{Role: "worker", Id: "w"}}
		setPayload(m, payload)
		if err := stream.Send(m); err != nil {
			b.Fatal(err)
		}
	}
	hear = func() {
		if _, err := stream.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	say(hello("w"))
	hear()
	say(registration(1))
	return say, hear
}

// benched is a coordinator, and the context of a worker that may call it.
func benched(b *testing.B, asks *Auth) (context.Context, lessorv1.WorkerServiceClient) {
	b.Helper()
	co, err := New(memstore.New(), Config{Auth: asks, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- co.Serve(ctx, lis, nil) }()
	conn := dial(b, lis)
	b.Cleanup(func() {
		_ = conn.Close()
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	if asks == nil {
		return ctx, lessorv1.NewWorkerServiceClient(conn)
	}
	token, _, err := co.door.keyring.Create(ctx, auth.Request{Tenant: DefaultTenant, Role: auth.Worker, Subject: "w"}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	return bearing(ctx, token), lessorv1.NewWorkerServiceClient(conn)
}
