package coordinator_test

import (
	"cmp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// withUnknownField adds a field to a message that this version does not know, as a newer client
// would.
func withUnknownField[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "of tomorrow"))
	return m
}

// refusedUnknown reports whether err refuses the field of withUnknownField in the message at this
// path.
func refusedUnknown(err error, path string) bool {
	st := status.Convert(err)
	v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations()
	return st.Code() == codes.InvalidArgument && len(v) == 1 && v[0].GetField() == path &&
		strings.Contains(v[0].GetDescription(), "field 999")
}

// S4: an unknown field is refused in each call of producers and operators, but accepted in the
// calls of workers.
func TestUnknownFieldOfEachCall(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		operator, _ := r.Issue(t, "acme", auth.Operator)
		worker, _ := r.Issue(t, "acme", auth.Worker)
		for _, method := range r.Methods() {
			ctx := t.Context()
			switch {
			case !strings.HasPrefix(method, "/lessor."):
				continue
			case strings.HasPrefix(method, "/lessor.v1.WorkerService/"):
				if err := r.InvokeWith(wiretest.WithToken(ctx, worker), method, withUnknownField(&emptypb.Empty{})); refusedUnknown(err, "request") {
					t.Errorf("%s: %v, want the unknown field to be accepted", method, err)
				}
			default:
				if err := r.InvokeWith(wiretest.WithToken(ctx, operator), method, withUnknownField(&emptypb.Empty{})); !refusedUnknown(err, "request") {
					t.Errorf("%s: %v, want a refusal of the unknown field", method, err)
				}
			}
		}
	})
}

// S4: an unknown field is refused in every part of a spec, because the field could forbid that some
// worker gets the task.
func TestUnknownFieldOfASpec(t *testing.T) {
	t.Attr("rules", "S4")
	spec := func() *lessorv1.TaskSpec { return &lessorv1.TaskSpec{Queue: "q"} }
	specs := map[string]*lessorv1.TaskSpec{"": withUnknownField(spec())}
	for i, fields := 0, spec().ProtoReflect().Descriptor().Fields(); i < fields.Len(); i++ {
		f := fields.Get(i)
		if f.Message() == nil || f.IsMap() || !strings.HasPrefix(string(f.Message().FullName()), "lessor.") {
			continue
		}
		m := spec()
		if path := "." + string(f.Name()); f.IsList() {
			list := m.ProtoReflect().Mutable(f).List()
			list.Append(list.NewElement())
			withUnknownField(list.AppendMutable().Message().Interface())
			specs[path+"[1]"] = m
		} else {
			withUnknownField(m.ProtoReflect().Mutable(f).Message().Interface())
			specs[path] = m
		}
	}
	if len(specs) < 6 {
		t.Fatalf("a spec has only %d places for an unknown field, want at least 6", len(specs))
	}
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for path, m := range specs {
			if _, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: m}); !refusedUnknown(err, "task"+path) {
				t.Errorf("SubmitTask with an unknown field in task%s: %v, want a refusal of it", path, err)
			}
			if _, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec(), m}}); !refusedUnknown(err, "tasks[1]"+path) {
				t.Errorf("BatchSubmitTasks with an unknown field in tasks[1]%s: %v, want a refusal of it", path, err)
			}
			if err := stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{m, spec()}}); err != nil {
				t.Fatal(err)
			}
			res, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			within := cmp.Or(strings.TrimPrefix(path, "."), "task")
			if e := res.GetResults()[0].GetError(); codes.Code(e.GetStatus()) != codes.InvalidArgument || e.GetField() != within || !res.GetResults()[1].GetCreated() {
				t.Errorf("SubmitStream with an unknown field in %s: %v, want a refusal of it and the other task", within, res)
			}
		}
	})
}

// S4: a field with the wrong wire type is refused by its name. Protobuf takes it for an unknown
// field.
func TestFieldWithTheWrongWireType(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		wrong := func(m proto.Message, number protowire.Number) {
			m.ProtoReflect().SetUnknown(protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), 1))
		}
		for want, spoil := range map[string]func(*lessorv1.SubmitTaskRequest){
			"request_id string":     func(m *lessorv1.SubmitTaskRequest) { wrong(m, 2) },
			"task.priority int32":   func(m *lessorv1.SubmitTaskRequest) { wrong(m.Task, 9) },
			"task.run_at Timestamp": func(m *lessorv1.SubmitTaskRequest) { wrong(m.Task, 10) },
			"task.labels map":       func(m *lessorv1.SubmitTaskRequest) { wrong(m.Task, 18) },
			"task.requirements.features repeated string": func(m *lessorv1.SubmitTaskRequest) {
				m.Task.Requirements = &lessorv1.Requirements{}
				wrong(m.Task.Requirements, 2)
			},
		} {
			m := &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}
			spoil(m)
			_, err := r.Tasks.SubmitTask(t.Context(), m)
			field, typ, _ := strings.Cut(want, " ")
			v := detail.Of[*errdetails.BadRequest](status.Convert(err)).GetFieldViolations()
			if status.Code(err) != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != field ||
				v[0].GetDescription() != "was sent with the wrong wire type; its type is "+typ {
				t.Errorf("%s: %v, want a refusal that names the field and its type", want, err)
			}
		}
	})
}

// S4: an unknown field in a filter is refused before any task is deleted, because the field could
// exclude tasks.
func TestUnknownFieldOfAFilter(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		task := r.Submit(t, nil)
		filter := withUnknownField(&lessorv1.TaskFilter{Queue: "q"})
		_, err := r.Tasks.BatchDeleteTasks(t.Context(), &lessorv1.BatchDeleteTasksRequest{Filter: filter})
		if !refusedUnknown(err, "filter") {
			t.Errorf("delete: %v, want a refusal of the unknown field", err)
		}
		if _, err := r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: task.GetTaskId()}); err != nil {
			t.Errorf("the task is gone: %v", err)
		}
	})
}

// V12: unknown fields in a report of a newer worker are ignored.
func TestUnknownFieldOfAReport(t *testing.T) {
	t.Attr("rules", "V12")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		a := r.Lease(t)
		res, err := r.Workers.Complete(t.Context(), withUnknownField(&lessorv1.CompleteRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(),
			Artifacts: []*lessorv1.Artifact{withUnknownField(&lessorv1.Artifact{ResourceId: "r", Type: "t"})},
		}))
		if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("the report got %v (%v), want COMMITTED", res, err)
		}
	})
}

// X5: of what a worker says of itself, fields that the coordinator does not know are neither kept
// nor shown: no limit bounds them, and an operator could not read the list of workers any more.
func TestUnknownFieldOfAWorker(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		worker.Send(&lessorv1.Handshake{Protocol: 1, Worker: withUnknownField(&lessorv1.WorkerInfo{Name: "w"})})
		wiretest.NextPayload[*lessorv1.Accept](worker)
		m := wiretest.Registration(1)
		withUnknownField(withUnknownField(m.GetCapabilities()).GetConcurrency())
		worker.Send(m)
		worker.Heartbeat()
		if bad := convert.Unknown("worker", r.ListedWorker(t, "w")); bad != nil {
			t.Errorf("the worker is shown with an unknown field: %v", bad)
		}
	})
}
