package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/producer"
)

const (
	frameSize   = 500 // tasks of a bulk frame
	bulkStreams = 2
	frameWindow = 4 // frames of a stream that may be unanswered
)

// submitter submits n tasks and returns how many were acknowledged as new.
type submitter func(ctx context.Context, r *rig, n int) (acknowledged int, err error)

// submitBulk sends whole frames.
func submitBulk(ctx context.Context, r *rig, n int) (int, error) {
	var acknowledged atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range bulkStreams {
		group.Go(func() error { return r.submitFrames(ctx, share(n, i), &acknowledged) })
	}
	err := group.Wait()
	return int(acknowledged.Load()), err
}

// share returns how many of n tasks go over stream i.
func share(n, i int) int { return (n + bulkStreams - 1 - i) / bulkStreams }

// submitFrames sends n tasks over one stream.
func (r *rig) submitFrames(ctx context.Context, n int, acknowledged *atomic.Int64) error {
	group, ctx := errgroup.WithContext(ctx)
	stream, err := r.tasks.SubmitStream(ctx)
	if err != nil {
		return err
	}
	window := make(chan struct{}, frameWindow)
	group.Go(func() error {
		for ; n > 0; n -= frameSize {
			select {
			case window <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := stream.Send(r.frame(min(n, frameSize))); err != nil {
				return nil //nolint:nilerr // Recv has the reason
			}
		}
		return stream.CloseSend()
	})
	group.Go(func() error {
		for {
			res, err := stream.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			<-window
			for _, result := range res.GetResults() {
				if err := refusal(result); err != nil {
					return err
				}
			}
			acknowledged.Add(int64(len(res.GetResults())))
		}
	})
	return group.Wait()
}

func (r *rig) frame(n int) *lessorv1.SubmitStreamRequest {
	req := &lessorv1.SubmitStreamRequest{Tasks: make([]*lessorv1.TaskSpec, n)}
	for i := range req.Tasks {
		req.Tasks[i] = r.spec()
	}
	return req
}

// refusal returns the error of a spec that made no new task.
func refusal(result *lessorv1.SubmitResult) error {
	switch {
	case result.GetError() != nil:
		return fmt.Errorf("a task was refused: %s", result.GetError().GetMessage())
	case !result.GetCreated():
		return errors.New("the coordinator returned an existing task instead of a new one")
	}
	return nil
}

// submitShared calls Submit of the producer client from that many goroutines, which share its
// frames.
func submitShared(goroutines int) submitter {
	return func(ctx context.Context, r *rig, n int) (int, error) {
		client := producer.New(r.conn)
		defer func() { _ = client.Close() }()
		return spread(ctx, goroutines, n, func(ctx context.Context) error {
			result, err := client.Submit(ctx, r.spec())
			if err != nil {
				return err
			}
			return refusal(result)
		})
	}
}

// submitUnary makes one SubmitTask call for each task, from that many goroutines.
func submitUnary(goroutines int) submitter {
	return func(ctx context.Context, r *rig, n int) (int, error) {
		return spread(ctx, goroutines, n, func(ctx context.Context) error {
			res, err := r.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: r.spec()})
			if err != nil {
				return err
			}
			return refusal(&lessorv1.SubmitResult{Created: res.GetCreated()})
		})
	}
}

// spread calls one n times in all, from that many goroutines, and returns how many calls succeeded.
// The first error stops it.
func spread(ctx context.Context, goroutines, n int, one func(context.Context) error) (int, error) {
	var next, succeeded atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(goroutines, n) {
		group.Go(func() error {
			for next.Add(1) <= int64(n) {
				if err := one(ctx); err != nil {
					return err
				}
				succeeded.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return int(succeeded.Load()), err
}
