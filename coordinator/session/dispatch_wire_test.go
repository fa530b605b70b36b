package session_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W4: the coordinator dispatches tasks at once, up to the number of slots. When a report is
// committed, it fills the free slot again, after the verdict.
func TestDispatchFillsTheSlots(t *testing.T) {
	t.Attr("rules", "W4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 4)
		m := worker.NextFrame()
		if !m.GetAck().GetRequest() {
			t.Error("the dispatch asks for no ack")
		}
		worker.Ack(m)
		work := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()
		if len(work) != 2 {
			t.Fatalf("received %d assignments for two slots, want 2", len(work))
		}
		worker.WantNoFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(work[0]), wiretest.Completed(work[0], "")))
		more := worker.ReceiveAssignments(1)
		worker.WantNoFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[1], ""), wiretest.Completed(more[0], "")))
		last := worker.ReceiveAssignments(1)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(last[0], "")))
		worker.WantNoFrame()
	})
}

// S2: an assignment has the task with its payload, the attempt, the lease id, the fencing token and
// the time until the lease expires.
func TestAssignmentIsComplete(t *testing.T) {
	t.Attr("rules", "S2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload, s.Type = []byte("payload"), "kind" }).GetTaskId()
		a := r.OpenSession(t, "w", 1).ReceiveAssignments(1)[0]
		wiretest.WantEqual(t, "task", a.GetTask().GetTaskId(), id)
		wiretest.WantEqual(t, "payload", string(a.GetTask().GetSpec().GetPayload()), "payload")
		wiretest.WantEqual(t, "type", a.GetTask().GetSpec().GetType(), "kind")
		if a.GetAttempt() != 1 || a.GetLeaseId() == "" || a.GetFencingToken() == 0 || a.GetExpiresIn().AsDuration() != 90*time.Second {
			t.Errorf("the assignment is %v, want attempt 1, a lease id, a fencing token and 90 s", a)
		}
	})
}

// A capacity frame changes the number of slots at any time. A number below that of the live leases
// revokes none of them. 0 means no new tasks.
func TestCapacityChangesTheSlots(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 6)
		work := worker.ReceiveAssignments(1)
		worker.Send(&lessorv1.Capacity{MaxParallel: 3})
		work = append(work, worker.ReceiveAssignments(2)...)
		if n := r.ListedWorker(t, "w").GetCapabilities().GetConcurrency().GetMaxParallel(); n != 3 {
			t.Errorf("listed with %d slots, want 3", n)
		}
		worker.Send(&lessorv1.Capacity{MaxParallel: 0})
		for _, renewed := range worker.Heartbeat(work...) {
			if renewed.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Errorf("a heartbeat without slots got %v, want COMMITTED", renewed)
			}
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
		worker.WantNoFrame()
		worker.Send(&lessorv1.Capacity{MaxParallel: 2}) // as many as there are live leases
		worker.WantNoFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[1], "")))
		worker.ReceiveAssignments(1)
		worker.WantError(worker.Send(&lessorv1.Capacity{MaxParallel: 10_001}), refusal.CodeInvalid,
			"capacity.max_parallel: is 10001; the range is 0 to 10000")
		worker.WantError(worker.Send(&lessorv1.Capacity{PerTypeLimits: map[string]uint32{"a": 10_001}}),
			refusal.CodeInvalid, `capacity.per_type_limits["a"]: is 10001; the range is 0 to 10000`)
		worker.WantNoFrame()
		worker.Send(&lessorv1.Capacity{MaxParallel: 3, PerTypeLimits: map[string]uint32{"a": 1}})
		synctest.Wait()
		if c := r.ListedWorker(t, "w").GetCapabilities().GetConcurrency(); c.GetMaxParallel() != 3 || c.GetPerTypeLimits()["a"] != 1 {
			t.Errorf("listed with %v, want 3 slots, and 1 for the type", c)
		}
	})
}

// The limits of types in a capacity frame count from then on. A later frame without limits leaves
// them as they are, and one with limits replaces all.
func TestCapacityChangesTheLimitsOfTypes(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 10_000) // the most slots that there may be
		worker.Send(&lessorv1.Capacity{MaxParallel: 9, PerTypeLimits: map[string]uint32{"a": 1}})
		synctest.Wait()
		for _, typ := range []string{"a", "a", "b"} {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Type = typ })
		}
		worker.ReceiveAssignments(2)
		worker.Send(&lessorv1.Capacity{MaxParallel: 8})
		worker.WantNoFrame()
		if c := r.ListedWorker(t, "w").GetCapabilities().GetConcurrency(); c.GetMaxParallel() != 8 || c.GetPerTypeLimits()["a"] != 1 {
			t.Errorf("listed with %v, want 8 slots, and still 1 for the type", c)
		}
		worker.Send(&lessorv1.Capacity{MaxParallel: 8, PerTypeLimits: map[string]uint32{"b": 1}})
		wiretest.WantEqual(t, "the type", worker.ReceiveAssignments(1)[0].GetTask().GetSpec().GetType(), "a")
	})
}

