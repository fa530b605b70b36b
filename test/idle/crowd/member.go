package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

const (
	// patience is how long opening all of them may take.
	patience = 2 * time.Minute
	// buffer is the size of gRPC's buffers. It is small because there are many of them.
	buffer = 1 << 10
)

// member is one worker with its own connection.
type member struct {
	name   string
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	sent   int
}

// open connects, and sends handshake and register.
func (m *member) open(ctx context.Context, addr string) (err error) {
	m.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, m.close)() // what is still under way then fails
	m.stream, err = lessorv1.NewWorkerServiceClient(m.conn).Session(context.WithoutCancel(ctx), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	err = m.ask(&lessorv1.SessionRequest{
		Tenant: "default", Sender: &lessorv1.Sender{Role: "worker", Id: m.name},
		Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
			Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: m.name, InstanceId: "1"},
		}},
	})
	if err != nil {
		return err
	}
	return m.ask(&lessorv1.SessionRequest{
		Ack: &lessorv1.Ack{Request: true},
		Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
			Queues:       []string{"idle"},
			Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: 1}},
		}},
	})
}

// beat sends n heartbeats, one after the other.
func (m *member) beat(n int) error {
	for range n {
		err := m.ask(&lessorv1.SessionRequest{
			Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{Healthy: true}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ask sends a frame and waits for one answer; a refusal is an error.
func (m *member) ask(f *lessorv1.SessionRequest) error {
	m.sent++
	f.Id = strconv.Itoa(m.sent)
	if err := m.stream.Send(f); err != nil {
		_, err = m.stream.Recv() // Recv has the reason
		return err
	}
	got, err := m.stream.Recv()
	if err != nil {
		return err
	}
	if got.GetError() != nil || got.GetReset_() != nil {
		return fmt.Errorf("the coordinator refuses: %v", got)
	}
	return nil
}

func (m *member) close() { _ = m.conn.Close() }
