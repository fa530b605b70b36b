package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W4: tasks are dispatched at once, up to the number of slots. When a report is committed, its slot is filled again, after the verdict.
func TestDispatchFillsTheSlots(t *testing.T) {
	t.Attr("rules", "W4")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		r.submitAll(t, 4)
		m := tk.next()
		if !m.GetAck().GetRequest() {
			t.Error("the dispatch asks for no ack")
		}
		tk.ack(m)
		work := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()
		if len(work) != 2 {
			t.Fatalf("%d assignments for two slots", len(work))
		}
		tk.quiet()
		did(t, tk.judge(started(work[0]), completed(work[0], "")))
		more := tk.given(1)
		tk.quiet()
		did(t, tk.judge(completed(work[1], ""), completed(more[0], "")))
		last := tk.given(1)
		did(t, tk.judge(completed(last[0], "")))
		tk.quiet()
	})
}

// S2: an assignment has everything that the worker needs.
func TestAssignmentIsComplete(t *testing.T) {
	t.Attr("rules", "S2")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, func(s *lessorv1.TaskSpec) { s.Payload, s.Type = []byte("payload"), "kind" }).GetTaskId()
		a := r.work(t, "w", 1).given(1)[0]
		wantText(t, "task", a.GetTask().GetTaskId(), id)
		wantText(t, "payload", string(a.GetTask().GetSpec().GetPayload()), "payload")
		wantText(t, "type", a.GetTask().GetSpec().GetType(), "kind")
		if a.GetAttempt() != 1 || a.GetLeaseId() == "" || a.GetFencingToken() == 0 || a.GetExpiresIn().AsDuration() != 90*time.Second {
			t.Errorf("the assignment is %v", a)
		}
	})
}

// capacity changes the number of slots at any time. If it is lower than the number of leases in use, none is revoked; 0 stops new work.
func TestCapacityChangesTheSlots(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 6)
		work := tk.given(1)
		tk.say(&lessorv1.Capacity{MaxParallel: 3})
		work = append(work, tk.given(2)...)
		if n := r.worker(t, "w").GetCapabilities().GetConcurrency().GetMaxParallel(); n != 3 {
			t.Errorf("listed with %d slots, want 3", n)
		}
		tk.say(&lessorv1.Capacity{MaxParallel: 0})
		for _, renewed := range tk.beat(work...) {
			if renewed.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Errorf("without slots: %v, want the lease to live", renewed)
			}
		}
		did(t, tk.judge(completed(work[0], "")))
		tk.quiet()
		tk.say(&lessorv1.Capacity{MaxParallel: 2}) // as many as are in use
		tk.quiet()
		did(t, tk.judge(completed(work[1], "")))
		tk.given(1)
		tk.refused(tk.say(&lessorv1.Capacity{MaxParallel: 10_001}), refusal.CodeInvalid, "capacity.max_parallel: is 10001; the range is 0 to 10000")
		tk.refused(tk.say(&lessorv1.Capacity{PerTypeLimits: map[string]uint32{"a": 10_001}}), refusal.CodeInvalid, `capacity.per_type_limits["a"]: is 10001; the range is 0 to 10000`)
		tk.quiet()
		tk.say(&lessorv1.Capacity{MaxParallel: 3, PerTypeLimits: map[string]uint32{"a": 1}})
		synctest.Wait()
		if c := r.worker(t, "w").GetCapabilities().GetConcurrency(); c.GetMaxParallel() != 3 || c.GetPerTypeLimits()["a"] != 1 {
			t.Errorf("listed with %v, want 3 slots, and 1 for the type", c)
		}
	})
}

// A worker that says that it is not healthy gets no new tasks; those that it has go on.
func TestUnhealthyWorkerGetsNothing(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		well := func(h bool) { tk.beatOf(&lessorv1.WorkerHeartbeat{Healthy: h}) }
		well(false)
		r.submitAll(t, 2)
		tk.quiet()
		tk.say(&lessorv1.Capacity{MaxParallel: 1})
		tk.quiet()
		well(true)
		work := tk.given(1)
		well(false)
		did(t, tk.judge(completed(work[0], "")))
		tk.quiet()
		well(true)
		tk.given(1)
	})
}

