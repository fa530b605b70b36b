package gate

import (
	"context"
	"path"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/lessor-dev/lessor/coordinator/auth"
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

// admit lets a call in, or says why not. The context that it returns knows who calls.
func (a *authenticator) admit(ctx context.Context, method string) (context.Context, Identity, error) {
	if unguarded[method] {
		return ctx, Identity{}, nil
	}
	if a.Open() && strings.HasPrefix(method, "/"+lessorv1.AuthService_ServiceDesc.ServiceName+"/") {
		return nil, Identity{}, refusal.Status(refusal.ErrOpen)
	}
	who, err := a.whose(ctx)
	tell(ctx, who)
	if err != nil {
		return nil, who, a.attempts.Failed(ctx, err)
	}
	if asks := access[method]; !who.Role.Has(asks) {
		return nil, who, refusal.Status(&refusal.RoleError{What: path.Base(method), Has: who.Role, Asks: asks})
	}
	if method == lessorv1.AdminService_Backup_FullMethodName && who.Tenant != a.owner {
		return nil, who, refusal.Status(refusal.ErrOwner)
	}
	return as(ctx, who), who, nil
}

// tell has the line of a call in the log say whose credential was shown, good or not, as far as that is certain.
func tell(ctx context.Context, who Identity) {
	if who.Tenant != "" {
		logging.AddFields(ctx, logging.Fields{"tenant", who.Tenant, "subject", who.Subject})
	}
}

// whose tells who calls. Who was looked at before the message was read, over gRPC by the tap and over HTTP at its own door, is looked at again: reading may
// take its time, and a credential may end in it.
func (a *authenticator) whose(ctx context.Context) (who Identity, err error) {
	who, seen := ctx.Value(shownKey{}).(Identity)
	if !seen {
		who, seen = ctx.Value(identityKey{}).(Identity)
	}
	if !seen {
		return a.caller(ctx)
	}
	if who.Credential != "" { // nothing was shown where no credentials are asked for, and a task token stands for a lease
		_, err = a.recheck(who)
	}
	return who, err
}
