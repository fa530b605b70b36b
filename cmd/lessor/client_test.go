package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
)

// largeTask serves a task with the largest payload and the largest output that a coordinator can be set to allow.
type largeTask struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (largeTask) GetTask(context.Context, *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	large := bytes.Repeat([]byte("x"), maxPayload)
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

// The client accepts the largest answer that a coordinator can be configured to give, so that each task that was submitted can be read.
func TestLargestTaskIsRead(t *testing.T) {
	cl := dialTo(t, func(s *grpc.Server) { lessorv1.RegisterTaskServiceServer(s, largeTask{}) })
	got, err := cl.tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	if n, m := len(got.GetTask().GetSpec().GetPayload()), len(got.GetTask().GetOutput()); n != maxPayload || m != maxPayload {
		t.Errorf("payload of %d and output of %d bytes, want %d of each", n, m, maxPayload)
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

// If the coordinator is newer than this program, lessor backup refuses the backup before its data arrives, and names the version as the reason, not a
// damaged store.
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