// A worker gets only the types that it names; all types, if it names none. A later register replaces the earlier one (W2).
func TestTypesAreMatched(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.talk(t, "w")
		tk.shake()
		m := registration(10)
		m.Capabilities.Types = []string{"a", "b"}
		tk.say(m)
		synctest.Wait() // so that the tasks come in the order in which they are submitted
		for _, typ := range []string{"", "a", "b", "c"} {
			r.submit(t, func(s *lessorv1.TaskSpec) { s.Type = typ })
		}
		got := tk.given(2)
		wantText(t, "the types", got[0].GetTask().GetSpec().GetType()+got[1].GetTask().GetSpec().GetType(), "ab")
		tk.quiet()
		tk.say(registration(10)) // W2: replaces the types
		tk.given(2)
		tk.quiet()
	})
}

// W10: a worker that drains gets no new work, whatever it sends; its tasks go on and get their verdicts, until it says goodbye.
func TestDrainFromTheWorker(t *testing.T) {
	t.Attr("rules", "W10")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 3)
		r.submitAll(t, 2)
		work := tk.given(2)
		tk.say(&lessorv1.Drain{Reason: "tired"})
		tk.quiet()
		r.submitAll(t, 2)
		did(t, tk.judge(started(work[0])))
		tk.say(&lessorv1.Capacity{MaxParallel: 5})
		tk.beat(work...)
		tk.say(registration(7))
		time.Sleep(20 * time.Second)
		did(t, tk.judge(completed(work[0], "")))
		tk.quiet()
		// The last verdict comes even if the goodbye follows the report at once.
		last := tk.say(&lessorv1.Reports{Reports: []*lessorv1.Report{completed(work[1], "")}})
		tk.say(&lessorv1.Goodbye{})
		m := tk.next()
		wantText(t, "corr", m.GetCorr(), last)
		did(t, payloadOf[*lessorv1.Verdicts](tk, m).GetVerdicts())
		if err := tk.over(); err != nil {
			t.Errorf("goodbye ended with %v", err)
		}
		if w := r.worker(t, "w"); w != nil {
			t.Errorf("still listed: %v", w)
		}
	})
}

// W9: a goodbye gives all leases back at once; this counts in no budget.
func TestGoodbyeGivesLeasesBack(t *testing.T) {
	t.Attr("rules", "W9")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk, other := r.work(t, "w", 2), r.work(t, "other", 2)
		other.say(&lessorv1.Capacity{MaxParallel: 0})
		other.quiet()
		r.submitAll(t, 2)
		work := tk.given(2)
		did(t, tk.judge(started(work[0])))
		other.say(&lessorv1.Capacity{MaxParallel: 2})
		other.quiet()
		tk.say(&lessorv1.Goodbye{Reason: "home"})
		for _, a := range other.given(2) {
			if a.GetAttempt() != 2 || a.GetTask().GetLosses() != 0 || a.GetTask().GetFailures() != 0 {
				t.Errorf("handed on: %v", a)
			}
		}
		if err := tk.over(); err != nil {
			t.Errorf("goodbye ended with %v", err)
		}
	})
}

// W8: a lost stream revokes nothing: on its new stream the instance has its leases, and they fill its slots.
func TestLostStreamRevokesNothing(t *testing.T) {
	t.Attr("rules", "W8")
	for name, lose := range map[string]func(*talker){
		"cut":         func(tk *talker) { tk.cut() },
		"half closed": func(tk *talker) { _ = tk.stream.CloseSend() },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				tk := r.work(t, "w", 2)
				r.submitAll(t, 3)
				work := tk.given(2)
				synctest.Wait() // until the dispatch is acknowledged
				lose(tk)
				for range tk.heard {
					t.Error("heard more than the end")
				}
				synctest.Wait()
				if w := r.worker(t, "w"); w != nil {
					t.Errorf("still listed: %v", w)
				}
				r.work(t, "other", 1).given(1)
				again := r.work(t, "w", 2)
				if n := r.worker(t, "w").GetLeases(); n != 2 {
					t.Errorf("the new stream holds %d leases, want 2", n)
				}
				r.submitAll(t, 1)
				again.quiet() // no slot is free
				for _, renewed := range again.beat(work...) {
					if renewed.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
						t.Errorf("renewal on the new stream: %v", renewed)
					}
				}
				did(t, again.judge(completed(work[0], "")))
				again.given(1)
			})
		})
	}
}

