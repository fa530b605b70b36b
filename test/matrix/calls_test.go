package matrix

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// callRow declares who may make a call, with a good request. For fleeting see place.
type callRow struct {
	roles         auth.Role
	goodRequest   func(n names) proto.Message
	changesMemory bool
}

// Sets of roles.
const (
	working   = auth.Worker | auth.Operator
	producing = auth.Producer | auth.Operator
	reading   = auth.Producer | auth.Viewer | auth.Operator
	watching  = auth.Viewer | auth.Operator
	operating = auth.Operator
)

// calls has a row for each RPC of lessor.v1 but Session, whose frames have rows of their own.
var calls = map[string]callRow{
	"Lease": {roles: working, goodRequest: func(n names) proto.Message {
		return &lessorv1.LeaseRequest{WorkerId: n["worker"], Queues: []string{n["queue"]}, MaxTasks: 10}
	}},
	"Start": {roles: working, goodRequest: func(n names) proto.Message {
		return &lessorv1.StartRequest{TaskId: n["task"], LeaseId: n["lease"], WorkerId: n["worker"], Traceparent: n["trace"]}
	}},
	"Heartbeat": {roles: working, goodRequest: func(n names) proto.Message {
		return &lessorv1.HeartbeatRequest{
			TaskId: n["task"], LeaseId: n["lease"], WorkerId: n["worker"],
			Checkpoint: []byte(checkpointMark),
		}
	}},
	"Complete": {roles: working, goodRequest: func(n names) proto.Message { return complete(n) }},
	"Fail":     {roles: working, goodRequest: func(n names) proto.Message { return fail(n) }},
	"Release":  {roles: working, goodRequest: func(n names) proto.Message { return release(n) }},

	"SubmitTask": {roles: producing, goodRequest: func(n names) proto.Message { return &lessorv1.SubmitTaskRequest{Task: pinnedSpec(n)} }},
	"BatchSubmitTasks": {roles: producing, goodRequest: func(n names) proto.Message {
		return &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{pinnedSpec(n), spec(n)}}
	}},
	"SubmitStream": {roles: producing, goodRequest: func(n names) proto.Message {
		return &lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{pinnedSpec(n), spec(n)}}
	}},
	"GetTask":     {roles: reading, goodRequest: func(n names) proto.Message { return &lessorv1.GetTaskRequest{TaskId: n["task"]} }},
	"ListTasks":   {roles: reading, goodRequest: func(n names) proto.Message { return listTasks(n) }},
	"ExplainTask": {roles: reading, goodRequest: func(n names) proto.Message { return &lessorv1.ExplainTaskRequest{TaskId: n["task"]} }},
	"WatchTask":   {roles: reading, goodRequest: func(n names) proto.Message { return &lessorv1.WatchTaskRequest{RunId: n["run"]} }},
	"AwaitTasks":  {roles: reading, goodRequest: func(n names) proto.Message { return &lessorv1.AwaitTasksRequest{Add: []string{n["task"]}} }},
	"CancelTask":  {roles: producing, goodRequest: func(n names) proto.Message { return &lessorv1.CancelTaskRequest{TaskId: n["task"]} }},
	"RetryTask":   {roles: producing, goodRequest: func(n names) proto.Message { return &lessorv1.RetryTaskRequest{TaskId: n["task"]} }},
	"DeleteTask": {roles: operating, goodRequest: func(n names) proto.Message {
		return &lessorv1.DeleteTaskRequest{TaskId: n["task"], Force: true}
	}},
	"AdoptResult": {roles: operating, goodRequest: func(n names) proto.Message { return &lessorv1.AdoptResultRequest{TaskId: n["task"]} }},
	"BatchCancelTasks": {roles: producing, goodRequest: func(n names) proto.Message {
		return &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{RunId: n["run"]}}
	}},
	"BatchRetryTasks": {roles: producing, goodRequest: func(n names) proto.Message {
		return &lessorv1.BatchRetryTasksRequest{Filter: &lessorv1.TaskFilter{RunId: n["run"]}}
	}},
	"BatchDeleteTasks": {roles: operating, goodRequest: func(n names) proto.Message {
		return &lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{RunId: n["run"]}, Force: true}
	}},

	"ListQueues": {roles: watching, goodRequest: func(names) proto.Message { return &lessorv1.ListQueuesRequest{PageSize: 1} }},
	"GetQueue":   {roles: watching, goodRequest: func(n names) proto.Message { return &lessorv1.GetQueueRequest{Name: n["queue"]} }},
	"UpdateQueue": {roles: operating, goodRequest: func(n names) proto.Message {
		return &lessorv1.UpdateQueueRequest{Name: n["queue"], Paused: proto.Bool(true)}
	}},
	"PurgeQueue":  {roles: operating, goodRequest: func(n names) proto.Message { return &lessorv1.PurgeQueueRequest{Name: n["queue"]} }},
	"ListWorkers": {roles: watching, goodRequest: func(names) proto.Message { return &lessorv1.ListWorkersRequest{} }},
	"GetWorker":   {roles: watching, goodRequest: func(n names) proto.Message { return &lessorv1.GetWorkerRequest{WorkerId: n["worker"]} }},
	"DrainWorker": {roles: operating, changesMemory: true, goodRequest: func(n names) proto.Message {
		return &lessorv1.DrainWorkerRequest{WorkerId: n["worker"]}
	}},
	"KickWorker": {roles: operating, changesMemory: true, goodRequest: func(n names) proto.Message {
		return &lessorv1.KickWorkerRequest{WorkerId: n["worker"], Requeue: true}
	}},
	"InstallPackage": {roles: operating, changesMemory: true, goodRequest: func(n names) proto.Message {
		return &lessorv1.InstallPackageRequest{
			Name: n["package"], Version: "1",
			Workers: &lessorv1.WorkerFilter{WorkerId: n["worker"]},
		}
	}},
	"UninstallPackage": {roles: operating, changesMemory: true, goodRequest: func(n names) proto.Message {
		return &lessorv1.UninstallPackageRequest{
			Name: n["package"], Version: "1",
			Workers: &lessorv1.WorkerFilter{WorkerId: n["worker"]},
		}
	}},
	"ListAuditEvents": {roles: operating, goodRequest: func(names) proto.Message { return &lessorv1.ListAuditEventsRequest{PageSize: 1} }},
	// neither tenant may read the store of all
	"Backup":        {roles: auth.Nobody, goodRequest: func(names) proto.Message { return &lessorv1.BackupRequest{} }},
	"ConfirmBackup": {roles: auth.Nobody, goodRequest: func(names) proto.Message { return &lessorv1.ConfirmBackupRequest{BackupId: "backup"} }},
	"FollowStore": {roles: auth.Nobody, goodRequest: func(names) proto.Message { // as for Backup
		return &lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Start{Start: &lessorv1.FollowStart{Name: "standby", InstanceId: "instance"}}}
	}},
	// as for Backup
	"ListTenants": {roles: auth.Nobody, goodRequest: func(names) proto.Message { return &lessorv1.ListTenantsRequest{PageSize: 1} }},
	"GetStatus":   {roles: auth.Everybody, goodRequest: func(names) proto.Message { return &lessorv1.GetStatusRequest{} }},

	"CreateToken": {roles: operating, goodRequest: func(names) proto.Message {
		return &lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_WORKER, Subject: "made"}
	}},
	"ListTokens":  {roles: operating, goodRequest: func(names) proto.Message { return &lessorv1.ListTokensRequest{PageSize: 1} }},
	"RevokeToken": {roles: operating, goodRequest: func(n names) proto.Message { return &lessorv1.RevokeTokenRequest{TokenId: n["token"]} }},
	"RotateKey":   {roles: operating, goodRequest: func(names) proto.Message { return &lessorv1.RotateKeyRequest{} }},
	"ListKeys":    {roles: operating, goodRequest: func(names) proto.Message { return &lessorv1.ListKeysRequest{} }},
}

