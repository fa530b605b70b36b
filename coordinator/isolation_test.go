package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// names are values of the fields that name something, by the field.
type names map[string]string

// victim fills a tenant with one of everything, and returns the names of it all.
func (r *rig) victim(t *testing.T) (ctx context.Context, theirs names) {
	t.Helper()
	const space = "victim-space"
	token, id := r.issue(t, "acme", auth.Operator)
	ctx = bearing(t.Context(), token)
	var tasks []string
	for range 3 {
		made, err := r.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{
			WorkspaceId: space, Queue: "victim-queue", RunId: "victim-run", IdempotencyKey: fmt.Sprint("victim-key", len(tasks)), TaskKey: "victim-task",
			Labels: map[string]string{"l": "victim"}, TraceMeta: &lessorv1.TraceMeta{HostNodeId: "victim-host"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, made.GetTask().GetTaskId())
	}
	tk := r.bearing(token).talk(t, "victim-worker")
	tk.tenant = "acme"
	session := tk.shake()
	registers := registration(1)
	registers.WorkspaceId, registers.Queues = space, []string{"victim-queue"}
	tk.say(registers)
	work := tk.given(1)[0]
	synctest.Wait()
	return ctx, names{
		"task_id": work.GetTask().GetTaskId(), "lease_id": work.GetLeaseId(), "worker_id": "victim-worker", "session_id": session.GetSessionId(),
		"queue": "victim-queue", "queues": "victim-queue", "name": "victim-queue", "run_id": "victim-run", "workspace_id": space,
		"idempotency_key": "victim-key0", "host_node_id": "victim-host", "token_id": id,
	}
}

// nobodys are names of the same forms that name nothing.
var nobodys = names{
	"task_id": "t0000200000000zzz", "lease_id": "AAAAAQAAAQAAAAAAAAEAAAABDu4sshADOnD2i222pz8dEPeHdM7h0g7P", "worker_id": "nobody-worker",
	"session_id": strings.Repeat("A", 43), "queue": "nobody-queue", "queues": "nobody-queue", "name": "nobody-queue", "run_id": "nobody-run",
	"workspace_id": "nobody-space", "idempotency_key": "nobody-key0", "host_node_id": "nobody-host", "token_id": "k0000000000000000",
}

// request is a message with its names filled, those of only alone where it is not empty; found lists the fields that it has.
func request(m protoreflect.Message, with names, only string) (found []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value, named := with[string(f.Name())]
		switch {
		case f.Kind() == protoreflect.StringKind && named:
			found = append(found, string(f.Name()))
			if only != "" && only != string(f.Name()) {
				continue
			}
			if f.IsList() {
				m.Mutable(f).List().Append(protoreflect.ValueOfString(value))
			} else {
				m.Set(f, protoreflect.ValueOfString(value))
			}
		case f.Kind() == protoreflect.MessageKind && !f.IsMap() && strings.HasPrefix(string(f.Message().FullName()), "lessor.") && worthFilling(f):
			inner := m.NewField(f)
			if f.IsList() {
				item := inner.List().NewElement()
				found = append(found, request(item.Message(), with, only)...)
				inner.List().Append(item)
			} else {
				found = append(found, request(inner.Message(), with, only)...)
			}
			m.Set(f, inner)
		}
	}
	return found
}

// worthFilling leaves out what would make each request a bad one.
func worthFilling(f protoreflect.FieldDescriptor) bool {
	return slices.Contains([]protoreflect.Name{"task", "tasks", "filter", "trace_meta"}, f.Name())
}

// answer makes a call and writes down all that comes back within a second, the names that were asked for left out.
func (r *rig) answer(ctx context.Context, method protoreflect.MethodDescriptor, with names, only string) string {
	kind, _ := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	req := kind.New()
	request(req, with, only)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	name := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	var said []string
	stream, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err == nil {
		_ = stream.SendMsg(req.Interface()) // RecvMsg tells
		_ = stream.CloseSend()
	}
	for err == nil {
		kind, _ := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
		res := kind.New().Interface()
		if err = stream.RecvMsg(res); err == nil {
			said = append(said, plain(res))
		}
	}
	switch {
	case errors.Is(err, io.EOF):
	case status.Code(err) == codes.DeadlineExceeded: // in the words of whoever noticed first
		said = append(said, "it waits")
	default:
		said = append(said, plain(status.Convert(err).Proto()))
	}
	text := strings.Join(said, "\n")
	for _, field := range slices.Sorted(maps.Keys(with)) {
		text = strings.ReplaceAll(text, with[field], "NAME")
	}
	return text
}

// passing is what differs from call to call: ids and times of what was just made.
var passing = regexp.MustCompile(`\b(t[0-9a-z]{16}|seconds: [0-9]+|nanos: [0-9]+|lsr_[^"]+|[ks][0-9a-z]{16})`)

// plain is a message as text without what passes.
func plain(m proto.Message) string {
	return passing.ReplaceAllString(strings.Join(strings.Fields(prototext.Format(m)), " "), "…")
}

