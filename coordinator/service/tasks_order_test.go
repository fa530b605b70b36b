package service_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// Whatever a filter selects and however it is divided into pages, the list with the newest task
// first is the other one in reverse. A page token of one of them is refused for the other.
func TestNewestFirstIsTheReverse(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	defer func(most int) { *service.MaxScan = most }(*service.MaxScan)
	*service.MaxScan = 7
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		w := newListedWorld(t, rnd, r)
		markOlderTasks(t, st, w.tasks[len(w.tasks)/3].GetTaskId())
		found := map[string]int{}
		compare := func(filter *lessorv1.TaskFilter) int {
			t.Helper()
			want := listInPages(t, rnd, r, &lessorv1.ListTasksRequest{Filter: filter})
			slices.Reverse(want)
			if got := listInPages(t, rnd, r, &lessorv1.ListTasksRequest{Filter: filter, NewestFirst: true}); !slices.Equal(got, want) {
				t.Errorf("%v: newest first the tasks are %q, want %q", filter, got, want)
			}
			return len(want)
		}
		if n := compare(nil); n < 10 {
			t.Fatalf("there are only %d tasks", n)
		}
		fields := (&lessorv1.TaskFilter{}).ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			name := string(fields.Get(i).Name())
			if w.conditions[name] == nil {
				t.Fatalf("the test has no condition %s", name)
			}
			for tries := 0; tries < 4 || found[name] == 0 && tries < 100; tries++ { // a value may select none
				filter := &lessorv1.TaskFilter{}
				w.conditions[name](filter)
				found[name] += compare(filter)
			}
			if found[name] == 0 {
				t.Errorf("no task was selected by %s", name)
			}
		}
		for range 40 {
			filter := &lessorv1.TaskFilter{}
			for _, name := range slices.Sorted(maps.Keys(w.conditions)) {
				if rnd.IntN(4) == 0 {
					w.conditions[name](filter)
				}
			}
			compare(filter)
		}
	})
}

// listInPages returns the ids of the tasks of a list, in the order of its pages, which have a
// random size.
func listInPages(t *testing.T, rnd *rand.Rand, r *wiretest.Rig, req *lessorv1.ListTasksRequest) (ids []string) {
	t.Helper()
	req.PageSize = []uint32{1, 3, 1000}[rnd.IntN(3)]
	for pages := 0; ; pages++ {
		page, err := r.Tasks.ListTasks(t.Context(), req)
		if err != nil || pages > 100 { // there are fewer tasks
			t.Fatalf("page %d of %v: %v", pages, req, err)
		}
		for _, task := range page.GetTasks() {
			ids = append(ids, task.GetTaskId())
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return ids
		}
		if rnd.IntN(8) == 0 {
			other := proto.Clone(req).(*lessorv1.ListTasksRequest)
			other.NewestFirst = !req.GetNewestFirst()
			wiretest.WantBadField(t, wiretest.ErrOf(r.Tasks.ListTasks(t.Context(), other)), "page_token")
		}
	}
}

// listedWorld is a coordinator with tasks of all kinds, and conditions that select some of them, by
// the names of their fields.
type listedWorld struct {
	tasks      []*lessorv1.Task // those of the default workspace
	failed     bool             // one of these has an error
	conditions map[string]func(*lessorv1.TaskFilter)
}

