package wiretest

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// LeaveUnread makes calls on a connection, and reads none of their answers, until a call has to
// wait for that.
func LeaveUnread(conn context.Context) {
	info := &grpc.UnaryServerInfo{FullMethod: lessorv1.TaskService_GetTask_FullMethodName}
	answer := func(context.Context, any) (any, error) { return &lessorv1.GetTaskResponse{}, nil }
	for err := error(nil); err == nil; {
		ctx, cancel := context.WithTimeout(conn, time.Millisecond)
		_, err = NoCredential.Unary(ctx, nil, info, answer)
		cancel()
	}
}

// NoCredential limits calls that have shown no credential that could end.
var NoCredential = sendlimit.Limiter{UntilEnded: func(ctx context.Context) (context.Context, func()) {
	return ctx, func() {}
}}
