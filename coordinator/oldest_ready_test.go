package coordinator

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// The age of the oldest READY task does not depend on its place: a newer task of a higher priority, another line or a restart does not hide it. Leased,
// parked and scheduled tasks do not count.
func TestAgeOfTheOldestReadyTask(t *testing.T) {
	st := memstore.New()
	serve(t, st, func(t *testing.T, r *rig) {
		r.wantMetric(t, "lessor_oldest_ready_seconds", 0)
		r.submit(t, func(s *lessorv1.TaskSpec) { s.RunAt = timestamppb.New(time.Now().Add(100 * time.Hour)) })
		time.Sleep(time.Hour)
		r.wantMetric(t, "lessor_oldest_ready_seconds", 0)
		oldest := r.submit(t, nil)
		time.Sleep(time.Hour)
		r.submit(t, func(s *lessorv1.TaskSpec) { s.Priority = 1 })
		r.submit(t, func(s *lessorv1.TaskSpec) { s.FairnessKey = "other" })
		r.submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.Queue = "other", "far" })
		time.Sleep(time.Hour)
		r.wantMetric(t, "lessor_oldest_ready_seconds", 2*3600)

		r.close(t)
		r = newRig(t, st)
		time.Sleep(time.Minute)
		r.wantMetric(t, "lessor_oldest_ready_seconds", 2*3600+60)
		if _, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: oldest.GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		r.wantMetric(t, "lessor_oldest_ready_seconds", 3600+60)
		r.lease(t)
		r.lease(t)
		if _, err := r.tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{WorkspaceId: "other"}, All: true}); err != nil {
			t.Fatal(err)
		}
		r.wantMetric(t, "lessor_oldest_ready_seconds", 0)
		r.close(t)
	})
}

// Each queue of a workspace shows for how long its oldest READY task has been so. Leased, parked and scheduled tasks do not count, nor do other workspaces.
func TestAgeOfTheOldestReadyTaskOfAQueue(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		want := func(workspace string, ages map[string]time.Duration) {
			t.Helper()
			list, err := r.admin.ListQueues(t.Context(), &lessorv1.ListQueuesRequest{WorkspaceId: workspace})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range list.GetQueues() {
				age, found := ages[q.GetName()]
				if d := q.GetOldestReady(); (d != nil) != found || d.AsDuration() != age {
					t.Errorf("%s/%s: oldest_ready is %v, want %v", workspace, q.GetName(), d, age)
				}
				one, err := r.admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{WorkspaceId: workspace, Name: q.GetName()})
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
		r.submit(t, in("other", "a"))
		time.Sleep(time.Hour)
		r.submit(t, in("", "q")) // is leased below
		r.submit(t, in("", "a"))
		r.submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.RunAt = "later", timestamppb.New(time.Now().Add(100*time.Hour)) })
		time.Sleep(time.Hour)
		r.submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.Priority, s.FairnessKey = "a", 1, "new" })
		r.submit(t, in("", "b"))
		r.lease(t)
		time.Sleep(time.Second)
		want("default", map[string]time.Duration{"a": time.Hour + time.Second, "b": time.Second})
		want("other", map[string]time.Duration{"a": 2*time.Hour + time.Second})
		want("nowhere", nil)
	})
}

// A task that is READY again after an attempt has its old place in front of others, and does not hide those that have been READY for longer.
func TestRetriedTasksDoNotHideOlderOnes(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		const retried = 3
		for range retried + 2 {
			r.submit(t, nil)
		}
		for range retried {
			r.lease(t) // nobody acknowledges it
		}
		time.Sleep(time.Hour)
		r.wantMetric(t, "lessor_oldest_ready_seconds", 3600)
		q, err := r.admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"})
		if d := q.GetQueue().GetOldestReady().AsDuration(); err != nil || d != time.Hour {
			t.Errorf("oldest_ready is %v (%v), want 1h", d, err)
		}
	})
}

// If there are more lines than one scrape looks at, the next scrapes look at the others in turn.
func TestAgeOfTheOldestReadyTaskOfManyLines(t *testing.T) {
	defer func(most int) { mostHeads = most }(mostHeads)
	mostHeads = 2
	serve(t, nil, func(t *testing.T, r *rig) {
		for i := range 5 {
			r.submit(t, func(s *lessorv1.TaskSpec) { s.Type = fmt.Sprint(i) })
			time.Sleep(time.Second)
		}
		found := map[string]bool{}
		for range 3 {
			metrics := getPath(t, r, "/metrics", http.StatusOK)
			found[regexp.MustCompile(`\nlessor_oldest_ready_seconds (\d+)`).FindStringSubmatch(metrics)[1]] = true
		}
		if !found["5"] {
			t.Errorf("three scrapes found the ages %v, want the oldest, 5 s, among them", found)
		}
	})
}
