package service_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// wantQueue returns queue q, and checks that GetQueue and ListQueues show it alike.
func wantQueue(t *testing.T, r *wiretest.Rig) *lessorv1.Queue {
	t.Helper()
	one, err := r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.Admin.ListQueues(t.Context(), &lessorv1.ListQueuesRequest{})
	if err != nil || len(list.GetQueues()) != 1 || !proto.Equal(list.GetQueues()[0], one.GetQueue()) {
		t.Errorf("ListQueues has %v (%v), GetQueue %v", list, err, one)
	}
	return one.GetQueue()
}

// A queue shows the age and the task of the oldest lease for which its blocked tasks wait, while
// the worker sends heartbeats, and over a restart, whose downtime counts.
func TestAgeOfTheOldestBlocker(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		withKey := func(s *lessorv1.TaskSpec) { s.ConcurrencyKey = "k" }
		r.Submit(t, withKey)
		hung := r.Lease(t)
		hang := func(r *wiretest.Rig) {
			for range 60 {
				time.Sleep(10 * time.Second)
				if res, err := r.Workers.Heartbeat(t.Context(), wiretest.Renewal(hung)); err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
					t.Fatalf("the heartbeat was answered %v (%v)", res, err)
				}
			}
		}
		want := func(r *wiretest.Rig, age time.Duration) {
			t.Helper()
			id := map[bool]string{true: hung.GetTask().GetTaskId()}[age != 0]
			q := wantQueue(t, r)
			if d := q.GetOldestBlocker(); d.AsDuration() != age || (d != nil) != (age != 0) || q.GetOldestBlockerTaskId() != id {
				t.Errorf("the oldest blocker is %s, since %v; want %q, %v", q.GetOldestBlockerTaskId(), d, id, age)
			}
		}
		hang(r)
		want(r, 0)
		r.Submit(t, withKey)
		if _, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "other", Queues: []string{"q"}}); err != nil {
			t.Fatal(err)
		}
		want(r, 10*time.Minute)
		hang(r)
		want(r, 20*time.Minute)

		r.Close(t)
		time.Sleep(time.Hour)
		r = wiretest.New(t, st)
		want(r, 80*time.Minute)
		hang(r)
		want(r, 90*time.Minute)
		r.Complete(t, hung, "")
		want(r, 0)
		r.Close(t)
	})
}

// A paused queue shows since when it is, over other updates and a restart; one that is resumed does
// not.
func TestQueueShowsSinceWhenItIsPaused(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		update := func(req *lessorv1.UpdateQueueRequest) *lessorv1.Queue {
			t.Helper()
			req.Name = "q"
			res, err := r.Admin.UpdateQueue(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return res.GetQueue()
		}
		want := func(q *lessorv1.Queue, since time.Time) {
			t.Helper()
			if at := q.GetPausedAt(); (at != nil) == since.IsZero() || at != nil && !at.AsTime().Equal(since) {
				t.Errorf("it is paused since %v, want %v", at, since)
			}
		}
		want(update(&lessorv1.UpdateQueueRequest{}), time.Time{})
		time.Sleep(time.Second)
		since := time.Now()
		want(update(&lessorv1.UpdateQueueRequest{Paused: new(true)}), since)
		time.Sleep(time.Hour)
		want(update(&lessorv1.UpdateQueueRequest{Paused: new(true), MaxInflight: new(uint32(3))}), since)
		r.Close(t)
		r = wiretest.New(t, st)
		want(wantQueue(t, r), since)
		want(update(&lessorv1.UpdateQueueRequest{Paused: new(false)}), time.Time{})
		want(wantQueue(t, r), time.Time{})
		r.Close(t)
	})
}
