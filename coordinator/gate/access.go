package gate

import (
	"context"
	"path"
	"strings"
	"time"

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
	workers     = auth.Worker | auth.Operator
	producers   = auth.Producer | auth.Operator
	taskReaders = auth.Producer | auth.Viewer | auth.Operator
	viewers     = auth.Viewer | auth.Operator
	operators   = auth.Operator
)

// access says which roles may make each call (X2); docs/security.md has the same table. Nobody may
// make a call that is not listed.
var access = map[string]auth.Role{
	lessorv1.WorkerService_Lease_FullMethodName:     workers,
	lessorv1.WorkerService_Start_FullMethodName:     workers,
	lessorv1.WorkerService_Heartbeat_FullMethodName: workers,
	lessorv1.WorkerService_Complete_FullMethodName:  workers,
	lessorv1.WorkerService_Fail_FullMethodName:      workers,
	lessorv1.WorkerService_Release_FullMethodName:   workers,
	lessorv1.WorkerService_Session_FullMethodName:   workers,

	lessorv1.TaskService_SubmitTask_FullMethodName:       producers,
	lessorv1.TaskService_BatchSubmitTasks_FullMethodName: producers,
	lessorv1.TaskService_SubmitStream_FullMethodName:     producers,
	lessorv1.TaskService_CancelTask_FullMethodName:       producers,
	lessorv1.TaskService_RetryTask_FullMethodName:        producers,
	lessorv1.TaskService_BatchCancelTasks_FullMethodName: producers,
	lessorv1.TaskService_BatchRetryTasks_FullMethodName:  producers,
	lessorv1.TaskService_GetTask_FullMethodName:          taskReaders,
	lessorv1.TaskService_ListTasks_FullMethodName:        taskReaders,
	lessorv1.TaskService_WatchTask_FullMethodName:        taskReaders,
	lessorv1.TaskService_AwaitTasks_FullMethodName:       taskReaders,
	lessorv1.TaskService_ExplainTask_FullMethodName:      taskReaders,
	lessorv1.TaskService_DeleteTask_FullMethodName:       operators,
	lessorv1.TaskService_BatchDeleteTasks_FullMethodName: operators,
	lessorv1.TaskService_AdoptResult_FullMethodName:      operators,

	lessorv1.AdminService_ListQueues_FullMethodName:       viewers,
	lessorv1.AdminService_GetQueue_FullMethodName:         viewers,
	lessorv1.AdminService_ListWorkers_FullMethodName:      viewers,
	lessorv1.AdminService_GetWorker_FullMethodName:        viewers,
	lessorv1.AdminService_UpdateQueue_FullMethodName:      operators,
	lessorv1.AdminService_PurgeQueue_FullMethodName:       operators,
	lessorv1.AdminService_DrainWorker_FullMethodName:      operators,
	lessorv1.AdminService_KickWorker_FullMethodName:       operators,
	lessorv1.AdminService_InstallPackage_FullMethodName:   operators,
	lessorv1.AdminService_UninstallPackage_FullMethodName: operators,
	lessorv1.AdminService_ListAuditEvents_FullMethodName:  operators,
	lessorv1.AdminService_Backup_FullMethodName:           operators,
	lessorv1.AdminService_ConfirmBackup_FullMethodName:    operators,
	lessorv1.AdminService_FollowStore_FullMethodName:      operators,
	lessorv1.AdminService_ListTenants_FullMethodName:      viewers,
	lessorv1.AdminService_GetStatus_FullMethodName:        auth.Everybody,

	lessorv1.AuthService_CreateToken_FullMethodName: operators,
	lessorv1.AuthService_ListTokens_FullMethodName:  operators,
	lessorv1.AuthService_RevokeToken_FullMethodName: operators,
	lessorv1.AuthService_RotateKey_FullMethodName:   operators,
	lessorv1.AuthService_ListKeys_FullMethodName:    operators,

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      auth.Everybody,
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: auth.Everybody,
}

// forHost lists the calls that only the host tenant may make (Deps.Host), because they are about
// all tenants.
var forHost = map[string]bool{
	lessorv1.AdminService_Backup_FullMethodName:        true,
	lessorv1.AdminService_ConfirmBackup_FullMethodName: true,
	lessorv1.AdminService_FollowStore_FullMethodName:   true,
	lessorv1.AdminService_ListTenants_FullMethodName:   true,
}

// unguarded lists the calls that need no credential. Health probes have no credential, and the
// answer to a probe says only whether the coordinator serves.
var unguarded = map[string]bool{
	healthv1.Health_Check_FullMethodName: true,
	healthv1.Health_List_FullMethodName:  true,
	healthv1.Health_Watch_FullMethodName: true,
}

// NeedsNoCredential reports whether a call needs no credential; see preauth.Gate.
func (*Gate) NeedsNoCredential(method string) bool { return unguarded[method] }

// admit checks that the caller may make a call. The context that it returns carries the identity of
// the caller for Identify.
func (g *Gate) admit(ctx context.Context, method string) (context.Context, Identity, error) {
	if unguarded[method] {
		return ctx, Identity{}, nil
	}
	if g.Open() && strings.HasPrefix(method, "/"+lessorv1.AuthService_ServiceDesc.ServiceName+"/") {
		return nil, Identity{}, refusal.Status(refusal.ErrOpen)
	}
	who, err := g.identify(ctx)
	logCaller(ctx, who)
	if err != nil {
		return nil, who, g.failed(ctx, err)
	}
	if asks := access[method]; !who.Role.Has(asks) {
		return nil, who, refusal.Status(&refusal.RoleError{What: path.Base(method), Has: who.Role, Asks: asks})
	}
	if forHost[method] && !g.Hosts(who) {
		return nil, who, refusal.Status(&refusal.HostError{What: path.Base(method), NoHost: g.host == ""})
	}
	return withIdentity(ctx, who), who, nil
}

// Hosts reports whether a caller is of the host tenant. If no credentials are required, everybody
// is.
func (g *Gate) Hosts(who Identity) bool { return g.Open() || g.host != "" && who.Tenant == g.host }

// SeesAll reports whether a caller may see sums over all tenants: those of the host tenant, and if
// there is none, everybody.
func (g *Gate) SeesAll(who Identity) bool { return g.host == "" || g.Hosts(who) }

// logCaller adds the owner of the call's credential to the log line of the call, if the owner is
// certain. The credential may be invalid.
func logCaller(ctx context.Context, who Identity) {
	if who.Tenant != "" {
		logging.AddFields(ctx, logging.Fields{"tenant", who.Tenant, "subject", who.Subject})
	}
}

// identify returns who makes a call. If the caller was already identified before the message was
// read (over gRPC by the tap, over HTTP by Admit), identify checks the credential again, because
// the credential may have ended while the message was being read.
func (g *Gate) identify(ctx context.Context) (who Identity, err error) {
	who, seen := ctx.Value(checkedKey{}).(Identity)
	if !seen {
		who, seen = ctx.Value(identityKey{}).(Identity)
	}
	if !seen {
		return g.caller(ctx)
	}
	switch {
	case who.Credential != "":
		_, err = g.recheck(who)
	case g.withdrawn(who):
		return Identity{}, errTaskToken
	}
	return who, err
}

// withdrawn reports whether a caller has a task token whose credential was revoked, or lost its key
// (X3). If the credential has only expired, the token remains valid: a lease may outlive it.
func (g *Gate) withdrawn(who Identity) bool {
	return who.heldUnder != "" && !g.Open() && g.keyring.Withdrawn(who.Tenant, who.heldUnder, time.Now())
}
