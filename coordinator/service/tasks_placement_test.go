package service_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W12, S1: GetTask and the assignment show the requirements, affinity and resources of a task as
// they were submitted, with their defaults.
func TestPlacementIsKept(t *testing.T) {
	t.Attr("rules", "W12 S1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		want := placedSpec()
		want.Affinity = &lessorv1.Affinity{Key: "s"}
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { proto.Merge(s, want) }).GetTaskId()
		want.Affinity.Mode, want.Affinity.Ttl = lessorv1.AffinityMode_AFFINITY_MODE_PREFERRED, durationpb.New(10*time.Minute)
		check := func(got *lessorv1.TaskSpec) {
			if !proto.Equal(got.GetRequirements(), want.GetRequirements()) || !proto.Equal(got.GetAffinity(), want.GetAffinity()) ||
				!slices.EqualFunc(got.GetResourceRefs(), want.GetResourceRefs(), func(a, b *lessorv1.ResourceRef) bool { return proto.Equal(a, b) }) {
				t.Errorf("the spec is %v, want the placement of %v", got, want)
			}
		}
		check(r.Get(t, id).GetSpec())
		res, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{
			WorkerId: "gpu-1", Queues: []string{"q"}, Capabilities: &lessorv1.Capabilities{
				Runtimes: []string{"python3"}, Features: []string{"avx"}, Labels: map[string]string{"zone": "b"},
				Resources: map[string]float64{"vram_gb": 80, "cpu": 2},
			},
		})
		if err != nil || len(res.GetAssignments()) != 1 {
			t.Fatalf("lease: %v (%v)", res, err)
		}
		check(res.GetAssignments()[0].GetTask().GetSpec())
	})
}

// W12: when a resource of a waiting task expires, the task is FAILED at that time.
func TestExpiredResourceFailsTheTask(t *testing.T) {
	t.Attr("rules", "W12")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		until := timestamppb.New(time.Now().Add(time.Minute))
		id := r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.ResourceRefs = []*lessorv1.ResourceRef{
				{ResourceId: "r", WorkerId: "w"},
				{ResourceId: "s", WorkerId: "w", ExpiresAt: until},
			}
		}).GetTaskId()
		time.Sleep(time.Minute - time.Millisecond)
		if s := r.Get(t, id).GetState(); s != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("before the resource expires the task is %v, want READY", s)
		}
		time.Sleep(200 * time.Millisecond)
		got := r.Get(t, id)
		if got.GetReason() != lessorv1.Reason_REASON_RESOURCE_GONE || !proto.Equal(got.GetFinishedAt(), until) {
			t.Errorf("the task is %v for %v since %v, want RESOURCE_GONE at %v",
				got.GetState(), got.GetReason(), got.GetFinishedAt().AsTime(), until.AsTime())
		}
		x, err := r.Tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: id})
		if err != nil || !strings.Contains(x.GetSummary(), "a resource that it needs has expired") {
			t.Errorf("ExplainTask says %q (%v), want that a resource has expired", x.GetSummary(), err)
		}
	})
}

// W12: a task whose resources are held by a worker that is not connected is FAILED after the
// configured time.
func TestResourceWaitIsConfigured(t *testing.T) {
	t.Attr("rules", "W12")
	const wait = 10 * time.Second
	wiretest.ServeWith(t, nil, coordinator.Config{Sessions: session.Config{ResourceWait: wait}}, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.ResourceRefs = []*lessorv1.ResourceRef{{ResourceId: "r", WorkerId: "w"}} }).GetTaskId()
		time.Sleep(wait - time.Second)
		if s := r.Get(t, id).GetState(); s != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("a second before the end of the wait the task is %v, want READY", s)
		}
		time.Sleep(2 * time.Second)
		if got := r.Get(t, id); got.GetReason() != lessorv1.Reason_REASON_RESOURCE_GONE {
			t.Errorf("a second after the wait the task is %v for %v, want RESOURCE_GONE", got.GetState(), got.GetReason())
		}
		wiretest.WantContains(t, "the log", r.Log.String(), `"level":"WARN","msg":"a task has failed: the worker that has its resources is gone","tenant":"default","task_id":"`+id+`"`)
	})
}

