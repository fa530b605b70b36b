package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// instantCoordinator is a coordinator without a wire and a codec that commits every report at once.
// It allocates next to nothing itself, so that a benchmark counts the allocations of the worker.
type instantCoordinator struct {
	grpc.ClientStream
	frames      chan *lessorv1.SessionResponse
	verdicts    map[string]*lessorv1.ReportVerdict // by lease
	sent        uint64
	verdictCame chan struct{} // a token for each outcome that has its verdict
	ready       func()        // the worker has registered
	closed      chan struct{} // closed when it has said goodbye
}

// startInstantCoordinator returns an instantCoordinator with a worker that runs as many handlers at
// once as it has slots; they do nothing.
func startInstantCoordinator(tb testing.TB, slots int) *instantCoordinator {
	c := &instantCoordinator{
		frames: make(chan *lessorv1.SessionResponse, 1000), verdicts: make(map[string]*lessorv1.ReportVerdict),
		verdictCame: make(chan struct{}, slots), closed: make(chan struct{}),
	}
	ready := make(chan struct{})
	c.ready = sync.OnceFunc(func() { close(ready) }) // on a busy machine the worker may register a second time
	w, err := worker.New(c, []string{"q"}, worker.Config{
		Name: "w1", Concurrency: slots, Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{OnVerdict: func(*worker.Task, *lessorv1.ReportVerdict) { c.verdictCame <- struct{}{} }},
	})
	if err != nil {
		tb.Fatal(err)
	}
	w.Handle("work", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
	ctx, stop := context.WithCancel(tb.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			tb.Errorf("Run = %v, want nil", err)
		}
	})
	<-ready
	return c
}

// rounds returns dispatches of n tasks each, and prepares their verdicts. It is called before
// allocations are counted.
func (c *instantCoordinator) rounds(count, n int) (rounds []*lessorv1.Dispatch) {
	for i := range count {
		d := &lessorv1.Dispatch{}
		for j := range n {
			a := assignment(fmt.Sprintf("%d-%d", i, j))
			c.verdicts[a.GetLeaseId()] = &lessorv1.ReportVerdict{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Verdict: lessorv1.Verdict_VERDICT_COMMITTED,
				Reason: lessorv1.Reason_REASON_NONE, ExpiresIn: durationpb.New(ttl),
			}
			d.Assignments = append(d.Assignments, a)
		}
		rounds = append(rounds, d)
	}
	return rounds
}

// serve dispatches tasks to the worker and returns when all have the verdicts on their outcomes.
func (c *instantCoordinator) serve(d *lessorv1.Dispatch) {
	c.frames <- &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: d}}
	for range d.GetAssignments() {
		<-c.verdictCame
	}
}

var errNoCalls = errors.New("there are only sessions here")

// Invoke implements grpc.ClientConnInterface.
func (c *instantCoordinator) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errNoCalls
}

// NewStream implements grpc.ClientConnInterface.
func (c *instantCoordinator) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return c, nil
}

// SendMsg receives a frame of the worker and answers it.
func (c *instantCoordinator) SendMsg(m any) error {
	f := m.(*lessorv1.SessionRequest)
	switch p := f.GetPayload().(type) {
	case *lessorv1.SessionRequest_Handshake:
		c.frames <- &lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Accept{
			Accept: &lessorv1.Accept{SessionId: "s", HeartbeatInterval: durationpb.New(interval), NextSeq: 1},
		}}
	case *lessorv1.SessionRequest_Register:
		c.frames <- &lessorv1.SessionResponse{Corr: f.GetId(), Ack: &lessorv1.Ack{For: f.GetId()}}
		c.ready()
	case *lessorv1.SessionRequest_Heartbeat:
		// if the machine is so busy that a dispatch becomes old, the worker asks for its leases
		ack := &lessorv1.HeartbeatAck{}
		for _, b := range p.Heartbeat.GetLeases() {
			ack.Leases = append(ack.Leases, &lessorv1.LeaseAck{
				TaskId: b.GetTaskId(), LeaseId: b.GetLeaseId(), Verdict: lessorv1.Verdict_VERDICT_COMMITTED,
				ExpiresIn: durationpb.New(ttl),
			})
		}
		c.frames <- &lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_HeartbeatAck{HeartbeatAck: ack}}
	case *lessorv1.SessionRequest_Reports:
		reports := p.Reports.GetReports()
		v := &lessorv1.Verdicts{Verdicts: make([]*lessorv1.ReportVerdict, len(reports))}
		for i, r := range reports {
			_, lease, _ := identity(r)
			v.Verdicts[i] = c.verdicts[lease]
		}
		c.frames <- &lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Verdicts{Verdicts: v}}
	}
	return nil
}

// RecvMsg hands the next frame to the worker.
func (c *instantCoordinator) RecvMsg(m any) error {
	select {
	case f := <-c.frames:
		c.sent++
		to := m.(*lessorv1.SessionResponse)
		to.Id, to.Seq, to.Ts, to.Sender = strconv.FormatUint(c.sent, 10), c.sent, timestamppb.Now(), sender
		to.Corr, to.Ack, to.Payload = f.GetCorr(), f.GetAck(), f.GetPayload()
		return nil
	case <-c.closed:
		return io.EOF
	}
}

// CloseSend ends the stream, as the real coordinator does after goodbye.
func (c *instantCoordinator) CloseSend() error {
	close(c.closed)
	return nil
}

// BenchmarkWorker measures the work and the allocations of the worker for a task that does nothing,
// without the wire and the codec.
func BenchmarkWorker(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("dispatch=%d", n), func(b *testing.B) {
			c := startInstantCoordinator(b, n)
			rounds := c.rounds(b.N/n+1, n)
			b.ReportAllocs()
			b.ResetTimer()
			for _, d := range rounds {
				c.serve(d)
			}
			b.StopTimer()
		})
	}
}