// complete reports the leased task of a tenant as completed.
func complete(n names) *lessorv1.CompleteRequest {
	return &lessorv1.CompleteRequest{
		TaskId: n["task"], LeaseId: n["lease"], WorkerId: n["worker"], Output: []byte(outputMark),
		Artifacts: []*lessorv1.Artifact{{ResourceId: n["resource"], WorkerId: n["worker"]}},
	}
}

func fail(n names) *lessorv1.FailRequest {
	// not retryable, because the time of a retry would be random
	final := &lessorv1.TaskError{Message: outputMark, Retryable: proto.Bool(false)}
	return &lessorv1.FailRequest{TaskId: n["task"], LeaseId: n["lease"], WorkerId: n["worker"], Error: final}
}

func release(n names) *lessorv1.ReleaseRequest {
	return &lessorv1.ReleaseRequest{TaskId: n["task"], LeaseId: n["lease"], WorkerId: n["worker"]}
}

// The services of gRPC itself: health is for everybody, reflection for everybody with a credential.
const (
	healthService     = "grpc.health.v1"
	reflectionService = "grpc.reflection."
)

// callPlaces returns a place for each call that the protos declare, except Session.
func callPlaces(t *testing.T) (places []*place) {
	t.Helper()
	used := map[string]bool{}
	for _, m := range methods() {
		name, service := string(m.Name()), string(m.ParentFile().Package())
		row, declared := calls[name]
		used[name] = true
		switch {
		case service == healthService || strings.HasPrefix(service, reflectionService):
			row = callRow{roles: auth.Everybody, goodRequest: func(names) proto.Message { return newMessage(m.Input()) }}
		case name == "Session":
			continue
		case !declared:
			t.Errorf("%s: declare in calls who may make it, with a good request", m.FullName())
			continue
		}
		fields := fieldsOf(t, row.goodRequest(names{}).ProtoReflect())
		places = append(places, &place{
			name: name, action: name, roles: row.roles, declaringCredential: operator,
			unguarded: service == healthService, changesMemory: row.changesMemory,
			goodRequest: func(n names) request { return message{row.goodRequest(n)} },
			fields:      fields, together: together(fields, func(field) bool { return true }),
			send: func(h *host, c credential, r request) answer { return h.call(c, m, r.(message).Message) },
		})
	}
	for name := range calls {
		if !used[name] {
			t.Errorf("%s is no call", name)
		}
	}
	return places
}