// A worker that reports that it is not healthy gets no new tasks. Its leases stay live.
func TestUnhealthyWorkerGetsNoNewTasks(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		setHealthy := func(h bool) { worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: h}) }
		setHealthy(false)
		r.SubmitAll(t, 2)
		worker.WantNoFrame()
		worker.Send(&lessorv1.Capacity{MaxParallel: 1})
		worker.WantNoFrame()
		setHealthy(true)
		work := worker.ReceiveAssignments(1)
		setHealthy(false)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
		worker.WantNoFrame()
		setHealthy(true)
		worker.ReceiveAssignments(1)
	})
}

// A worker gets only tasks of the types that it registers, or of all types if it registers none. A
// later register replaces the earlier one (W2).
func TestTypesAreMatched(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		worker.Handshake()
		m := wiretest.Registration(10)
		m.Capabilities.Types = []string{"a", "b"}
		worker.Send(m)
		synctest.Wait() // so that the tasks come in the order in which they are submitted
		for _, typ := range []string{"", "a", "b", "c"} {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Type = typ })
		}
		got := worker.ReceiveAssignments(2)
		wiretest.WantEqual(t, "the types", got[0].GetTask().GetSpec().GetType()+got[1].GetTask().GetSpec().GetType(), "ab")
		worker.WantNoFrame()
		worker.Send(wiretest.Registration(4)) // W2: replaces the types and the slots
		worker.ReceiveAssignments(2)
		r.SubmitAll(t, 2)
		worker.WantNoFrame()
		worker.Send(wiretest.Registration(5))
		worker.ReceiveAssignments(1)
		worker.WantNoFrame()
	})
}

// W10: a drain with a bad field is refused, and the worker goes on to get work. The reason has the
// limit of other reasons, and may be as long.
func TestBadDrainIsRefused(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		for want, d := range map[string]*lessorv1.Drain{
			"drain.reason: has 1025 bytes; the limit is 1024":                   {Reason: wiretest.Text(1025)},
			"drain.deadline: is not a valid timestamp: 0 s and -4 ns":           {Deadline: &timestamppb.Timestamp{Nanos: -4}},
			"drain.deadline: is 1969-12-31T23:59:59Z; it cannot be before 1970": {Deadline: &timestamppb.Timestamp{Seconds: -1}},
			"drain.deadline: is 2300-01-01T00:00:00Z; the limit is 2262-04-11T23:47:15Z": {
				Deadline: timestamppb.New(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)),
			},
		} {
			worker.WantError(worker.Send(d), refusal.CodeInvalid, want)
		}
		r.SubmitAll(t, 1)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(worker.ReceiveAssignments(1)[0], "")))
		worker.Send(&lessorv1.Drain{Reason: wiretest.Text(1024)})
		synctest.Wait()
		r.SubmitAll(t, 1)
		worker.WantNoFrame()
	})
}

// W10: a worker that has sent a drain gets no new tasks, whatever it sends. Its tasks continue and
// get their verdicts until it sends a goodbye. The log says once why it drains.
func TestDrainFromTheWorker(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 3)
		r.SubmitAll(t, 2)
		work := worker.ReceiveAssignments(2)
		for range 2 {
			worker.Send(&lessorv1.Drain{Reason: "tired", Deadline: timestamppb.New(time.Unix(2e9, 0))})
		}
		worker.WantNoFrame()
		if n := strings.Count(r.Log.String(), `"msg":"the worker drains","tenant":"default","sender":"w","session":"`); n != 1 ||
			!strings.Contains(r.Log.String(), `"reason":"tired","deadline":"2033-05-18T03:33:20Z"`) {
			t.Errorf("%d lines of the log tell of the drain, want one, with its reason and deadline:\n%s", n, r.Log.String())
		}
		r.SubmitAll(t, 2)
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(work[0])))
		worker.Send(&lessorv1.Capacity{MaxParallel: 5})
		worker.Heartbeat(work...)
		worker.Send(wiretest.Registration(7))
		time.Sleep(20 * time.Second)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
		worker.WantNoFrame()
		// The worker gets the last verdict even if its goodbye follows the report at once.
		last := worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work[1], "")}})
		worker.Send(&lessorv1.Goodbye{})
		m := worker.NextFrame()
		wiretest.WantEqual(t, "corr", m.GetCorr(), last)
		wiretest.WantCommitted(t, wiretest.WantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
		if w := r.ListedWorker(t, "w"); w != nil {
			t.Errorf("the worker is still listed: %v", w)
		}
	})
}

