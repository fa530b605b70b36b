package gate

import (
	"context"
	"errors"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// exempt lists the calls that no quota refuses (X5). Some keep a lease alive or end it: if they
// were refused, the worker would lose its work. The others stop something: a tenant that is flooded
// with its own work must be able to stop it. docs/decisions/0016-quotas.md has the reasons.
var exempt = map[string]bool{
	lessorv1.WorkerService_Start_FullMethodName:     true,
	lessorv1.WorkerService_Heartbeat_FullMethodName: true,
	lessorv1.WorkerService_Complete_FullMethodName:  true,
	lessorv1.WorkerService_Fail_FullMethodName:      true,
	lessorv1.WorkerService_Release_FullMethodName:   true,
	lessorv1.WorkerService_Session_FullMethodName:   true, // see package session

	lessorv1.TaskService_CancelTask_FullMethodName:       true,
	lessorv1.TaskService_BatchCancelTasks_FullMethodName: true,
	lessorv1.AdminService_UpdateQueue_FullMethodName:     true,
	lessorv1.AdminService_DrainWorker_FullMethodName:     true,
	lessorv1.AdminService_KickWorker_FullMethodName:      true,
	lessorv1.AuthService_RevokeToken_FullMethodName:      true,
	lessorv1.AuthService_RotateKey_FullMethodName:        true,
}

// counted lists the long calls, except sessions, with the limits against which each counts while it
// is open.
var counted = map[string][]quota.Limit{
	lessorv1.WorkerService_Lease_FullMethodName:                            {quota.Streams},
	lessorv1.TaskService_SubmitStream_FullMethodName:                       {quota.Streams},
	lessorv1.TaskService_WatchTask_FullMethodName:                          {quota.Streams, quota.Watches},
	lessorv1.TaskService_AwaitTasks_FullMethodName:                         {quota.Streams}, // its tasks count as Waits
	lessorv1.AdminService_FollowStore_FullMethodName:                       {quota.Streams},
	healthv1.Health_Watch_FullMethodName:                                   {quota.Streams},
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {quota.Streams},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {quota.Streams},
}

// count charges a call to the quotas of its caller, or refuses it. end must be called at the end of
// the call.
func (g *Gate) count(ctx context.Context, who Identity, method string) (end func(), err error) {
	switch {
	case exempt[method]:
		return func() {}, nil
	case unguarded[method]: // no rate refuses a health check
		// package preauth bounds those without a credential
		if who, _ = ctx.Value(checkedKey{}).(Identity); who.Tenant == "" {
			return func() {}, nil
		}
	default:
		if err := g.quotas.Spend(who.Caller(), quota.Calls, 1); err != nil {
			return nil, g.delayRefusal(ctx, who, err)
		}
	}
	var leave []func()
	end = func() {
		for _, one := range leave {
			one()
		}
	}
	for _, l := range counted[method] {
		one, err := g.quotas.Enter(who.Caller(), l, false)
		if err != nil {
			end()
			return nil, g.delayRefusal(ctx, who, err)
		}
		leave = append(leave, one)
	}
	return end, nil
}

// delayRefusal delays the refusal of a call if its caller gets many refusals. Without the delay, a
// caller that ignores the wait in a refusal would cost more than a caller that is served.
// delayRefusal returns the refusal, with the wait shortened by the delay.
func (g *Gate) delayRefusal(ctx context.Context, who Identity, err error) error {
	held := g.refusals.Answer(ctx, who.Caller())
	if over, ok := errors.AsType[*quota.Error](err); ok && held > 0 {
		left := *over
		left.Wait = max(over.Wait-held, time.Millisecond)
		return &left
	}
	return err
}
