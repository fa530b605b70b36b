package engine

import (
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

func withKey(name string, limit uint32) func(*lease.Spec) {
	return func(s *lease.Spec) { s.TaskKey, s.ConcurrencyKey, s.ConcurrencyLimit = name, name, limit }
}

// W2, W4: a worker holds no more tasks of a type than type_limits allows, and the waiting tasks of
// that type do not block tasks of other types. A new limit counts at once.
func TestTypeLimits(t *testing.T) {
	t.Attr("rules", "W2 W4")
	run(t, func(r *rig) {
		c := r.worker("w", 10, func(w *Wants) { w.TypeLimits = map[string]uint32{"big": 1, "never": 0} })
		for _, typ := range []string{"big", "big", "never", "small", "big"} {
			r.submitWith(func(s *lease.Spec) { s.Type, s.TaskKey = typ, typ })
		}
		r.wantGranted(c, "big", "small")
		r.sayBy(c.Session, lease.KindComplete, c.grants()[0])
		r.wantGranted(c, "big", "small", "big")
		wants := c.Wants
		wants.TypeLimits = map[string]uint32{"big": 2}
		r.Update(c.Member, wants, 10)
		if n := len(c.grants()); n != 5 {
			r.Errorf("after the limits were raised the tasks %v are granted, want all 5", c.grantedKeys())
		}
	})
}

// W4: max_bytes bounds the sum of the payloads that a worker holds. A smaller task that fits goes
// before a larger one that does not. A task that alone is over max_bytes is granted only to a
// worker that holds nothing.
func TestMaxBytes(t *testing.T) {
	t.Attr("rules", "W4")
	run(t, func(r *rig) {
		c := r.worker("w", 10, func(w *Wants) { w.MaxBytes = 100 })
		sized := func(name string, bytes int) {
			r.submitWith(func(s *lease.Spec) { s.TaskKey, s.Payload = name, make([]byte, bytes) })
		}
		sized("60", 60)
		sized("50", 50)
		sized("40", 40)
		sized("500", 500)
		r.wantGranted(c, "60", "40")
		r.sayBy(c.Session, lease.KindComplete, c.grants()[0])
		r.wantGranted(c, "60", "40", "50")
		r.sayBy(c.Session, lease.KindComplete, c.grants()[1])
		r.sayBy(c.Session, lease.KindComplete, c.grants()[2])
		r.wantGranted(c, "60", "40", "50", "500")
		sized("1", 1)
		r.wantGranted(c, "60", "40", "50", "500")
	})
}

// W4: a worker gets the tasks that fit, also if they are only on disk, and the first task of
// another line is in memory but does not fit.
func TestMaxBytesWithTasksOnDisk(t *testing.T) {
	t.Attr("rules", "W4")
	bound(t, 4, &lineHead)
	bound(t, 0, &maxReadAheads)
	run(t, func(r *rig) {
		const small = 50
		// tasks of both keys go to the same worker: so their lines are in one lineup
		sized := func(key string, bytes int) {
			r.submitWith(func(s *lease.Spec) { s.Affinity, s.Payload = &lease.Affinity{Key: key}, make([]byte, bytes) })
		}
		sized("mixed", 1)
		sized("small", 1)
		sized("mixed", 200)
		for range small {
			sized("small", 1)
		}
		c := r.worker("w", 2*small, func(w *Wants) { w.MaxBytes = 100 })
		if got := len(c.grants()); got != 2+small {
			r.Errorf("%d tasks were granted, want the %d that fit", got, 2+small)
		}
	})
}

// W4: so it does if those of its line that are in memory do not fit.
func TestMaxBytesWithTheRestOfALineOnDisk(t *testing.T) {
	t.Attr("rules", "W4")
	bound(t, 4, &lineHead)
	bound(t, 0, &maxReadAheads)
	run(t, func(r *rig) {
		for _, bytes := range []int{1, 200, 200, 200, 200, 200, 1} {
			r.submitWith(func(s *lease.Spec) { s.Payload = make([]byte, bytes) })
		}
		c := r.worker("w", 5, func(w *Wants) { w.MaxBytes = 100 })
		if got := len(c.grants()); got != 2 {
			r.Errorf("%d tasks were granted, want the 2 that fit", got)
		}
	})
}

// W4: a checkpoint counts in max_bytes, with less than twice the size of the largest that the task
// has saved: for a task that the worker holds, and for one that it may get.
func TestCheckpointCountsInMaxBytes(t *testing.T) {
	t.Attr("rules", "W4")
	run(t, func(r *rig) {
		sized := func(name string, bytes int) {
			r.submitWith(func(s *lease.Spec) { s.TaskKey, s.Payload = name, make([]byte, bytes) })
		}
		sized("saved", 10)
		first := r.lease(1, 0)[0]
		report := lease.Report{
			Kind: lease.KindHeartbeat, TaskID: first.Task.ID.String(), LeaseID: first.LeaseID,
			Checkpoint: make([]byte, 1000),
		}
		if _, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{&report}); err != nil {
			r.Fatal(err)
		}
		r.say(lease.KindRelease, first)

		most := func(w *Wants) { w.MaxBytes = 1023 + 50 }
		holder := r.worker("holder", 10, most)
		sized("large", 45)
		sized("small", 30)
		r.wantGranted(holder, "saved", "small")
		other := r.worker("other", 10, most)
		r.wantGranted(other, "large")
		r.Leave(holder.Member, true)
		r.wantGranted(other, "large", "small")
	})
}

