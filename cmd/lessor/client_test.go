package main

import (
	"bytes"
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// largeTask serves a task with the largest payload and the largest output that a coordinator can be set to allow.
type largeTask struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (largeTask) GetTask(context.Context, *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	large := bytes.Repeat([]byte("x"), maxPayload)
	return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Spec: &lessorv1.TaskSpec{Payload: large}, Output: large}}, nil
}

// What a coordinator takes in can be read again.
func TestLargestTaskIsRead(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	lessorv1.RegisterTaskServiceServer(server, largeTask{})
	go func() { _ = server.Serve(lis) }()
	defer server.Stop() // waits for Serve
	cl, err := dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close() }()
	got, err := cl.tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: "t1"})
	if err != nil {
		t.Fatal(err)
	}
	if n, m := len(got.GetTask().GetSpec().GetPayload()), len(got.GetTask().GetOutput()); n != maxPayload || m != maxPayload {
		t.Errorf("payload of %d and output of %d bytes, want %d of each", n, m, maxPayload)
	}
}
