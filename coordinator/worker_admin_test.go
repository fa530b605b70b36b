package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func (r *rig) drain(t *testing.T, req *lessorv1.DrainWorkerRequest) []*lessorv1.Worker {
	t.Helper()
	res, err := r.admin.DrainWorker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetWorkers()
}

func (r *rig) kick(t *testing.T, req *lessorv1.KickWorkerRequest) []*lessorv1.Worker {
	t.Helper()
	res, err := r.admin.KickWorker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return res.GetWorkers()
}

// W10: a worker that an operator drains is told so and gets no new work; its tasks go on and get their verdicts. An undo ends the drain.
func TestOperatorDrainsAWorker(t *testing.T) {
	t.Attr("rules", "W10")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		r.submitAll(t, 1)
		a := tk.given(1)[0]
		deadline := timestamppb.New(time.Now().Add(time.Hour))
		listed := r.drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Reason: "new kernel", Deadline: deadline})
		if len(listed) != 1 || listed[0].GetState() != lessorv1.WorkerState_WORKER_STATE_DRAINING || listed[0].GetLeases() != 1 {
			t.Errorf("answered %v", listed)
		}
		d := hear[*lessorv1.Drain](tk)
		if d.GetReason() != "new kernel" || !d.GetDeadline().AsTime().Equal(deadline.AsTime()) {
			t.Errorf("told %v", d)
		}
		r.drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Reason: "new kernel", Deadline: deadline}) // a repeated drain is not sent again
		r.submitAll(t, 1)
		tk.quiet()
		did(t, tk.judge(started(a), completed(a, "")))
		tk.beat()
		tk.quiet()
		if w := r.worker(t, "w"); w.GetState() != lessorv1.WorkerState_WORKER_STATE_DRAINING || w.GetDrain().GetReason() != "new kernel" {
			t.Errorf("listed as %v", w)
		}
		r.drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Undo: true})
		tk.given(1)
		if w := r.worker(t, "w"); w.GetState() != lessorv1.WorkerState_WORKER_STATE_HEARTBEATING || w.GetDrain() != nil {
			t.Errorf("after the undo: %v", w)
		}
	})
}

// W10: a drain is for one worker process. It is remembered for an hour after its stream has ended; another process of the same worker gets work.
func TestDrainOutlastsAReconnect(t *testing.T) {
	t.Attr("rules", "W10")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", SessionId: r.worker(t, "w").GetSessionId()})
		hear[*lessorv1.Drain](tk)
		tk.say(&lessorv1.Goodbye{})
		if err := tk.over(); err != nil {
			t.Fatal(err)
		}
		r.submitAll(t, 2)
		time.Sleep(drainMemory)
		tk = r.work(t, "w", 1)
		hear[*lessorv1.Drain](tk)
		tk.quiet()
		other := r.talk(t, "w")
		other.say(&lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: "w", InstanceId: "another"}})
		hear[*lessorv1.Accept](other)
		other.say(registration(1))
		did(t, other.judge(completed(other.given(1)[0], "")))
		other.given(1)
		tk.say(&lessorv1.Goodbye{})
		if err := tk.over(); err != nil {
			t.Fatal(err)
		}
		other.say(&lessorv1.Goodbye{})
		if err := other.over(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(drainMemory + time.Second)
		r.work(t, "w", 1).given(1)
	})
}

// W10: a kick ends the session, and says when to come back. The worker keeps its leases until they expire.
func TestOperatorKicksAWorker(t *testing.T) {
	t.Attr("rules", "W10")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		a := tk.given(1)[0]
		did(t, tk.judge(started(a)))
		kicked := r.kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", Reason: "stuck", RetryAfter: durationpb.New(time.Minute)})
		if len(kicked) != 1 || kicked[0].GetLeases() != 1 {
			t.Errorf("answered %v", kicked)
		}
		reset := hear[*lessorv1.Reset](tk)
		wantText(t, "code", reset.GetCode(), refusal.CodeKicked)
		wantText(t, "reason", reset.GetReason(), "an operator ended the session: stuck")
		if d := reset.GetRetryAfter().AsDuration(); d != time.Minute {
			t.Errorf("retry_after is %v", d)
		}
		if err := tk.over(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if w := r.worker(t, "w"); w != nil {
			t.Errorf("still listed: %v", w)
		}
		tk = r.work(t, "w", 1)
		did(t, tk.judge(completed(a, "")))
		r.kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w"})
		wantText(t, "reason", hear[*lessorv1.Reset](tk).GetReason(), "an operator ended the session")
	})
}

