package service_test

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// The age of the oldest READY task does not depend on its place: a newer task of a higher priority,
// another line or a restart does not hide it. Leased, parked and scheduled tasks do not count.
func TestAgeOfTheOldestReadyTask(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		r.WantMetric(t, "lessor_oldest_ready_seconds", 0)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunAt = timestamppb.New(time.Now().Add(100 * time.Hour)) })
		time.Sleep(time.Hour)
		r.WantMetric(t, "lessor_oldest_ready_seconds", 0)
		oldest := r.Submit(t, nil)
		time.Sleep(time.Hour)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Priority = 1 })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.FairnessKey = "other" })
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = "other", "far" })
		time.Sleep(time.Hour)
		r.WantMetric(t, "lessor_oldest_ready_seconds", 2*3600)

		r.Close(t)
		r = wiretest.New(t, st)
		time.Sleep(time.Minute)
		r.WantMetric(t, "lessor_oldest_ready_seconds", 2*3600+60)
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: oldest.GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		r.WantMetric(t, "lessor_oldest_ready_seconds", 3600+60)
		r.Lease(t)
		r.Lease(t)
		if _, err := r.Tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{WorkspaceId: "other"}, All: true}); err != nil {
			t.Fatal(err)
		}
		r.WantMetric(t, "lessor_oldest_ready_seconds", 0)
		r.Close(t)
	})
}

// Each queue of a workspace shows its oldest READY task, and for how long it has been so. Leased,
// parked and scheduled tasks do not count, nor do other workspaces.
func TestAgeOfTheOldestReadyTaskOfAQueue(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		first := map[string]string{} // the first tasks of the queues that have one READY
		want := func(workspace string, ages map[string]time.Duration) {
			t.Helper()
			list, err := r.Admin.ListQueues(t.Context(), &lessorv1.ListQueuesRequest{WorkspaceId: workspace})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range list.GetQueues() {
				age, found := ages[q.GetName()]
				if d := q.GetOldestReady(); (d != nil) != found || d.AsDuration() != age {
					t.Errorf("%s/%s: oldest_ready is %v, want %v", workspace, q.GetName(), d, age)
				}
				oldest := ""
				if found {
					oldest = first[workspace+"/"+q.GetName()]
				}
				if got := q.GetOldestReadyTaskId(); got != oldest {
					t.Errorf("%s/%s: oldest_ready_task_id is %q, want %q", workspace, q.GetName(), got, oldest)
				}
				one, err := r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{WorkspaceId: workspace, Name: q.GetName()})
				if err != nil || !proto.Equal(one.GetQueue(), q) {
					t.Errorf("GetQueue has %v (%v), ListQueues %v", one, err, q)
				}
			}
			if len(list.GetQueues()) < len(ages) {
				t.Errorf("%s has the queues %v, want those of %v", workspace, list, ages)
			}
		}
		in := func(workspace, queue string) func(*lessorv1.TaskSpec) {
			return func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = workspace, queue }
		}
		want("default", nil)
		first["other/a"] = r.Submit(t, in("other", "a")).GetTaskId()
		time.Sleep(time.Hour)
		r.Submit(t, in("", "q")) // is leased below
		first["default/a"] = r.Submit(t, in("", "a")).GetTaskId()
		r.Submit(t, in("", "a")) // is as old, and behind it
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.RunAt = "later", timestamppb.New(time.Now().Add(100*time.Hour)) })
		time.Sleep(time.Hour)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.Priority, s.FairnessKey = "a", 1, "new" })
		first["default/b"] = r.Submit(t, in("", "b")).GetTaskId()
		r.Lease(t)
		time.Sleep(time.Second)
		want("default", map[string]time.Duration{"a": time.Hour + time.Second, "b": time.Second})
		want("other", map[string]time.Duration{"a": 2*time.Hour + time.Second})
		want("nowhere", nil)
	})
}

// Tasks that are READY again after an attempt have their old places in front of others, and do not
// hide one that has been READY for longer. If there are more of them than one scrape looks at, the
// next scrapes look at those behind.
func TestRetriedTasksDoNotHideOlderOnes(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const retried = 100
		for range retried + 2 {
			r.Submit(t, nil)
		}
		for range retried {
			r.Lease(t) // nobody acknowledges it
		}
		time.Sleep(time.Hour)
		r.WantMetric(t, "lessor_oldest_ready_seconds", 3600)
		q, err := r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"})
		if d := q.GetQueue().GetOldestReady().AsDuration(); err != nil || d != time.Hour {
			t.Errorf("oldest_ready is %v (%v), want 1h", d, err)
		}
		defer func(most int) { *service.MostHeads = most }(*service.MostHeads)
		*service.MostHeads = retried / 2
		if found := threeScrapes(t, r); !found["3600"] {
			t.Errorf("three scrapes found the ages %v, want the oldest, 3600 s, among them", found)
		}
	})
}

