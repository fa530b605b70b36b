package gate

import (
	"context"
	"net"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/records"
)

// audited are the calls that leave an entry in the audit, done or refused (X4). All other calls leave one where a known credential was
// refused.
var audited = map[string]bool{
	lessorv1.TaskService_CancelTask_FullMethodName:       true,
	lessorv1.TaskService_RetryTask_FullMethodName:        true,
	lessorv1.TaskService_DeleteTask_FullMethodName:       true,
	lessorv1.TaskService_AdoptResult_FullMethodName:      true,
	lessorv1.TaskService_BatchCancelTasks_FullMethodName: true,
	lessorv1.TaskService_BatchRetryTasks_FullMethodName:  true,
	lessorv1.TaskService_BatchDeleteTasks_FullMethodName: true,
	lessorv1.AdminService_UpdateQueue_FullMethodName:     true,
	lessorv1.AdminService_PurgeQueue_FullMethodName:      true,
	lessorv1.AdminService_DrainWorker_FullMethodName:     true,
	lessorv1.AdminService_KickWorker_FullMethodName:      true,
	lessorv1.AdminService_Backup_FullMethodName:          true, // before the first byte of it has left
	lessorv1.AuthService_CreateToken_FullMethodName:      true,
	lessorv1.AuthService_RevokeToken_FullMethodName:      true,
	lessorv1.AuthService_RotateKey_FullMethodName:        true,
}

// audit makes a call that is audited leave its entry: in the commit of its change, else before it is answered.
func (g *Gate) audit(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !audited[info.FullMethod] {
		return next(ctx, req)
	}
	entry := &engine.Entry{Audit: newEntry(ctx, Identify(ctx), info.FullMethod, req)}
	res, err := next(engine.Audited(ctx, entry), req)
	switch {
	case entry.Kept():
	case err != nil:
		g.refused(entry.Audit, err)
	default:
		err = refusal.Status(g.trail.Record(entry.Audit))
	}
	return res, err
}

// refused takes note of an error that says that nothing was done. Others tell nothing: their callers have gone, or will ask again.
func (g *Gate) refused(a records.Audit, err error) {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown:
		return
	}
	a.Outcome = refusal.CodeOf(err)
	g.trail.Refuse(a)
}

// overdrawn takes note of a call that a quota has refused, where such a call leaves an entry.
func (g *Gate) overdrawn(ctx context.Context, who Identity, method string, req any, over error) error {
	err := refusal.Status(over)
	if audited[method] {
		g.refused(newEntry(ctx, who, method, req), err)
	}
	return err
}

// turnAway takes note of a caller who was not let in. An entry belongs to a tenant, so that there is none where nobody knows whose credential
// it was; the log has those.
func (g *Gate) turnAway(ctx context.Context, who Identity, method string, req any, err error) error {
	if who.Tenant != "" {
		if over := g.quotas.Spend(who.Caller(), quota.Calls, 1); over != nil {
			return refusal.Status(g.hold(ctx, who, over))
		}
		g.refused(newEntry(ctx, who, method, req), err)
	}
	return err
}

// Lengths of what is kept of a request, in bytes; one that was refused may have anything in it.
const (
	maxAuditID     = 256
	maxAuditDetail = 1024
)

// newEntry tells who asks for what.
func newEntry(ctx context.Context, who Identity, method string, req any) records.Audit {
	a := records.Audit{
		Tenant: who.Tenant, Subject: who.Subject, Credential: who.Credential, Peer: peerHost(ctx),
		Action: path.Base(method), Outcome: records.Done,
	}
	if who.Credential != "" {
		a.Role = who.Role.String()
	}
	if m, ok := req.(proto.Message); ok && audited[method] {
		describe(&a, m)
	}
	return a
}

// describe adds what a request is about. What its fields are is known here by their names, which mean the same in all requests.
func describe(a *records.Audit, req proto.Message) {
	m := proto.Clone(req).ProtoReflect()
	take := func(into *string, m protoreflect.Message, name protoreflect.Name) {
		if f := m.Descriptor().Fields().ByName(name); f != nil && m.Has(f) {
			*into = convert.Clip(m.Get(f).String(), maxAuditID)
			m.Clear(f)
		}
	}
	for _, name := range []protoreflect.Name{"task_id", "name", "worker_id", "token_id"} {
		take(&a.Object, m, name)
	}
	take(&a.Workspace, m, "workspace_id")
	if f := m.Descriptor().Fields().ByName("filter"); f != nil && m.Has(f) {
		take(&a.Workspace, m.Mutable(f).Message(), "workspace_id")
	}
	take(&a.Corr, m, "request_id")
	take(new(string), m, "page_token")
	a.Detail = convert.Clip(words(m.Interface()), maxAuditDetail)
}

// words is a message as text in one line. The library varies its spaces on purpose.
func words(m proto.Message) string {
	text, err := prototext.MarshalOptions{}.Marshal(m)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(text), "  ", " ")
}

// peerHost is the network address of a caller.
func peerHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
