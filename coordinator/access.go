package coordinator

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Sets of roles that several rules share. An operator may do everything within the tenant.
const (
	working   = auth.Worker | auth.Operator
	producing = auth.Producer | auth.Operator
	looking   = auth.Producer | auth.Viewer | auth.Operator
	watching  = auth.Viewer | auth.Operator
	operating = auth.Operator
)

// access is who may make each call (X2); docs/security.md shows it. A call that is not here is nobody's.
var access = map[string]auth.Role{
	lessorv1.WorkerService_Lease_FullMethodName:     working,
	lessorv1.WorkerService_Start_FullMethodName:     working,
	lessorv1.WorkerService_Heartbeat_FullMethodName: working,
	lessorv1.WorkerService_Complete_FullMethodName:  working,
	lessorv1.WorkerService_Fail_FullMethodName:      working,
	lessorv1.WorkerService_Release_FullMethodName:   working,
	lessorv1.WorkerService_Session_FullMethodName:   working,

	lessorv1.TaskService_SubmitTask_FullMethodName:       producing,
	lessorv1.TaskService_BatchSubmitTasks_FullMethodName: producing,
	lessorv1.TaskService_SubmitStream_FullMethodName:     producing,
	lessorv1.TaskService_CancelTask_FullMethodName:       producing,
	lessorv1.TaskService_RetryTask_FullMethodName:        producing,
	lessorv1.TaskService_BatchCancelTasks_FullMethodName: producing,
	lessorv1.TaskService_BatchRetryTasks_FullMethodName:  producing,
	lessorv1.TaskService_GetTask_FullMethodName:          looking,
	lessorv1.TaskService_ListTasks_FullMethodName:        looking,
	lessorv1.TaskService_WatchTask_FullMethodName:        looking,
	lessorv1.TaskService_ExplainTask_FullMethodName:      looking,
	lessorv1.TaskService_DeleteTask_FullMethodName:       operating,
	lessorv1.TaskService_BatchDeleteTasks_FullMethodName: operating,
	lessorv1.TaskService_AdoptResult_FullMethodName:      operating,

	lessorv1.AdminService_ListQueues_FullMethodName:      watching,
	lessorv1.AdminService_GetQueue_FullMethodName:        watching,
	lessorv1.AdminService_ListWorkers_FullMethodName:     watching,
	lessorv1.AdminService_GetWorker_FullMethodName:       watching,
	lessorv1.AdminService_UpdateQueue_FullMethodName:     operating,
	lessorv1.AdminService_PurgeQueue_FullMethodName:      operating,
	lessorv1.AdminService_DrainWorker_FullMethodName:     operating,
	lessorv1.AdminService_KickWorker_FullMethodName:      operating,
	lessorv1.AdminService_ListAuditEvents_FullMethodName: operating,
	lessorv1.AdminService_Backup_FullMethodName:          operating, // of the owner alone: see admit
	lessorv1.AdminService_GetStatus_FullMethodName:       auth.Everybody,

	lessorv1.AuthService_CreateToken_FullMethodName: operating,
	lessorv1.AuthService_ListTokens_FullMethodName:  operating,
	lessorv1.AuthService_RevokeToken_FullMethodName: operating,
	lessorv1.AuthService_RotateKey_FullMethodName:   operating,
	lessorv1.AuthService_ListKeys_FullMethodName:    operating,

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      auth.Everybody,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: auth.Everybody,
}

// unguarded are the calls that need no credential: those who ask whether a coordinator lives have none, and the answer is one word.
var unguarded = map[string]bool{
	healthv1.Health_Check_FullMethodName: true,
	healthv1.Health_List_FullMethodName:  true,
	healthv1.Health_Watch_FullMethodName: true,
}

// AsksNone reports whether a call needs no credential; see porch.Gate.
func (*authenticator) AsksNone(method string) bool { return unguarded[method] }

// routeRule is who may ask for a route of the HTTP API. The zero rule is for nobody.
type routeRule struct {
	call     string // who may make this call, which is what the route does
	holder   bool   // who shows the task token of an attempt (H1)
	everyone bool
}

// routeAccess is who may ask for each route of the HTTP API (X2).
var routeAccess = map[string]routeRule{
	"POST /v1/tasks/{task_id}/started":   {holder: true},
	"POST /v1/tasks/{task_id}/heartbeat": {holder: true},
	"POST /v1/tasks/{task_id}/completed": {holder: true},
	"POST /v1/leases":                    {call: lessorv1.WorkerService_Lease_FullMethodName},
	"POST /v1/tasks":                     {call: lessorv1.TaskService_SubmitTask_FullMethodName},
	"GET /v1/tasks/{task_id}":            {call: lessorv1.TaskService_GetTask_FullMethodName},
	"POST /v1/tasks/{task_id}:cancel":    {call: lessorv1.TaskService_CancelTask_FullMethodName},
	"GET /v1/tasks/{task_id}/events":     {call: lessorv1.TaskService_WatchTask_FullMethodName},
	"GET /openapi.json":                  {everyone: true},
}