// methods returns the methods of all services of the coordinator, ordered by name. PoolService is
// served by the supervisor of pools.
func methods() (all []protoreflect.MethodDescriptor) {
	// a reference, so that the health service is linked and in the registry, as in the coordinator
	_ = healthv1.Health_ServiceDesc
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if f.Services().Get(i).Name() == "PoolService" {
				continue
			}
			for j := range f.Services().Get(i).Methods().Len() {
				all = append(all, f.Services().Get(i).Methods().Get(j))
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.MethodDescriptor) int {
		return strings.Compare(string(a.FullName()), string(b.FullName()))
	})
	return all
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // cannot happen: the registry has the file, so it has the type
	}
	return kind.New().Interface()
}

// call makes a call of any kind with one message, and collects all answers that come before fake
// time has to pass.
func (h *host) call(c credential, m protoreflect.MethodDescriptor, req proto.Message) (a answer) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.with(c.headers))
	defer cancel()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = stream.SendMsg(req) // RecvMsg returns the error of a failed call
		_ = stream.CloseSend()
		for {
			res := newMessage(m.Output())
			if err = stream.RecvMsg(res); err != nil {
				return
			}
			a.addMessage(res)
		}
	}()
	synctest.Wait()
	select {
	case <-ended:
		a.end(notEOF(err))
	default:
		cancel()
		<-ended
		a.summary = append(a.summary, "and goes on")
	}
	return a
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