// W10, W9, W8: what the worker has said of itself holds on when it resumes its session: a worker
// that drains, is not well, or is nearly full, gets no new tasks between its register and its next
// words. Nothing ends a drain but a new session.
func TestResumedSessionKnowsWhatItsWorkerSaid(t *testing.T) {
	t.Attr("rules", "W10 W9 W8")
	for name, says := range map[string]proto.Message{
		"drain":       &lessorv1.Drain{},
		"unhealthy":   &lessorv1.WorkerHeartbeat{},
		"full memory": &lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"mem_pct": 95}},
		"full disk":   &lessorv1.WorkerHeartbeat{Healthy: true, Metrics: map[string]float64{"disk_pct": 95}},
	} {
		for how, lose := range map[string]func(*wiretest.Worker){
			"after a cut":           func(worker *wiretest.Worker) { worker.Cut(); synctest.Wait() },
			"old stream still open": func(*wiretest.Worker) {},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
					worker, a := r.OpenSessionWith(t, "w", 1, nil)
					worker.Send(says)
					synctest.Wait()
					seen := uint64(1)
					if name != "drain" {
						seen = wiretest.NextFrameWith[*lessorv1.HeartbeatAck](worker).GetSeq()
					}
					for range 2 { // also on the stream after the next
						lose(worker)
						worker, a = r.OpenSessionWith(t, "w", 1, wiretest.ResumeFrom(a, seen))
					}
					r.SubmitAll(t, 1)
					worker.WantNoFrame()
					worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{
						Healthy: true,
						Metrics: map[string]float64{"mem_pct": 1, "disk_pct": 1},
					})
					if name == "drain" {
						worker.WantNoFrame()
						if w := r.ListedWorker(t, "w"); w.GetState() != lessorv1.WorkerState_WORKER_STATE_DRAINING {
							t.Errorf("the worker is listed as %v, want it DRAINING", w)
						}
						worker = r.OpenSession(t, "w", 1)
					}
					worker.ReceiveAssignments(1)
				})
			})
		}
	}
}

// W9: a goodbye gives all leases back at once. This counts neither as a loss nor as a failure.
func TestGoodbyeGivesLeasesBack(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker, other := r.OpenSession(t, "w", 2), r.OpenSession(t, "other", 2)
		other.Send(&lessorv1.Capacity{MaxParallel: 0})
		other.WantNoFrame()
		r.SubmitAll(t, 2)
		work := worker.ReceiveAssignments(2)
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(work[0])))
		other.Send(&lessorv1.Capacity{MaxParallel: 2})
		other.WantNoFrame()
		worker.Send(&lessorv1.Goodbye{Reason: "home"})
		for _, a := range other.ReceiveAssignments(2) {
			if a.GetAttempt() != 2 || a.GetTask().GetLosses() != 0 || a.GetTask().GetFailures() != 0 {
				t.Errorf("the other worker got %v, want attempt 2 without losses and failures", a)
			}
		}
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
	})
}

// W8: the loss of a stream revokes no lease. On the new stream the instance still has its leases,
// and they fill its slots.
func TestLostStreamRevokesNothing(t *testing.T) {
	t.Attr("rules", "W8")
	for name, lose := range map[string]func(*wiretest.Worker){
		"cut":         func(worker *wiretest.Worker) { worker.Cut() },
		"half closed": func(worker *wiretest.Worker) { _ = worker.Stream.CloseSend() },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 2)
				r.SubmitAll(t, 3)
				work := worker.ReceiveAssignments(2)
				synctest.Wait() // until the dispatch is acknowledged
				lose(worker)
				for range worker.Received {
					t.Error("a frame came before the end of the stream, want none")
				}
				synctest.Wait()
				if w := r.ListedWorker(t, "w"); w != nil {
					t.Errorf("the worker is still listed: %v", w)
				}
				r.OpenSession(t, "other", 1).ReceiveAssignments(1)
				again := r.OpenSession(t, "w", 2)
				if n := r.ListedWorker(t, "w").GetLeases(); n != 2 {
					t.Errorf("the new stream holds %d leases, want 2", n)
				}
				r.SubmitAll(t, 1)
				again.WantNoFrame() // no slot is free
				for _, renewed := range again.Heartbeat(work...) {
					if renewed.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
						t.Errorf("a heartbeat on the new stream got %v, want COMMITTED", renewed)
					}
				}
				wiretest.WantCommitted(t, again.Report(wiretest.Completed(work[0], "")))
				again.ReceiveAssignments(1)
			})
		})
	}
}

