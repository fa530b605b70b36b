package gate

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path"
	"slices"
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
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
)

// audited lists the calls that get an entry in the audit, whether they succeed or are refused (X4).
// Any other call gets an entry only if the gate refused it and knows the owner of its credential.
var audited = map[string]bool{
	lessorv1.TaskService_CancelTask_FullMethodName:        true,
	lessorv1.TaskService_RetryTask_FullMethodName:         true,
	lessorv1.TaskService_DeleteTask_FullMethodName:        true,
	lessorv1.TaskService_AdoptResult_FullMethodName:       true,
	lessorv1.TaskService_BatchCancelTasks_FullMethodName:  true,
	lessorv1.TaskService_BatchRetryTasks_FullMethodName:   true,
	lessorv1.TaskService_BatchDeleteTasks_FullMethodName:  true,
	lessorv1.AdminService_UpdateQueue_FullMethodName:      true,
	lessorv1.AdminService_PurgeQueue_FullMethodName:       true,
	lessorv1.AdminService_DrainWorker_FullMethodName:      true,
	lessorv1.AdminService_KickWorker_FullMethodName:       true,
	lessorv1.AdminService_InstallPackage_FullMethodName:   true,
	lessorv1.AdminService_UninstallPackage_FullMethodName: true,
	lessorv1.AdminService_Backup_FullMethodName:           true, // the entry is durable before the first byte is sent
	lessorv1.AdminService_ConfirmBackup_FullMethodName:    true,
	lessorv1.AdminService_FollowStore_FullMethodName:      true, // the entry is written while the first bytes are sent
	lessorv1.AuthService_CreateToken_FullMethodName:       true,
	lessorv1.AuthService_RevokeToken_FullMethodName:       true,
	lessorv1.AuthService_RotateKey_FullMethodName:         true,
}

// audit runs a call. If the call is audited, its entry is written in the same commit as the change
// that the call makes, or before a change outside the store; or, if nothing has changed, before the
// answer is sent.
func (g *Gate) audit(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !audited[info.FullMethod] {
		return next(ctx, req)
	}
	entry := &engine.Entry{Audit: newEntry(ctx, Identify(ctx), info.FullMethod, req)}
	res, err := next(engine.Audited(ctx, entry), req)
	switch {
	case entry.Kept():
	case err != nil:
		g.recordRefusal(entry.Audit, err)
	default:
		err = refusal.Status(g.trail.NoEffect(entry.Audit))
	}
	return res, err
}

// recordRefusal records in the audit that a call was refused. It skips status codes after which the
// call may have had an effect or will be repeated, because such a code does not mean a refusal.
func (g *Gate) recordRefusal(a records.Audit, err error) {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown:
		return
	}
	a.Outcome = refusal.CodeOf(err)
	g.trail.Refuse(a)
}

// refuseByQuota returns the status for a call that a quota has refused. It records the refusal if
// the call is audited.
func (g *Gate) refuseByQuota(ctx context.Context, who Identity, method string, req any, over error) error {
	err := refusal.Status(over)
	if audited[method] {
		g.recordRefusal(newEntry(ctx, who, method, req), err)
	}
	return err
}

// recordSoon records what nobody will repeat. If too much waits for the disk, it is counted.
func (g *Gate) recordSoon(a records.Audit) {
	if g.trail.Record(a) != nil {
		g.trail.Note(a)
	}
}

// turnAway records a call that the gate refuses, and returns err. A caller whose credential is
// valid, but who may not make the call, is charged for it, and may get the error of the quota
// instead. Without a valid credential nothing is charged, or whoever has a revoked token could use
// up the quota of its tenant; such calls are paced by their address. If the owner of the credential
// is not known, there is no entry in the audit, because an entry belongs to a tenant. The log has
// those calls.
func (g *Gate) turnAway(ctx context.Context, who Identity, method string, req any, err error) error {
	if who.Tenant == "" {
		return err
	}
	if status.Code(err) == codes.PermissionDenied {
		if over := g.quotas.Spend(who.Caller(), quota.Calls, 1); over != nil {
			return g.refuseByQuota(ctx, who, method, req, g.delayRefusal(ctx, who, over))
		}
	}
	g.recordRefusal(newEntry(ctx, who, method, req), err)
	return err
}

// AuditPackage records what became of a package operation at a worker; the context is that of a
// stream of it. If the worker was asked, the operation has an entry for each worker. A worker can
// tell of others as often as it likes, so these are bounded like calls without effect.
func (g *Gate) AuditPackage(ctx context.Context, worker string, end *lessorv1.PkgEvent, code string, asked bool) {
	a := newEntry(ctx, Identify(ctx), packageEvent, nil)
	a.Object, a.Corr, a.Outcome = lease.PackageID(end.GetName(), end.GetVersion()), end.GetOperationId(),
		cmp.Or(code, records.OutcomeOK)
	a.Detail = lease.Clip(words(&lessorv1.PackageResult{WorkerId: worker, Status: end.GetStatus()}), maxAuditDetail)
	if asked {
		g.recordSoon(a)
	} else {
		g.trail.Note(a)
	}
}

