package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// playInstaller plays a worker that installs packages and takes tasks of the queue, until the end of the script. It does not get done with a version that
// begins with "slow", and fails to install one that begins with "bad".
func playInstaller(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: installer NAME QUEUE")
	}
	cl, err := credentials{}.dial(ts.Getenv("LESSOR_ADDR"))
	ts.Check(err)
	ctx, stop := context.WithCancel(context.Background())
	stream, err := lessorv1.NewWorkerServiceClient(cl).Session(ctx)
	ts.Check(err)
	ended := make(chan struct{})
	ts.Defer(func() {
		stop()
		<-ended
		_ = cl.Close()
	})
	var registered atomic.Bool
	go func() {
		defer close(ended)
		answerFrames(stream, &registered)
	}()
	sender := &lessorv1.Sender{Role: "worker", Id: args[0]}
	ts.Check(stream.Send(&lessorv1.SessionRequest{Id: "1", Tenant: "default", Sender: sender, Payload: &lessorv1.SessionRequest_Handshake{
		Handshake: &lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: args[0]}},
	}}))
	ts.Check(stream.Send(&lessorv1.SessionRequest{Id: "2", Ack: &lessorv1.Ack{Request: true}, Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
		Queues: args[1:], InstallsPackages: true, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: 1}},
	}}}))
	for deadline := time.Now().Add(callTimeout); !registered.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("the coordinator does not acknowledge the register frame")
		}
	}
}

// answerFrames acknowledges frames and answers those about packages, until the stream ends.
func answerFrames(stream grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse], registered *atomic.Bool) {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return
		}
		if frame.GetAck().GetFor() == "2" {
			registered.Store(true)
		}
		var event *lessorv1.PkgEvent
		if p := frame.GetPkgInstall(); p != nil {
			event = &lessorv1.PkgEvent{OperationId: p.GetOperationId(), Name: p.GetName(), Version: p.GetVersion(), Status: lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED}
			switch {
			case strings.HasPrefix(p.GetVersion(), "slow"):
				event.Status, event.Detail = lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLING, "half of it"
			case strings.HasPrefix(p.GetVersion(), "bad"):
				event.Status, event.Code, event.Detail = lessorv1.PackageStatus_PACKAGE_STATUS_FAILED, "E.PKG.INVALID", "not that"
			}
		}
		if p := frame.GetPkgUninstall(); p != nil {
			event = &lessorv1.PkgEvent{OperationId: p.GetOperationId(), Name: p.GetName(), Version: p.GetVersion(), Status: lessorv1.PackageStatus_PACKAGE_STATUS_UNINSTALLED}
		}
		answer := &lessorv1.SessionRequest{Id: "for " + frame.GetId()}
		if frame.GetAck().GetRequest() {
			answer.Ack = &lessorv1.Ack{For: frame.GetId()}
		}
		if event != nil {
			answer.Payload = &lessorv1.SessionRequest_PkgEvent{PkgEvent: event}
		}
		if answer.Ack != nil || event != nil {
			_ = stream.Send(answer) // the next Recv tells why it cannot
		}
	}
}
