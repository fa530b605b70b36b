package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/unread"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X5, X3, W5: a lease request ends with CANCELLED if its caller leaves while the answer waits because of too many unsent answers, and with UNAUTHENTICATED
// if its credential ends in that time. Its task is requeued at once.
func TestLeaseOfACallerThatHasLeft(t *testing.T) {
	t.Attr("rules", "X5 X3 W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		workers := &workerService{edge: &edge{engine: r.engine, cfg: r.cfg, stopping: t.Context()}}
		for cause, want := range map[error]codes.Code{nil: codes.Canceled, &auth.Error{Problem: auth.Revoked}: codes.Unauthenticated} {
			id := r.submit(t, nil).GetTaskId()
			conn := unread.Handler{}.TagConn(contextAfterGate(t.Context(), t), nil)
			ctx, cancel := context.WithCancelCause(conn)
			ask := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}
			_, err := noCredential.Unary(ctx, ask, &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Lease_FullMethodName}, func(ctx context.Context, _ any) (any, error) {
				leaveUnread(conn)
				time.AfterFunc(time.Second, func() {
					if state := r.get(t, id).GetState(); state != lessorv1.TaskState_TASK_STATE_LEASED {
						t.Errorf("the task of the call is %v while the answer waits, want LEASED", state)
					}
					cancel(cause)
				})
				return workers.Lease(ctx, ask)
			})
			if code := status.Code(err); code != want {
				t.Errorf("ended with %v, want %v", err, want)
			}
			synctest.Wait()
			if a := r.lease(t); a.GetTask().GetTaskId() != id {
				t.Errorf("leased %s, want the task of the call, %s", a.GetTask().GetTaskId(), id)
			}
		}
	})
}