// W8: a lease moves to the stream that sends a heartbeat or a Start for it, and fills a slot there.
func TestLeaseFollowsTheStream(t *testing.T) {
	t.Attr("rules", "W8")
	for name, speak := range map[string]func(*talker, *lessorv1.Assignment){
		"heartbeat": func(tk *talker, a *lessorv1.Assignment) { tk.beat(a) },
		"start":     func(tk *talker, a *lessorv1.Assignment) { did(tk.t, tk.judge(started(a))) },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				r.submitAll(t, 1)
				a := r.lease(t)
				tk := r.work(t, "w", 1)
				speak(tk, a)
				r.submitAll(t, 1)
				tk.quiet()
				if n := r.worker(t, "w").GetLeases(); n != 1 {
					t.Errorf("the stream holds %d leases, want 1", n)
				}
				r.cancel(t, a)
				wantText(t, "the cancelled lease", hear[*lessorv1.Cancel](tk).GetLeaseId(), a.GetLeaseId())
				did(t, tk.judge(completed(a, "")))
				tk.given(1)
			})
		})
	}
}

// A9: live leases survive a restart of the coordinator, and still fill the slots of their instance.
func TestSlotsSurviveARestart(t *testing.T) {
	t.Attr("rules", "A9")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		r := newRig(t, st)
		defer func() { r.close(t) }()
		tk := r.work(t, "w", 1)
		r.submitAll(t, 2)
		work := tk.given(1)
		synctest.Wait()
		r.close(t)
		r = newRig(t, st)
		again := r.work(t, "w", 1)
		did(t, again.judge(started(work[0])))
		again.quiet()
		did(t, again.judge(completed(work[0], "")))
		again.given(1)
	})
}

// W8: a newer stream of the same instance takes over the leases; the older one is reset.
func TestNewerStreamDisplacesTheOlder(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		old := r.work(t, "w", 1)
		r.submitAll(t, 2)
		work := old.given(1)
		stranger := r.work(t, "other", 1)
		stranger.given(1)
		tk := r.work(t, "w", 1)
		reset := hear[*lessorv1.Reset](old)
		wantText(t, "code", reset.GetCode(), refusal.CodeStaleBinding)
		if err := old.over(); err != nil {
			t.Errorf("the older stream ended with %v", err)
		}
		stranger.quiet()
		if w := r.worker(t, "w"); w.GetLeases() != 1 {
			t.Errorf("listed as %v, want the lease of the older stream", w)
		}
		r.submitAll(t, 1)
		tk.quiet()
		did(t, tk.judge(completed(work[0], "")))
		tk.given(1)
	})
}

// S7: dispatch frames stay far below the message limit, however large the tasks are.
func TestDispatchFramesAreBounded(t *testing.T) {
	t.Attr("rules", "S7")
	serve(t, nil, func(t *testing.T, r *rig) {
		const tasks = 60
		heavy := func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 200<<10) }
		wordy := func(s *lessorv1.TaskSpec) {
			s.Type, s.RunId, s.TaskKey, s.AssetId, s.IdempotencyKey = text(256), text(256), text(256), text(256), ""
			s.Labels = map[string]string{}
			for i := range 64 {
				s.Labels[text(200)+string(rune('A'+i))] = text(256)
			}
		}
		for i := range tasks {
			r.submit(t, []func(*lessorv1.TaskSpec){heavy, wordy}[i%2])
		}
		tk := r.work(t, "w", tasks)
		frames := 0
		for got := 0; got < tasks; frames++ {
			m := tk.next()
			n := len(payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments())
			got += n
			if size := proto.Size(m); size > maxDispatch+4096 && n > 1 {
				t.Errorf("a dispatch of %d tasks has %d bytes", n, size)
			}
		}
		if frames < 4 || frames > 10 {
			t.Errorf("%d frames for %d tasks", frames, tasks)
		}
	})
}