// X2, V2, S4: on every call, in every field that names something, all together and one by one, what is another tenant's is answered as what is
// nobody's; and nothing of the other tenant changes.
func TestOtherTenantsNamesAreNobodys(t *testing.T) {
	t.Attr("rules", "X2 V2 S4")
	cfg := noHeartbeats
	cfg.Auth = &Auth{}
	serveWith(t, nil, cfg, func(t *testing.T, r *rig) {
		victim, theirs := r.victim(t)
		before := r.inventory(victim, t, theirs)
		token, _ := r.issue(t, "evil", auth.Operator)
		evil := bearing(t.Context(), token)
		if s, err := r.admin.GetStatus(evil, &lessorv1.GetStatusRequest{}); err != nil || s.GetLeases() != 0 || s.GetSessions() != 0 || s.GetOpen() {
			t.Errorf("status: %v (%v), want none of the leases and sessions of others", s, err)
		}
		cells := 0
		for _, method := range ownMethods() {
			switch method.Name() {
			case "Session", "RotateKey", "ListAuditEvents": // frames and the audit have tests of their own; the keys are the caller's
				continue
			}
			kind, _ := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
			for _, only := range append([]string{""}, request(kind.New(), theirs, "")...) {
				cells++
				if got, want := r.answer(evil, method, theirs, only), r.answer(evil, method, nobodys, only); got != want {
					t.Errorf("%s by %q: another tenant's\n%s\nnobody's\n%s", method.Name(), only, got, want)
				}
			}
		}
		if after := r.inventory(victim, t, theirs); after != before {
			t.Errorf("the other tenant has changed: before\n%s\nafter\n%s", before, after)
		}
		t.Logf("%d cells", cells)
	})
}

// ownMethods are all calls of the protos.
func ownMethods() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("lessor.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				all = append(all, f.Services().Get(i).Methods().Get(j))
			}
		}
		return true
	})
	return all
}

// inventory is what a tenant sees of itself.
func (r *rig) inventory(ctx context.Context, t *testing.T, theirs names) string {
	t.Helper()
	var all []string
	add := func(m proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, plain(m))
	}
	list, err := r.tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{WorkspaceId: theirs["workspace_id"]}})
	add(list, err)
	for _, task := range list.GetTasks() {
		one, err := r.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: task.GetTaskId()})
		add(one, err)
	}
	queues, err := r.admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{WorkspaceId: theirs["workspace_id"]})
	add(queues, err)
	workers, err := r.admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{})
	for _, w := range workers.GetWorkers() {
		w.LastSeenAt = nil
	}
	add(workers, err)
	status, err := r.admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
	if err == nil && (status.GetLeases() != 1 || status.GetSessions() != 1) {
		t.Errorf("%d leases and %d sessions, want one of each", status.GetLeases(), status.GetSessions())
	}
	add(&lessorv1.GetStatusResponse{Leases: status.GetLeases(), Sessions: status.GetSessions()}, err)
	tokens, err := lessorv1.NewAuthServiceClient(r.conn).ListTokens(ctx, &lessorv1.ListTokensRequest{})
	add(tokens, err)
	audit, err := r.admin.ListAuditEvents(ctx, &lessorv1.ListAuditEventsRequest{})
	add(audit, err)
	if len(list.GetTasks()) != 3 || len(queues.GetQueues()) != 1 || len(workers.GetWorkers()) != 1 {
		t.Fatalf("the inventory is not whole: %q", all)
	}
	return strings.Join(all, "\n")
}

// X2, V2: what a worker says on its stream of another tenant's lease, session or instance is answered as if these were nobody's.
func TestOtherTenantsNamesInFrames(t *testing.T) {
	t.Attr("rules", "X2 V2 W8")
	cfg := noHeartbeats
	cfg.Auth = &Auth{}
	serveWith(t, nil, cfg, func(t *testing.T, r *rig) {
		victim, theirs := r.victim(t)
		before := r.inventory(victim, t, theirs)
		token, _ := r.issue(t, "evil", auth.Worker)
		heard := map[bool]string{}
		for own, with := range map[bool]names{false: theirs, true: nobodys} {
			heard[own] = r.bearing(token).tellOf(t, with)
		}
		if heard[false] != heard[true] {
			t.Errorf("another tenant's\n%s\nnobody's\n%s", heard[false], heard[true])
		}
		if after := r.inventory(victim, t, theirs); after != before {
			t.Errorf("the other tenant has changed: before\n%s\nafter\n%s", before, after)
		}
	})
}

// tellOf has a worker speak of names in each frame that can have some, and returns the answers.
func (r *rig) tellOf(t *testing.T, with names) string {
	t.Helper()
	tk := r.talk(t, "evil-worker")
	defer tk.cut()
	tk.tenant = "evil"
	a := &lessorv1.Assignment{Task: &lessorv1.Task{TaskId: with["task_id"]}, LeaseId: with["lease_id"]}
	greeting := hello("evil-worker")
	greeting.ReplacesInstanceId = with["worker_id"]
	tk.say(greeting)
	hear[*lessorv1.Accept](tk)
	registers := registration(1)
	registers.WorkspaceId, registers.Queues = with["workspace_id"], []string{with["queue"]}
	tk.say(registers)
	tk.say(&lessorv1.Reports{Reports: []*lessorv1.Report{started(a), completed(a, "x"), released(a)}})
	tk.say(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{{TaskId: with["task_id"], LeaseId: with["lease_id"]}}})
	tk.say(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{feedback(a, "x", "y")}})
	synctest.Wait()
	resumes := r.talk(t, "evil-worker")
	defer resumes.cut()
	resumes.tenant = "evil"
	greeting = hello("evil-worker")
	greeting.Resume = &lessorv1.Resume{SessionId: with["session_id"], SessionToken: "x"}
	resumes.say(greeting)
	synctest.Wait()
	var said []string
	for _, one := range []*talker{tk, resumes} {
		for len(one.heard) > 0 {
			if m := <-one.heard; m != nil {
				m.Ts = nil
				said = append(said, plain(m))
			}
		}
	}
	text := strings.Join(said, "\n")
	for _, field := range slices.Sorted(maps.Keys(with)) {
		text = strings.ReplaceAll(text, with[field], "NAME")
	}
	if !strings.Contains(text, "UNKNOWN_TASK") || !strings.Contains(text, codeToken) {
		t.Errorf("not everything was answered: %s", text)
	}
	return text
}
