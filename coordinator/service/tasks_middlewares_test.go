package service_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// submitMounted submits a task that is mounted on a host. A negative index leaves chain_index out.
func submitMounted(t *testing.T, r *wiretest.Rig, run, key, host string, index int) *lessorv1.Task {
	t.Helper()
	return r.Submit(t, func(s *lessorv1.TaskSpec) {
		s.RunId, s.TaskKey, s.TraceMeta = run, key, &lessorv1.TraceMeta{HostNodeId: host}
		if index >= 0 {
			s.TraceMeta.ChainIndex = proto.Uint32(uint32(index))
		}
	})
}

func taskKeys(all []*lessorv1.Middleware) string {
	var keys []string
	for _, m := range all {
		keys = append(keys, m.GetTaskKey())
	}
	return strings.Join(keys, " ")
}

// S1: GetTask of a host shows the tasks that are mounted on it, in the order of the chain. A task
// of the same run names its host by task_key or by id.
func TestHostShowsItsMiddlewares(t *testing.T) {
	t.Attr("rules", "S1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		host := r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.RunId, s.TaskKey, s.TraceMeta = "run", "host", &lessorv1.TraceMeta{MiddlewareChain: []string{"log", "cache", "id"}}
		})
		last := submitMounted(t, r, "run", "unplaced", "host", -1)
		cache := submitMounted(t, r, "run", "cache", "host", 1)
		submitMounted(t, r, "run", "log", "host", 0)
		submitMounted(t, r, "run", "id", host.GetTaskId(), 2)
		submitMounted(t, r, "other run", "other", "host", 0)
		submitMounted(t, r, "run", "another's", "else", 0)
		got := r.Get(t, host.GetTaskId())
		wiretest.WantEqual(t, "middlewares", taskKeys(got.GetMiddlewares()), "log cache id unplaced")
		wiretest.WantEqual(t, "middlewares of a middleware", taskKeys(r.Get(t, cache.GetTaskId()).GetMiddlewares()), "")
		if m := got.GetMiddlewares()[3]; m.GetTaskId() != last.GetTaskId() || m.ChainIndex != nil || m.GetState() != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("the last middleware is %v, want task %s, READY, without chain_index", m, last.GetTaskId())
		}
		if chain := got.GetSpec().GetTraceMeta(); chain.ChainIndex != nil || len(chain.GetMiddlewareChain()) != 3 {
			t.Errorf("the host's trace_meta is %v, want a chain of 3 and no chain_index", chain)
		}
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: last.GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		wiretest.WantEqual(t, "middlewares", taskKeys(r.Get(t, host.GetTaskId()).GetMiddlewares()), "log cache id")
	})
}

// Without a run, a task must name its host by id, because a task_key is unique only within a run. A
// host shows at most 64 middlewares.
func TestMiddlewaresAreBounded(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		host := r.Submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey = "host" })
		submitMounted(t, r, "", "by name", "host", 0)
		for i := range 70 {
			submitMounted(t, r, "", fmt.Sprint(i), host.GetTaskId(), i)
		}
		got := r.Get(t, host.GetTaskId()).GetMiddlewares()
		if len(got) != 64 || got[0].GetTaskKey() != "0" || got[63].GetTaskKey() != "63" {
			t.Errorf("%d middlewares: %s, want 64, from 0 to 63", len(got), taskKeys(got))
		}
	})
}

// T9: host_node_id alone is a sufficient filter to list and to cancel tasks.
func TestFilterByHost(t *testing.T) {
	t.Attr("rules", "T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		submitMounted(t, r, "run", "a", "host", 0)
		submitMounted(t, r, "run", "b", "other", 0)
		submitMounted(t, r, "run", "c", "host", 1)
		r.Submit(t, nil)
		filter := &lessorv1.TaskFilter{HostNodeId: "host"}
		list := func() string {
			res, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{Filter: filter})
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, task := range res.GetTasks() {
				keys = append(keys, task.GetSpec().GetTaskKey()+" "+task.GetState().String())
			}
			return strings.ReplaceAll(strings.Join(keys, ", "), "TASK_STATE_", "")
		}
		wiretest.WantEqual(t, "listed", list(), "a READY, c READY")
		res, err := r.Tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{Filter: filter})
		if err != nil || res.GetResult().GetChanged() != 2 {
			t.Errorf("cancelled: %v (%v), want 2", res, err)
		}
		wiretest.WantEqual(t, "listed", list(), "a CANCELLED, c CANCELLED")
	})
}