// If there are more lines than one scrape looks at, the next scrapes look at the others in turn.
func TestAgeOfTheOldestReadyTaskOfManyLines(t *testing.T) {
	defer func(most int) { *service.MostHeads = most }(*service.MostHeads)
	*service.MostHeads = 2
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for i := range 5 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Type = fmt.Sprint(i) })
			time.Sleep(time.Second)
		}
		if found := threeScrapes(t, r); !found["5"] {
			t.Errorf("three scrapes found the ages %v, want the oldest, 5 s, among them", found)
		}
	})
}

// If not all tasks of a queue were looked at that may have been READY the longest, it says that its
// age may be too low: also if these are tasks of one line.
func TestAgeThatMayBeTooLow(t *testing.T) {
	defer func(most int) { *service.MostHeads = most }(*service.MostHeads)
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for priority := range 3 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Priority = int32(priority) })
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Priority = int32(priority) }) // behind it, and so no older
		}
		for most, want := range map[int]bool{2: true, 3: false} {
			*service.MostHeads = most
			if got := wantQueue(t, r).GetOldestReadyAtLeast(); got != want {
				t.Errorf("of a line of three priorities it looks at %d tasks: oldest_ready_at_least is %v, want %v",
					most, got, want)
			}
		}
	})
}

// A queue with many lines takes nothing away from one with few: of that, all tasks are looked at
// that may be the oldest.
func TestManyLinesDoNotHideTheOldestTaskOfAnotherQueue(t *testing.T) {
	defer func(most int) { *service.MostHeads = most }(*service.MostHeads)
	*service.MostHeads = 10
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		want := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "few" }).GetTaskId()
		for i := range 20 {
			time.Sleep(time.Second)
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.FairnessKey = "many", fmt.Sprint(i) })
		}
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.Priority = "few", 9 })
		list, err := r.Admin.ListQueues(t.Context(), &lessorv1.ListQueuesRequest{})
		if err != nil || len(list.GetQueues()) != 2 {
			t.Fatalf("ListQueues has %v (%v)", list, err)
		}
		for _, q := range list.GetQueues() {
			if q.GetName() == "few" && (q.GetOldestReadyTaskId() != want || q.GetOldestReadyAtLeast()) {
				t.Errorf("queue few has the oldest task %s for at least: %v, want %s for certain",
					q.GetOldestReadyTaskId(), q.GetOldestReadyAtLeast(), want)
			}
			if q.GetName() == "many" && !q.GetOldestReadyAtLeast() {
				t.Error("queue many has more lines than are looked at, and does not say so")
			}
		}
	})
}

// threeScrapes returns the ages that three scrapes find, in whole seconds.
func threeScrapes(t *testing.T, r *wiretest.Rig) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for range 3 {
		metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
		found[regexp.MustCompile(`\nlessor_oldest_ready_seconds (\d+)`).FindStringSubmatch(metrics)[1]] = true
	}
	return found
}

// A queue shows its oldest READY task however many lines other queues have. If it has more lines
// than one call looks at, it shows the oldest of those from which no task was granted for the
// longest, and says that there may be an older one.
func TestOldestReadyTaskOfAQueueBesideManyLines(t *testing.T) {
	defer func(most int) { *service.MostHeads = most }(*service.MostHeads)
	*service.MostHeads = 5 // as many tasks as each of the small queues has
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const lines = 100
		want := map[string]string{}
		submit := func(queue string, line, priority int) {
			res := r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.Queue, s.FairnessKey, s.Priority = queue, fmt.Sprint(line), int32(priority)
			})
			if want[queue] == "" {
				want[queue] = res.GetTaskId()
			}
			time.Sleep(time.Second)
		}
		for line := range lines {
			submit("many", line, 0)
		}
		for _, queue := range []string{"after", "before", "zero"} {
			submit(queue, 0, 0)
			submit(queue, 0, 5)
			for line := range 3 {
				submit(queue, line, 9)
			}
		}
		list, err := r.Admin.ListQueues(t.Context(), &lessorv1.ListQueuesRequest{})
		if err != nil || len(list.GetQueues()) != len(want) {
			t.Fatalf("ListQueues has %v (%v)", list, err)
		}
		for _, q := range list.GetQueues() {
			one, err := r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: q.GetName()})
			if err != nil || one.GetQueue().GetOldestReadyTaskId() != want[q.GetName()] || one.GetQueue().GetOldestReadyAtLeast() != (q.GetName() == "many") {
				t.Errorf("GetQueue has %v (%v), want the oldest task %s, and only for many that there may be an older one", one, err, want[q.GetName()])
			}
			if !q.GetOldestReadyAtLeast() {
				t.Errorf("ListQueues looks at 5 tasks of these queues, which have more, and says that %s is the oldest of %s", q.GetOldestReadyTaskId(), q.GetName())
			}
			if got := q.GetOldestReadyTaskId(); got == "" || q.GetName() == "many" && got != want["many"] {
				t.Errorf("ListQueues has %q as the oldest task of %s", got, q.GetName())
			}
		}
	})
}