// failWith fails an attempt with an error of a category.
func failWith(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment, category lessorv1.ErrorCategory) {
	t.Helper()
	_, err := r.Workers.Fail(t.Context(), &lessorv1.FailRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{Category: category, Message: "no"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func newListedWorld(t *testing.T, rnd *rand.Rand, r *wiretest.Rig) *listedWorld {
	t.Helper()
	w := &listedWorld{}
	began := time.Now()
	one := func(names ...string) string { return names[rnd.IntN(len(names))] }
	const total = 60
	for i := range total {
		time.Sleep(time.Second)
		task := r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.Queue, s.WorkspaceId, s.Type, s.RunId = one("a", "b"), one("", "", "ws"), one("", "t"), one("", "r", "s")
			s.Labels, s.IdempotencyKey = map[string]string{"n": one("0", "1")}, fmt.Sprint("key", i)
			if rnd.IntN(2) == 0 {
				s.ConcurrencyKey, s.ConcurrencyLimit = "k", total
			}
			s.HeartbeatTimeout, s.TraceMeta = durationpb.New(time.Hour), &lessorv1.TraceMeta{HostNodeId: one("", "h")}
			if rnd.IntN(3) == 0 {
				s.StartTimeout = durationpb.New(time.Second)
			}
		})
		if task.GetSpec().GetWorkspaceId() == "default" {
			w.tasks = append(w.tasks, task)
		}
		if i%2 == 0 {
			w.work(t, rnd, r, one("", "ws"), one("w1", "w2"))
		}
	}
	const half = total / 2 * time.Second
	early := func() *timestamppb.Timestamp {
		return timestamppb.New(began.Add(time.Duration(rnd.Int64N(int64(half)))))
	}
	late := func() *timestamppb.Timestamp { return timestamppb.New(early().AsTime().Add(half)) }
	w.conditions = map[string]func(*lessorv1.TaskFilter){
		"workspace_id":    func(f *lessorv1.TaskFilter) { f.WorkspaceId = one("default", "ws", "none") },
		"queue":           func(f *lessorv1.TaskFilter) { f.Queue = one("a", "b") },
		"run_id":          func(f *lessorv1.TaskFilter) { f.RunId = one("r", "s") },
		"type":            func(f *lessorv1.TaskFilter) { f.Type = "t" },
		"labels":          func(f *lessorv1.TaskFilter) { f.Labels = map[string]string{"n": one("0", "1")} },
		"host_node_id":    func(f *lessorv1.TaskFilter) { f.HostNodeId = "h" },
		"concurrency_key": func(f *lessorv1.TaskFilter) { f.ConcurrencyKey = "k" },
		"idempotency_key": func(f *lessorv1.TaskFilter) {
			f.IdempotencyKey = w.tasks[rnd.IntN(len(w.tasks))].GetSpec().GetIdempotencyKey()
		},
		"worker_id":       func(f *lessorv1.TaskFilter) { f.WorkerId = one("w1", "w2") },
		"created_after":   func(f *lessorv1.TaskFilter) { f.CreatedAfter = early() },
		"created_before":  func(f *lessorv1.TaskFilter) { f.CreatedBefore = late() },
		"finished_after":  func(f *lessorv1.TaskFilter) { f.FinishedAfter = early() },
		"finished_before": func(f *lessorv1.TaskFilter) { f.FinishedBefore = late() },
		"reasons":         func(f *lessorv1.TaskFilter) { f.Reasons = []lessorv1.Reason{lessorv1.Reason_REASON_START_TIMEOUT} },
		"error_categories": func(f *lessorv1.TaskFilter) {
			f.ErrorCategories = []lessorv1.ErrorCategory{lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE}
		},
		"states": func(f *lessorv1.TaskFilter) {
			f.States = [][]lessorv1.TaskState{
				{lessorv1.TaskState_TASK_STATE_READY},
				{lessorv1.TaskState_TASK_STATE_FAILED, lessorv1.TaskState_TASK_STATE_COMPLETED},
				{lessorv1.TaskState_TASK_STATE_LEASED, lessorv1.TaskState_TASK_STATE_RUNNING},
			}[rnd.IntN(3)]
		},
	}
	return w
}

// work has a worker take a task, if one waits, and perhaps go on with it.
func (w *listedWorld) work(t *testing.T, rnd *rand.Rand, r *wiretest.Rig, workspace, worker string) {
	t.Helper()
	res, err := r.Workers.Lease(t.Context(),
		&lessorv1.LeaseRequest{WorkerId: worker, WorkspaceId: workspace, Queues: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range res.GetAssignments() {
		outcome := rnd.IntN(5)
		if workspace == "" && !w.failed {
			outcome, w.failed = 2, true
		}
		switch outcome {
		case 0:
			r.Complete(t, a, "")
		case 1:
			r.Start(t, a)
		case 2:
			failWith(t, r, a, lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE)
		}
	}
}
