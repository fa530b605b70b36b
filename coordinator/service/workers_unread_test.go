package service_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X5, X3, W5: a lease request ends with CANCELLED if its caller leaves while the answer waits
// because of too many unsent answers, and with UNAUTHENTICATED if its credential ends in that time.
// Its task is requeued at once.
func TestLeaseOfACallerThatHasLeft(t *testing.T) {
	t.Attr("rules", "X5 X3 W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for cause, want := range map[error]codes.Code{nil: codes.Canceled, &auth.Error{Problem: auth.Revoked}: codes.Unauthenticated} {
			id := r.Submit(t, nil).GetTaskId()
			conn := sendlimit.Handler{}.TagConn(wiretest.ContextAfterGate(t.Context(), t), nil)
			ctx, cancel := context.WithCancelCause(conn)
			ask := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}
			_, err := wiretest.NoCredential.Unary(ctx, ask, &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Lease_FullMethodName}, func(ctx context.Context, _ any) (any, error) {
				wiretest.LeaveUnread(conn)
				time.AfterFunc(time.Second, func() {
					if state := r.Get(t, id).GetState(); state != lessorv1.TaskState_TASK_STATE_LEASED {
						t.Errorf("the task of the call is %v while the answer waits, want LEASED", state)
					}
					cancel(cause)
				})
				return r.Services.Workers.Lease(ctx, ask)
			})
			if code := status.Code(err); code != want {
				t.Errorf("ended with %v, want %v", err, want)
			}
			synctest.Wait()
			if a := r.Lease(t); a.GetTask().GetTaskId() != id {
				t.Errorf("leased %s, want the task of the call, %s", a.GetTask().GetTaskId(), id)
			}
		}
	})
}