// admit lets a call in, or says why not. The context that it returns knows who calls.
func (a *authenticator) admit(ctx context.Context, method string) (context.Context, identity, error) {
	if unguarded[method] {
		return ctx, identity{}, nil
	}
	if a.open() && strings.HasPrefix(method, "/"+lessorv1.AuthService_ServiceDesc.ServiceName+"/") {
		return nil, identity{}, refusal.Status(refusal.ErrOpen)
	}
	who, err := a.whose(ctx)
	if err != nil {
		return nil, who, a.attempts.Failed(ctx, err)
	}
	note(ctx, "tenant", who.Tenant, "subject", who.Subject)
	if asks := access[method]; !who.Role.Has(asks) {
		return nil, who, refusal.Status(&refusal.RoleError{What: path.Base(method), Has: who.Role, Asks: asks})
	}
	if method == lessorv1.AdminService_Backup_FullMethodName && who.Tenant != a.owner {
		return nil, who, refusal.Status(refusal.ErrOwner)
	}
	return as(ctx, who), who, nil
}

// whose tells who calls. Who was looked at before the message was read, over gRPC by the tap and over HTTP at its own door, is looked at again: reading may
// take its time, and a credential may end in it.
func (a *authenticator) whose(ctx context.Context) (who identity, err error) {
	who, seen := ctx.Value(shownKey{}).(identity)
	if !seen {
		who, seen = ctx.Value(identityKey{}).(identity)
	}
	if !seen {
		return a.caller(ctx)
	}
	if who.Credential != "" { // nothing was shown where no credentials are asked for, and a task token stands for a lease
		_, err = a.recheck(who)
	}
	return who, err
}

// gate lets calls in, within their quotas, and ends those under way whose credential ends.
type gate struct {
	*authenticator
	vigil    *vigil
	trail    *audit.Trail
	quotas   *quota.Book
	refusals rejects // by quotas
}

// unary lets a call in. Of these only Lease waits for long.
func (g *gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	admitted, who, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, g.turnAway(ctx, who, info.FullMethod, req, err)
	}
	ctx = admitted
	end, err := g.count(ctx, who, info.FullMethod)
	if err != nil {
		return nil, refusal.Status(err)
	}
	defer end()
	if info.FullMethod == lessorv1.WorkerService_Lease_FullMethodName {
		var done func()
		ctx, done = g.vigil.watch(ctx, who)
		defer done()
	}
	return g.audit(ctx, req, info, next)
}

func (g *gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx, who, err := g.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return g.turnAway(stream.Context(), who, info.FullMethod, nil, err)
	}
	end, err := g.count(ctx, who, info.FullMethod)
	if err != nil {
		return refusal.Status(err)
	}
	defer end()
	ctx, done := g.vigil.watch(ctx, who)
	defer done()
	in := &admitted{ServerStream: stream, ctx: ctx}
	if audited[info.FullMethod] {
		entry := newEntry(ctx, who, info.FullMethod, nil)
		in.first = func() error { return refusal.Status(g.trail.Record(entry)) }
		defer func() {
			if err != nil && !in.told.Load() {
				g.refused(entry, err)
			}
		}()
	}
	if info.FullMethod == lessorv1.WorkerService_Session_FullMethodName { // it sees to slow readers itself
		err = next(srv, in)
	} else {
		err = leaveBehind(ctx, func() error { return next(srv, in) })
	}
	if ended := auth.Ended(ctx); ended != nil {
		err = refusal.Status(ended)
	}
	return err
}

// leaveBehind waits for a handler, but not for long once the credential of its call has ended (X3): a send to a reader that does not read ends with
// the call itself, and not before.
func leaveBehind(ctx context.Context, handle func() error) error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- &panicked{p, debug.Stack()}
			}
		}()
		ended <- handle()
	}()
	select {
	case err := <-ended:
		return again(err)
	case <-ctx.Done():
	}
	if auth.Ended(ctx) == nil {
		return again(<-ended)
	}
	select {
	case err := <-ended:
		return again(err)
	case <-time.After(lastWords):
		return context.Cause(ctx)
	}
}

// panicked is a panic on its way to another goroutine.
type panicked struct {
	with  any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v, at\n%s", p.with, p.stack) }

// again panics where err is a panic.
func again(err error) error {
	if p := (*panicked)(nil); errors.As(err, &p) {
		panic(p.Error())
	}
	return err
}

// admitted is a stream that was let in.
type admitted struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // a grpc.ServerStream has one
	first func() error    // comes before the first message that goes out; may be nil
	told  atomic.Bool     // it came
}

// SendMsg lets nothing out before first has come.
func (s *admitted) SendMsg(m any) error {
	if s.first != nil && !s.told.Load() {
		if err := s.first(); err != nil {
			return err
		}
		s.told.Store(true)
	}
	return s.ServerStream.SendMsg(m)
}

// Context ends with the stream, or with its credential.
func (s *admitted) Context() context.Context { return s.ctx }

// RecvMsg hands on nothing that comes after the end of the credential (X3).
func (s *admitted) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if ended := auth.Ended(s.ctx); ended != nil {
		return refusal.Status(ended)
	}
	return nil
}
