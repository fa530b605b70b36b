package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
)

// largeTask serves a task with the largest payload and the largest output that a coordinator can be
// set to allow.
type largeTask struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (largeTask) GetTask(context.Context, *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	large := bytes.Repeat([]byte("x"), maxInline)
	return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Spec: &lessorv1.TaskSpec{Payload: large}, Output: large}}, nil
}

// dialTo returns a client of a gRPC server with the services that register adds.
func dialTo(t *testing.T, register func(*grpc.Server)) *client {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop) // waits for Serve
	cl, err := dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// The client accepts the largest answer that a coordinator can be configured to give, so that each
// task that was submitted can be read.
func TestLargestTaskIsRead(t *testing.T) {
	cl := dialTo(t, func(s *grpc.Server) { lessorv1.RegisterTaskServiceServer(s, largeTask{}) })
	got, err := cl.tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	if n, m := len(got.GetTask().GetSpec().GetPayload()), len(got.GetTask().GetOutput()); n != maxInline || m != maxInline {
		t.Errorf("payload of %d and output of %d bytes, want %d of each", n, m, maxInline)
	}
}

// newerBackup serves the backup of a store with a format that this version of Lessor does not know.
type newerBackup struct {
	lessorv1.UnimplementedAdminServiceServer
}

func (newerBackup) Backup(_ *lessorv1.BackupRequest, stream grpc.ServerStreamingServer[lessorv1.BackupResponse]) error {
	begin := &lessorv1.BackupBegin{Format: store.Current().Format() + 1}
	if err := stream.Send(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_Begin{Begin: begin}}); err != nil {
		return err
	}
	return stream.Send(&lessorv1.BackupResponse{Part: &lessorv1.BackupResponse_Data{Data: []byte("pages")}})
}

// If the coordinator is newer than this program, lessor backup refuses the backup before its data
// arrives, and names the version as the reason, not a damaged store.
func TestBackupOfANewerStore(t *testing.T) {
	cl := dialTo(t, func(s *grpc.Server) { lessorv1.RegisterAdminServiceServer(s, newerBackup{}) })
	var file, stderr bytes.Buffer
	code := report(streams{err: &stderr}, receive(t.Context(), cl.admin, &file, &backupInfo{}))
	format := store.Current().Format()
	want := fmt.Sprintf("error: the store has format %d, but this version of Lessor reads only formats up to %d: use a newer version\n"+
		"hint: use the coordinator's version of lessor; \"lessor status\" shows it\n", format+1, format)
	if code != exitCannotStart || stderr.String() != want || file.Len() > 0 {
		t.Errorf("exit code %d, %d bytes, said %s\nwant 5, none, and %s", code, file.Len(), &stderr, want)
	}
}

// fullFor refuses submits because the disk is full, or because it stops, and asks to repeat them
// after wait, until refusals are used up.
type fullFor struct {
	lessorv1.UnimplementedTaskServiceServer
	refusals int
	wait     time.Duration
	stops    bool
}

func (s *fullFor) SubmitTask(context.Context, *lessorv1.SubmitTaskRequest) (*lessorv1.SubmitTaskResponse, error) {
	if s.refusals == 0 {
		return &lessorv1.SubmitTaskResponse{Task: &lessorv1.Task{TaskId: "t1"}}, nil
	}
	s.refusals--
	if s.stops {
		return nil, refusal.Status(engine.ErrStopped)
	}
	refused, err := status.New(codes.ResourceExhausted, "the disk is full").WithDetails(
		&errdetails.ErrorInfo{Reason: "STORE_DISK_FULL", Domain: "lessor"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(s.wait)})
	if err != nil {
		return nil, err
	}
	return nil, refused.Err()
}

// A call that is repeated because the coordinator asks for it says so once, with the cause. It says
// nothing if the wait is short, or if it is too long for the call, whose error then says
// everything.
func TestWaitsAreNoted(t *testing.T) {
	for _, c := range []struct {
		server *fullFor
		code   codes.Code
		want   string
	}{
		{&fullFor{refusals: 3, wait: 5 * time.Second}, codes.OK, "waiting up to 30s: the disk is full\n"},
		{&fullFor{refusals: 100, wait: 5 * time.Second}, codes.ResourceExhausted, "waiting up to 30s: the disk is full\n"},
		{&fullFor{refusals: 3, wait: 999 * time.Millisecond}, codes.OK, ""},
		{&fullFor{refusals: 1, wait: time.Minute}, codes.ResourceExhausted, ""},
		{&fullFor{refusals: 1, stops: true}, codes.OK, "waiting up to 30s: the coordinator is unavailable: the coordinator is stopping\n"},
		{&fullFor{}, codes.OK, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			lis, server := bufconn.Listen(1<<20), grpc.NewServer()
			lessorv1.RegisterTaskServiceServer(server, c.server)
			go func() { _ = server.Serve(lis) }()
			defer server.Stop()
			var stderr bytes.Buffer
			a := &app{streams: streams{err: &stderr}}
			cl, err := dial("passthrough:///coordinator", grpc.WithChainUnaryInterceptor(a.noteWait()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cl.Close() }()
			_, err = cl.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{})
			if status.Code(err) != c.code || stderr.String() != c.want {
				t.Errorf("%v; the command said %q, want %v and %q", err, &stderr, c.code, c.want)
			}
		})
	}
}

// A call has the time that it asks the coordinator to wait in addition to its own.
func TestTimeoutOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, req := range map[time.Duration]any{
			callTimeout:               &lessorv1.GetStatusRequest{},
			callTimeout + time.Minute: &lessorv1.UninstallPackageRequest{Wait: durationpb.New(time.Minute)},
		} {
			_ = withTimeout(t.Context(), "m", req, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if end, _ := ctx.Deadline(); time.Until(end) != want {
					t.Errorf("%T ends after %v, want %v", req, time.Until(end), want)
				}
				return nil
			})
		}
	})
}

// A wrong address is refused with what is wrong about it.
func TestAddressIsChecked(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7420":   "",
		"127.0.0.1:0":      "",
		":65535":           "",
		"[::1]:http":       "",
		"nowhere":          `--listen: "nowhere" is not HOST:PORT`,
		"127.0.0.1:":       `--listen: "127.0.0.1:" is not HOST:PORT`,
		":65536":           `--listen: the port of ":65536" is out of range; ports are 0 to 65535`,
		"[::1]:-1":         `--listen: the port of "[::1]:-1" is out of range; ports are 0 to 65535`,
		":99999999999999":  `--listen: the port of ":99999999999999" is out of range; ports are 0 to 65535`,
		"localhost:8o8o":   `--listen: the port of "localhost:8o8o" is neither a number nor the name of a service`,
		"localhost:80x":    `--listen: the port of "localhost:80x" is neither a number nor the name of a service`,
		"http://[::1]:123": `--listen: "http://[::1]:123" is not HOST:PORT`,
	} {
		got := ""
		if err := checkHostPort("listen", addr); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", addr, got, want)
		}
	}
}

// A coordinator that comes to the deadline of a call before its client does resets the call: the
// user reads that there was no answer in time, and of a cut only if the call was cut before.
func TestResetAtTheDeadlineIsNoCut(t *testing.T) {
	for after, want := range map[time.Duration]codes.Code{callTimeout - 50*time.Millisecond: codes.DeadlineExceeded, callTimeout / 2: codes.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			err := withTimeout(t.Context(), "m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				time.Sleep(after)
				return status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
			})
			if status.Code(err) != want {
				t.Errorf("a reset after %v: %v, want %v", after, err, want)
			}
		})
	}
}