// T12, W4: a task whose data a worker has no room for is passed over for passedFor. Then the worker
// gets no other task, of any queue, until it has room for it.
func TestWorkerMakesRoomForALargeTask(t *testing.T) {
	t.Attr("rules", "T12 W4")
	run(t, func(r *rig) {
		submit := func(queue, name string, bytes int) {
			r.submitWith(func(s *lease.Spec) { s.Queue, s.TaskKey, s.Payload = queue, name, make([]byte, bytes) })
		}
		c := r.joinFor(Wants{Space: home, Worker: "w", Queues: []string{"q", "other"}, MaxBytes: 100}, 5)
		submit("q", "first", 50)
		submit("q", "second", 30)
		submit("q", "large", 90)
		submit("q", "small", 5)
		submit("other", "early", 5)
		r.wantGranted(c, "first", "second", "small", "early")
		for _, g := range c.grants() {
			r.sayBy(c.Session, lease.KindAck, g)
		}
		time.Sleep(passedFor)
		submit("q", "late", 5)
		submit("other", "late", 5)
		r.wantGranted(c, "first", "second", "small", "early")
		r.say(lease.KindComplete, c.grants()[0])
		time.Sleep(2 * roomFor) // there would be room for both small ones
		r.wantGranted(c, "first", "second", "small", "early")
		r.say(lease.KindComplete, c.grants()[1])
		r.wantGranted(c, "first", "second", "small", "early", "large")
		r.say(lease.KindComplete, c.grants()[2])
		r.wantGranted(c, "first", "second", "small", "early", "large", "late")
	})
	run(t, func(r *rig) { // another worker takes it: the first one soon goes on
		most := func(w *Wants) { w.MaxBytes = 100 }
		c := r.worker("w", 5, most)
		sized := func(name string, bytes int) {
			r.submitWith(func(s *lease.Spec) { s.TaskKey, s.Payload = name, make([]byte, bytes) })
		}
		sized("first", 50)
		sized("large", 90)
		r.sayBy(c.Session, lease.KindAck, c.grants()[0])
		time.Sleep(passedFor)
		sized("small", 5)
		r.wantGranted(c, "first")
		r.wantGranted(r.worker("other", 1, most), "large")
		time.Sleep(roomFor)
		r.wantGranted(c, "first", "small")
	})
}

// T12, W4: if the wall clock is set back, a large task is passed over for no longer.
func TestWorkerMakesRoomWhenTheWallClockIsSetBack(t *testing.T) {
	t.Attr("rules", "T12 W4")
	run(t, func(r *rig) {
		c := r.worker("w", 5, func(w *Wants) { w.MaxBytes = 100 })
		sized := func(name string, bytes int) lease.TaskID {
			return r.submitWith(func(s *lease.Spec) { s.TaskKey, s.Payload = name, make([]byte, bytes) })
		}
		sized("first", 50)
		r.sayBy(c.Session, lease.KindAck, c.grants()[0])
		large := r.version(sized("large", 90))
		ahead := *large
		ahead.CreatedAt = large.CreatedAt.Add(time.Hour)
		put := func(version *lease.Task) { onLoop(r, func() int { r.set.find(large.ID).task = version; return 0 }) }
		put(&ahead) // as if the wall clock had been an hour ahead at the submit
		defer put(large)
		if at := r.version(large.ID).ReadySince(); at != ahead.CreatedAt {
			r.Fatalf("the task has been READY since %v, want %v", at.Time(), ahead.CreatedAt.Time())
		}
		time.Sleep(passedFor)
		sized("small", 5)
		r.wantGranted(c, "first")
	})
}

// W12: a worker with single_flight holds one task of a concurrency key at a time, even if the key's
// limit allows more. The next task of the key may go to another worker. A worker that has other
// limits is not bound by this.
func TestSingleFlight(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		c := r.worker("w", 10, func(w *Wants) { w.SingleFlight = true })
		for range 2 {
			r.submitWith(withKey("a", 5))
			r.submitWith(withKey("b", 5))
		}
		r.wantGranted(c, "a", "b")
		other := r.worker("other", 1, nil)
		r.wantGranted(other, "a")
		r.sayBy(c.Session, lease.KindComplete, c.grants()[1])
		r.wantGranted(c, "a", "b", "b")
		for range 3 {
			r.submitWith(withKey("c", 5))
		}
		without := r.worker("without", 10, func(w *Wants) { w.MaxBytes = 1 << 20 })
		r.wantGranted(c, "a", "b", "b", "c")
		r.wantGranted(without, "c", "c")
	})
}

// T2: a worker passes over a task for which it has no room, and then takes the task that comes
// first among the others, whichever line that is in: tasks of different affinity keys are in
// different lines.
func TestTaskThatIsPassedOverGivesItsPlaceToNoOther(t *testing.T) {
	t.Attr("rules", "T2 W4")
	run(t, func(r *rig) {
		w := r.joinFor(Wants{Space: home, Worker: "w", Queues: []string{"q"}, SingleFlight: true}, 1)
		r.submitWith(func(s *lease.Spec) { s.ConcurrencyKey, s.ConcurrencyLimit = "c", 2 })
		for _, in := range []struct {
			affinity, key string
			priority      int32
		}{{"x", "c", 10}, {"x", "", 0}, {"y", "", 5}} {
			r.submitWith(func(s *lease.Spec) {
				withAffinity(in.affinity, lease.Sticky)(s)
				s.Priority = in.priority
				if in.key != "" {
					s.ConcurrencyKey, s.ConcurrencyLimit = in.key, 2
				}
			})
		}
		r.Resize(w.Member, 2)
		if g := w.grants(); len(g) != 2 || g[1].Task.Spec.Priority != 5 {
			t.Errorf("%d tasks were granted, the last one of priority %d; want two, the last one of priority 5",
				len(g), g[len(g)-1].Task.Spec.Priority)
		}
	})
}
