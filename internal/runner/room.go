package runner

import (
	"context"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// callForRoom is retryWhileAway for a call after which the tenant has more tasks that have not
// ended. noRoom means that the coordinator refused it because the tenant's quota of tasks has no
// room for them: then nobody is away, and tasks have to end first.
func callForRoom(ctx context.Context, call func() error) (noRoom bool, err error) {
	err = retryWhileAway(ctx, func() error {
		err := call()
		if noRoom = detail.NoRoom(err); noRoom {
			return nil
		}
		return err
	})
	return noRoom, err
}

// awaitRoom waits before such a call is made again. The error is ctx's cause.
func awaitRoom(ctx context.Context) error {
	select {
	case <-time.After(maxPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RefuseAtOnce is an interceptor for a connection of which batches are submitted in parts if there
// is no room for the whole, as by a run. The connection repeats what a quota refuses, after a wait
// (see worker.Dial), but there may never be room for several tasks at once while there always is
// for some of them. So a call for several tasks gets the refusal without the wait that goes with
// it.
func RefuseAtOnce(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if !forSeveral(req) || !detail.NoRoom(err) {
		return err
	}
	refused := status.Convert(err).Proto()
	refused.Details = slices.DeleteFunc(refused.GetDetails(),
		func(detail *anypb.Any) bool { return detail.MessageIs(&errdetails.RetryInfo{}) })
	return status.FromProto(refused).Err()
}

// forSeveral reports whether a request is for several tasks.
func forSeveral(req any) bool {
	switch req := req.(type) {
	case *lessorv1.BatchSubmitTasksRequest:
		return len(req.GetTasks()) > 1
	case *lessorv1.BatchRetryTasksRequest:
		return true
	}
	return false
}