// AuditsRefusal reports whether the refusal of a call whose credential is not valid gets an entry
// that says what the call asked for. Otherwise nobody needs the message of the call.
func AuditsRefusal(ctx context.Context, method string) bool {
	known, _ := ctx.Value(ownerKey{}).(bool)
	return known && audited[method]
}

// packageEvent is the action of the entries about what workers tell of package operations.
const packageEvent = "PkgEvent"

// otherActions are the actions that are not calls: packageEvent, the sum of a flood (package
// audit), and pages, each with the end of its path.
var otherActions = []string{
	packageEvent, "various",
	"metrics", "queues", "pprof", "profile", "trace", "ui", "queue", "tasks", "{task}", "run", "workers", "worker",
}

// UnknownAction says what is wrong with a name by which somebody looks for entries; "" if entries
// may have it as their action.
func UnknownAction(name string) string {
	known := slices.Clone(otherActions)
	for method := range access {
		known = append(known, path.Base(method))
	}
	if name == "" || slices.Contains(known, name) {
		return ""
	}
	for _, other := range known {
		if strings.EqualFold(other, name) {
			return fmt.Sprintf("is %q, in the wrong case; it is %s", name, other)
		}
	}
	hint := "docs/security.md has a list of those that are audited"
	if alike := auditedLike(name); len(alike) > 0 {
		hint = "some that begin like it are " + strings.Join(alike, ", ")
	}
	return fmt.Sprintf("is %q, which is no call; %s", lease.Clip(name, maxAuditID), hint)
}

// auditedLike returns the audited calls that begin with the same three letters as a name, in any
// case.
func auditedLike(name string) (alike []string) {
	const letters = 3
	for method := range audited {
		if call := path.Base(method); len(name) >= letters && strings.EqualFold(call[:letters], name[:letters]) {
			alike = append(alike, call)
		}
	}
	slices.Sort(alike)
	return alike
}

// Limits of the texts of a request that an entry keeps, in bytes. They are needed because a refused
// request may contain anything.
const (
	maxAuditID     = 256
	maxAuditDetail = 1024
)

// newEntry returns an entry that says who makes which request.
func newEntry(ctx context.Context, who Identity, method string, req any) records.Audit {
	a := records.Audit{
		Tenant: who.Tenant, Subject: who.Subject, Credential: who.Credential, Peer: peerHost(ctx),
		Action: path.Base(method), Outcome: records.OutcomeOK,
	}
	if who.Credential != "" {
		a.Role = who.Role.String()
	}
	if m, ok := req.(proto.Message); ok && audited[method] {
		describe(&a, m)
	}
	return a
}

// describe adds the subject of the request to an entry. It finds the subject by field names, which
// have the same meaning in all requests.
func describe(a *records.Audit, req proto.Message) {
	m := excerpt(req.ProtoReflect())
	take := func(into *string, m protoreflect.Message, name protoreflect.Name) {
		if f := m.Descriptor().Fields().ByName(name); f != nil && m.Has(f) {
			// an entry with other text could not be sent
			*into = lease.Clip(strings.ToValidUTF8(m.Get(f).String(), "\uFFFD"), maxAuditID)
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
	// of a package; what follows the "?" of a URL may be a secret
	if f := m.Descriptor().Fields().ByName("source"); f != nil && m.Has(f) {
		where, _, _ := strings.Cut(m.Get(f).String(), "?")
		if convert.NamesUser(m.Get(f).String()) { // then the call is refused
			where = "(a URL with a user)"
		}
		m.Set(f, protoreflect.ValueOfString(where))
	}
	a.Detail = lease.Clip(words(m.Interface()), maxAuditDetail)
}

// excerpt returns a copy of a message that begins with the same words as the message, as far as an
// entry keeps them: of a list or a map it has only the first entries, in the order of words. A
// request may have thousands.
func excerpt(m protoreflect.Message) protoreflect.Message {
	const most = maxAuditDetail / 4 // each takes more than 4 bytes in words
	out := m.New()
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			keys := make([]protoreflect.MapKey, 0, 2*most)
			sort := func() {
				slices.SortFunc(keys, func(a, b protoreflect.MapKey) int {
					return strings.Compare(a.String(), b.String())
				})
				keys = keys[:min(len(keys), most)]
			}
			v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				if keys = append(keys, k); len(keys) == cap(keys) {
					sort()
				}
				return true
			})
			sort()
			for _, k := range keys {
				out.Mutable(f).Map().Set(k, v.Map().Get(k))
			}
		case f.IsList():
			to := out.Mutable(f).List()
			for i := range min(v.List().Len(), most) {
				to.Append(v.List().Get(i))
			}
		case f.Message() != nil:
			out.Set(f, protoreflect.ValueOfMessage(excerpt(v.Message())))
		default:
			out.Set(f, v)
		}
		return true
	})
	return out
}

// words returns a message as one line of text. protobuf on purpose puts one or two spaces between
// two fields, and not the same number in each build; words makes it one, there and in the values.
func words(m proto.Message) string {
	text, err := prototext.MarshalOptions{}.Marshal(m)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(text), "  ", " ")
}

// peerHost returns the network address of a caller without its port, or "" if it has none.
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
