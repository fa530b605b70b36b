package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/runner"
)

// A run submits nothing before the coordinator has accepted its worker: with the credential of
// another tenant, the lines would reach that tenant.
func TestRunSubmitsNothingBeforeItsWorkerIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make(chan string, 100)
		server := grpc.NewServer(
			grpc.UnaryInterceptor(func(_ context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
				switch call := path.Base(info.FullMethod); call {
				case "ListTasks":
					return &lessorv1.ListTasksResponse{}, nil
				case "GetStatus":
					return &lessorv1.GetStatusResponse{}, nil
				default:
					calls <- call
					return nil, status.Error(codes.Internal, "too early")
				}
			}),
			grpc.StreamInterceptor(func(_ any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
				<-stream.Context().Done() // neither accepts nor refuses the worker
				return nil
			}),
		)
		lessorv1.RegisterTaskServiceServer(server, lessorv1.UnimplementedTaskServiceServer{})
		lessorv1.RegisterAdminServiceServer(server, lessorv1.UnimplementedAdminServiceServer{})
		lessorv1.RegisterWorkerServiceServer(server, lessorv1.UnimplementedWorkerServiceServer{})
		lis := bufconn.Listen(1 << 20)
		go func() { _ = server.Serve(lis) }()
		defer server.Stop()
		cl, err := dial("passthrough:///coordinator",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close() }()
		ctx, stop := context.WithCancelCause(t.Context())
		interrupted := &interruptedError{signal: os.Interrupt}
		job, err := runner.Open(ctx, t.TempDir(), runner.Options{}, strings.NewReader("line\n"), false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = job.Close() }()
		run := runCmd{Addr: "coordinator:1", Jobs: 1, DrainTimeout: time.Second, Command: []string{"true"}}
		a := &app{ctx: ctx, stopNow: ctx, streams: streams{out: io.Discard, err: io.Discard}}
		work := newRunWork(run, a, job)
		ended := make(chan error)
		go func() {
			_, err := work.workAndFollow(t.Context(), cl)
			ended <- err
		}()
		synctest.Wait()
		stop(interrupted)
		if err := <-ended; !errors.Is(err, interrupted) {
			t.Errorf("error %v, want %v", err, interrupted)
		}
		close(calls)
		for call := range calls {
			t.Errorf("it has called %s", call)
		}
	})
}