// W8: a lease moves to the stream that sends a heartbeat or a Start for it, and fills a slot there.
func TestLeaseFollowsTheStream(t *testing.T) {
	t.Attr("rules", "W8")
	for name, renew := range map[string]func(*wiretest.Worker, *lessorv1.Assignment){
		"heartbeat": func(worker *wiretest.Worker, a *lessorv1.Assignment) { worker.Heartbeat(a) },
		"start": func(worker *wiretest.Worker, a *lessorv1.Assignment) {
			wiretest.WantCommitted(worker.T, worker.Report(wiretest.Started(a)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				r.SubmitAll(t, 1)
				a := r.Lease(t)
				worker := r.OpenSession(t, "w", 1)
				renew(worker, a)
				r.SubmitAll(t, 1)
				worker.WantNoFrame()
				if n := r.ListedWorker(t, "w").GetLeases(); n != 1 {
					t.Errorf("the stream holds %d leases, want 1", n)
				}
				r.Cancel(t, a)
				wiretest.WantEqual(t, "the cancelled lease",
					wiretest.NextPayload[*lessorv1.Cancel](worker).GetLeaseId(), a.GetLeaseId())
				wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "")))
				worker.ReceiveAssignments(1)
			})
		})
	}
}

// A9: live leases stay live over a restart of the coordinator, and still fill the slots of their
// instance.
func TestSlotsSurviveARestart(t *testing.T) {
	t.Attr("rules", "A9")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		r := wiretest.New(t, st)
		defer func() { r.Close(t) }()
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 2)
		work := worker.ReceiveAssignments(1)
		synctest.Wait()
		r.Close(t)
		r = wiretest.New(t, st)
		again := r.OpenSession(t, "w", 1)
		wiretest.WantCommitted(t, again.Report(wiretest.Started(work[0])))
		again.WantNoFrame()
		wiretest.WantCommitted(t, again.Report(wiretest.Completed(work[0], "")))
		again.ReceiveAssignments(1)
	})
}

// W8: a newer stream of the same instance takes over its leases, and the older stream is reset.
func TestNewerStreamDisplacesTheOlder(t *testing.T) {
	t.Attr("rules", "W8")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		old := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 2)
		work := old.ReceiveAssignments(1)
		stranger := r.OpenSession(t, "other", 1)
		stranger.ReceiveAssignments(1)
		worker := r.OpenSession(t, "w", 1)
		reset := wiretest.NextPayload[*lessorv1.Reset](old)
		wiretest.WantEqual(t, "code", reset.GetCode(), refusal.CodeStaleBinding)
		if err := old.WaitForEnd(); err != nil {
			t.Errorf("the older stream ended with %v, want OK", err)
		}
		stranger.WantNoFrame()
		if w := r.ListedWorker(t, "w"); w.GetLeases() != 1 {
			t.Errorf("the worker is listed as %v, want the lease of the older stream", w)
		}
		r.SubmitAll(t, 1)
		worker.WantNoFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
		worker.ReceiveAssignments(1)
	})
}

// S7: dispatch frames stay far below the size limit of messages, however large the tasks are.
func TestDispatchFramesAreBounded(t *testing.T) {
	t.Attr("rules", "S7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const tasks = 60
		heavy := func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 200<<10) }
		wordy := func(s *lessorv1.TaskSpec) {
			s.Type, s.RunId, s.TaskKey, s.AssetId, s.IdempotencyKey = wiretest.Text(256), wiretest.Text(256),
				wiretest.Text(256), wiretest.Text(256), ""
			s.Labels = map[string]string{}
			for i := range 64 {
				s.Labels[wiretest.Text(200)+string(rune('A'+i))] = wiretest.Text(256)
			}
		}
		for i := range tasks {
			r.Submit(t, []func(*lessorv1.TaskSpec){heavy, wordy}[i%2])
		}
		worker := r.OpenSession(t, "w", tasks)
		frames := 0
		for got := 0; got < tasks; frames++ {
			m := worker.NextFrame()
			n := len(wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments())
			got += n
			if size := proto.Size(m); size > maxDispatch+4096 && n > 1 {
				t.Errorf("a dispatch of %d tasks has %d bytes, want at most %d", n, size, maxDispatch+4096)
			}
		}
		if frames < 4 || frames > 10 {
			t.Errorf("received %d frames for %d tasks, want 4 to 10", frames, tasks)
		}
	})
}
