package bench

import (
	"context"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The wire by itself: the same messages over gRPC on the loopback, answered at once by a server
// without tasks. It runs in this process like the load, because both share the processors in any
// case.

type echo struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (echo) SubmitTask(context.Context, *lessorv1.SubmitTaskRequest) (*lessorv1.SubmitTaskResponse, error) {
	return &lessorv1.SubmitTaskResponse{Created: true}, nil
}

func (echo) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		res := &lessorv1.SubmitStreamResponse{Results: make([]*lessorv1.SubmitResult, len(req.GetTasks()))}
		for i := range res.Results {
			res.Results[i] = &lessorv1.SubmitResult{TaskId: "t0000100000000001", Created: true}
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

// wireLimit measures frames and single calls, in tasks per second, and the round trip of one
// message on a stream, in milliseconds.
func (c *Config) wireLimit(ctx context.Context) (samples, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	lessorv1.RegisterTaskServiceServer(server, echo{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	found, err := c.askEcho(ctx, lis.Addr().String())
	server.Stop()
	return found, errors.Join(err, <-served)
}

func (c *Config) askEcho(ctx context.Context, addr string) (samples, error) {
	r, err := c.newRig(&coordinator{grpc: addr})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.conn.Close() }()
	found := samples{}
	type part struct {
		name   string
		submit submitter
		tasks  int
	}
	parts := []part{{"wire_frames", submitBulk, 20 * frameSize}}
	for _, n := range c.Producers {
		parts = append(parts, part{forProducers("wire_unary", n), submitUnary(n), 10 * n})
	}
	for _, part := range parts {
		calls, err := rateOver(ctx, c.LimitSpan, func() error {
			_, err := part.submit(ctx, r, part.tasks)
			return err
		})
		if err != nil {
			return nil, err
		}
		found[part.name] = calls * float64(part.tasks)
	}
	found["wire_round_trip"], err = r.roundTrip(ctx)
	return found, err
}

func (r *rig) roundTrip(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.tasks.SubmitStream(ctx)
	if err != nil {
		return 0, err
	}
	calls, err := rateOver(ctx, r.LimitSpan, func() error {
		if err := stream.Send(r.frame(1)); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	})
	return 1000 / calls, err
}
