package producer_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
)

// withQuota runs a test with a coordinator that has these quotas for the tenant, in a bubble of
// fake time.
func withQuota(t *testing.T, l quota.Limits, test func(t *testing.T, conn *grpc.ClientConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		co, err := coordinator.New(memstore.New(),
			coordinator.Config{Logger: slog.New(slog.DiscardHandler), Quotas: quota.Config{Tenant: l}})
		if err != nil {
			t.Fatal(err)
		}
		lis := bufconn.Listen(1 << 20)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- co.Serve(ctx, lis, nil) }()
		conn, err := worker.Dial("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		test(t, conn)
		_ = conn.Close()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// X5: if the quota refuses specs with a wait, the client sends them again after that wait. The
// calls of many goroutines all succeed, no faster than the quota allows, and each task is made
// once.
func TestSubmitWaitsForTheQuota(t *testing.T) {
	t.Attr("rules", "X5")
	withQuota(t, quota.Limits{Submits: quota.Rate{PerSecond: 100}}, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		begin := time.Now()
		for range 4 {
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if took := time.Since(begin); took < 2*time.Second {
			t.Errorf("400 tasks took %v, want at least 2s with a quota of 100 a second", took)
		}
		q, err := lessorv1.NewAdminServiceClient(conn).GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"})
		if err != nil || q.GetQueue().GetReady() != 400 {
			t.Errorf("GetQueue = %v, %v; want 400 ready tasks", q, err)
		}
	})
}

// X5: if the wait of a refusal is longer than the context of the call allows, Submit returns the
// refusal at once, with the wait and the limit. A call that waits when the client is closed fails
// at once with CANCELLED.
func TestSubmitDoesNotWaitPastItsDeadline(t *testing.T) {
	t.Attr("rules", "X5")
	withQuota(t, quota.Limits{Submits: quota.Rate{PerSecond: 1.0 / 60}}, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		submit := func(ctx context.Context) error {
			_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q"})
			return err
		}
		if err := submit(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		st := status.Convert(submit(ctx))
		wait := detail.Of[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration()
		if st.Code() != codes.ResourceExhausted || wait != time.Minute || time.Since(begin) != 0 {
			t.Errorf("Submit = %v after %v, want RESOURCE_EXHAUSTED with a wait of 1m at once", st, time.Since(begin))
		}
		about := detail.Of[*errdetails.ErrorInfo](st).GetMetadata()
		if about["limit"] != "submits" || about["of"] != "tenant" || about["value"] == "" {
			t.Errorf("the metadata of the refusal is %v, want the limit submits of the tenant, and its value", about)
		}
		waiting := make(chan error)
		go func() { waiting <- submit(t.Context()) }()
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if code := status.Code(<-waiting); code != codes.Canceled || time.Since(begin) != 0 {
			t.Errorf("Submit = %v after %v, want CANCELLED at once", code, time.Since(begin))
		}
	})
}

// X5: while a quota has no room, a call waits for as long as its context has time, and at most ten
// times if that has no deadline.
func TestSubmitWaitsForRoomUntilItsDeadline(t *testing.T) {
	t.Attr("rules", "X5")
	withQuota(t, quota.Limits{Tasks: 1}, func(t *testing.T, conn *grpc.ClientConn) {
		p, tasks := producer.New(conn), lessorv1.NewTaskServiceClient(conn)
		defer func() { _ = p.Close() }()
		first, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); status.Code(err) != codes.ResourceExhausted || time.Since(begin) > time.Minute {
			t.Errorf("without a deadline: Submit = %v after %v, want RESOURCE_EXHAUSTED within a minute", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		time.AfterFunc(8*time.Minute, func() {
			if _, err := tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: first.GetTaskId()}); err != nil {
				t.Error(err)
			}
		})
		if _, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q"}); err != nil {
			t.Errorf("with a deadline after there is room: %v", err)
		}
	})
}

// X5: if the quota refuses the client's stream, the client opens it later. Here the only stream of
// the tenant becomes free after 5 s.
func TestRefusedStreamIsOpenedLater(t *testing.T) {
	t.Attr("rules", "X5")
	withQuota(t, quota.Limits{Streams: 1}, func(t *testing.T, conn *grpc.ClientConn) {
		first, second := producer.New(conn), producer.New(conn)
		defer func() { _ = second.Close() }()
		if _, err := first.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Second, func() { _ = first.Close() })
		if _, err := second.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
			t.Error(err)
		}
	})
}