// W10: a kick with requeue takes the leases back at once; reports under them do not count any more.
func TestKickGivesLeasesToOthers(t *testing.T) {
	t.Attr("rules", "W10")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk, other := r.work(t, "w", 1), r.work(t, "other", 1)
		r.submitAll(t, 2)
		a := tk.given(1)[0]
		b := other.given(1)[0]
		did(t, other.judge(completed(b, "")))
		r.kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true, Reason: "gone"})
		if again := other.given(1)[0]; again.GetTask().GetTaskId() != a.GetTask().GetTaskId() || again.GetAttempt() != 2 {
			t.Errorf("the other got %v", again)
		}
		wantText(t, "code", hear[*lessorv1.Reset](tk).GetCode(), refusal.CodeKicked)
		tk = r.work(t, "w", 1)
		v := tk.judge(completed(a, ""))[0]
		if v.GetVerdict() != lessorv1.Verdict_VERDICT_CANCELLED || v.GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
			t.Errorf("verdict %v", v)
		}
		x, err := r.tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: a.GetTask().GetTaskId()})
		if err != nil {
			t.Fatal(err)
		}
		wantText(t, "why", x.GetLastLease().GetDetail(), "an operator revoked the worker's leases: gone")
	})
}

// GetWorker shows the sessions of a worker with the tasks that they hold.
func TestGetWorkerShowsItsTasks(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 3)
		r.work(t, "other", 1).say(&lessorv1.Drain{})
		synctest.Wait()
		r.submitAll(t, 2)
		all := tk.given(2)
		res, err := r.admin.GetWorker(t.Context(), &lessorv1.GetWorkerRequest{WorkerId: "w"})
		if err != nil || len(res.GetWorkers()) != 1 {
			t.Fatalf("%v (%v), want one session", res, err)
		}
		w := res.GetWorkers()[0]
		if w.GetLeases() != 2 || len(w.GetTaskIds()) != 2 || w.GetTaskIds()[0] != all[0].GetTask().GetTaskId() {
			t.Errorf("shown: %v", w)
		}
	})
}

// DrainWorker, KickWorker and GetWorker answer NOT_FOUND for a worker that is not connected, and refuse bad fields by name without any effect.
func TestWorkerCallsRefuse(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		r.work(t, "w", 1)
		calls := map[string]func(worker, session string) error{
			"GetWorker": func(w, s string) error {
				_, err := r.admin.GetWorker(t.Context(), &lessorv1.GetWorkerRequest{WorkerId: w, SessionId: s})
				return err
			},
			"DrainWorker": func(w, s string) error {
				_, err := r.admin.DrainWorker(t.Context(), &lessorv1.DrainWorkerRequest{WorkerId: w, SessionId: s})
				return err
			},
			"KickWorker": func(w, s string) error {
				_, err := r.admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: w, SessionId: s})
				return err
			},
		}
		for name, call := range calls {
			for _, who := range [][2]string{{"nobody", ""}, {"w", "s-none"}} {
				if err := call(who[0], who[1]); status.Code(err) != codes.NotFound || refusal.CodeOf(err) != refusal.CodeNoWorker {
					t.Errorf("%s of %v: %v", name, who, err)
				}
			}
			if err := call("", ""); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s of nobody: %v", name, err)
			}
		}
		_, err := r.admin.DrainWorker(t.Context(), &lessorv1.DrainWorkerRequest{WorkerId: "w", Undo: true, Reason: "x"})
		wantWord(t, "undo with a reason", status.Convert(err).Message(), "undo: cannot be set together")
		_, err = r.admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w", RetryAfter: durationpb.New(25 * time.Hour)})
		wantWord(t, "a long wait", status.Convert(err).Message(), "retry_after: is 25h0m0s")
		if r.worker(t, "w").GetState() != lessorv1.WorkerState_WORKER_STATE_REGISTERED {
			t.Error("a refused call had an effect")
		}
	})
}