// W12, S4: a bad field of the placement is refused with its name. The resources of a task must all
// be of one worker.
func TestBadPlacementIsRefused(t *testing.T) {
	t.Attr("rules", "W12 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		spec := func(change func(*lessorv1.TaskSpec)) error {
			s := placedSpec()
			change(s)
			return wiretest.ErrOf(r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: s}))
		}
		for field, err := range map[string]error{
			"task.resource_refs[1].worker_id":    spec(func(s *lessorv1.TaskSpec) { s.ResourceRefs[1].WorkerId = "gpu-2" }),
			"task.resource_refs[0].expires_at":   spec(func(s *lessorv1.TaskSpec) { s.ResourceRefs[0].ExpiresAt.Nanos = -1 }),
			"task.resource_refs":                 spec(func(s *lessorv1.TaskSpec) { s.ResourceRefs = make([]*lessorv1.ResourceRef, 33) }),
			`task.requirements.resources["cpu"]`: spec(func(s *lessorv1.TaskSpec) { s.Requirements.Resources["cpu"] = 0 }),
			"task.affinity.mode":                 spec(func(s *lessorv1.TaskSpec) { s.Affinity.Mode = 3 }),
			"task.affinity.ttl":                  spec(func(s *lessorv1.TaskSpec) { s.Affinity.Ttl = durationpb.New(time.Millisecond) }),
			"task.trace_meta.host_node_id":       spec(func(s *lessorv1.TaskSpec) { s.TraceMeta = &lessorv1.TraceMeta{HostNodeId: wiretest.Text(257)} }),
			"filter.host_node_id":                wiretest.ErrOf(r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{HostNodeId: wiretest.Text(257)}})),
			"capabilities.runtimes[0]":           leaseFor(t, r, &lessorv1.Capabilities{Runtimes: []string{""}}),
			`capabilities.resources["a"]`:        leaseFor(t, r, &lessorv1.Capabilities{Resources: map[string]float64{"a": -1}}),
			"capabilities.concurrency.per_type_limits": leaseFor(t, r, &lessorv1.Capabilities{
				Concurrency: &lessorv1.Concurrency{PerTypeLimits: map[string]uint32{wiretest.Text(257): 1}},
			}),
		} {
			wiretest.WantBadField(t, err, field)
		}
	})
}

// leaseFor returns the error of a Lease with these capabilities.
func leaseFor(t *testing.T, r *wiretest.Rig, c *lessorv1.Capabilities) error {
	t.Helper()
	return wiretest.ErrOf(r.Workers.Lease(t.Context(),
		&lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}, Capabilities: c}))
}

// An artifact belongs to the worker that holds the lease, unless the report names another worker.
func TestArtifactsHaveTheirWorker(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		a := r.Lease(t)
		req := &lessorv1.CompleteRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), WorkerId: "somebody else",
			Artifacts: []*lessorv1.Artifact{{ResourceId: "mine"}, {ResourceId: "theirs", WorkerId: "other"}},
		}
		for range 2 { // the second one is a repeat of the same report (V13)
			if res, err := r.Workers.Complete(t.Context(), req); err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Fatalf("complete: %v (%v)", res, err)
			}
		}
		got := r.Get(t, a.GetTask().GetTaskId()).GetArtifacts()
		if len(got) != 2 || got[0].GetWorkerId() != "w" || got[1].GetWorkerId() != "other" {
			t.Errorf("the artifacts are %v, want one of worker w and one of worker other", got)
		}
	})
}

// placedSpec returns a spec with requirements, resources and an affinity.
func placedSpec() *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: "q",
		Requirements: &lessorv1.Requirements{
			Runtimes: []string{"python3"}, Features: []string{"avx"},
			Labels: map[string]string{"zone": "b"}, Resources: map[string]float64{"vram_gb": 40.5, "cpu": 2},
		},
		ResourceRefs: []*lessorv1.ResourceRef{
			{
				ResourceId: "model", WorkerId: "gpu-1", Type: "weights", Scope: "run",
				ExpiresAt: timestamppb.New(time.Unix(1_900_000_000, 0)), Metadata: map[string]string{"sha": "1"},
			},
			{ResourceId: "data", WorkerId: "gpu-1"},
		},
		Affinity: &lessorv1.Affinity{
			Key: "s", Mode: lessorv1.AffinityMode_AFFINITY_MODE_STICKY,
			Ttl: durationpb.New(time.Minute),
		},
	}
}
