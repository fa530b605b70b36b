package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// drainMemory is how long package session remembers a drain.
const drainMemory = time.Hour

// W10: when an operator drains a worker, the worker gets a drain frame and no new tasks. It may
// finish its tasks and gets their verdicts. An undo ends the drain.
func TestOperatorDrainsAWorker(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		deadline := timestamppb.New(time.Now().Add(time.Hour))
		listed := r.Drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Reason: "new kernel", Deadline: deadline})
		if len(listed) != 1 || listed[0].GetState() != lessorv1.WorkerState_WORKER_STATE_DRAINING || listed[0].GetLeases() != 1 {
			t.Errorf("DrainWorker returned %v, want one DRAINING session with one lease", listed)
		}
		d := wiretest.NextPayload[*lessorv1.Drain](worker)
		if d.GetReason() != "new kernel" || !d.GetDeadline().AsTime().Equal(deadline.AsTime()) {
			t.Errorf("the drain frame is %v, want the reason and the deadline of the call", d)
		}
		wiretest.WantContains(t, "the log", r.Log.String(), `"by":"anonymous","drain":true,"reason":"new kernel"`)
		// a repeated drain is not sent again
		r.Drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Reason: "new kernel", Deadline: deadline})
		r.SubmitAll(t, 1)
		worker.WantNoFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(a), wiretest.Completed(a, "")))
		worker.Heartbeat()
		worker.WantNoFrame()
		if w := r.ListedWorker(t, "w"); w.GetState() != lessorv1.WorkerState_WORKER_STATE_DRAINING || w.GetDrain().GetReason() != "new kernel" {
			t.Errorf("the worker is listed as %v, want DRAINING with the reason", w)
		}
		r.Drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Undo: true})
		worker.ReceiveAssignments(1)
		if w := r.ListedWorker(t, "w"); w.GetState() != lessorv1.WorkerState_WORKER_STATE_HEARTBEATING || w.GetDrain() != nil {
			t.Errorf("after the undo the worker is listed as %v, want HEARTBEATING", w)
		}
	})
}

// W10: a session that is drained before it has registered gets the drain once, after its register.
func TestOperatorDrainsAWorkerThatHasNotRegistered(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		worker.Handshake()
		r.Drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", Reason: "new kernel"})
		worker.WantNoFrame()
		worker.Send(wiretest.Registration(1))
		wiretest.WantEqual(t, "the reason", wiretest.NextPayload[*lessorv1.Drain](worker).GetReason(), "new kernel")
		r.SubmitAll(t, 1)
		worker.WantNoFrame()
	})
}

// W10: a drain is for one instance of a worker. The coordinator remembers it for an hour after the
// instance's stream has ended. Another instance of the same worker gets tasks.
func TestDrainOutlastsAReconnect(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.Drain(t, &lessorv1.DrainWorkerRequest{WorkerId: "w", SessionId: r.ListedWorker(t, "w").GetSessionId()})
		wiretest.NextPayload[*lessorv1.Drain](worker)
		worker.Send(&lessorv1.Goodbye{})
		if err := worker.WaitForEnd(); err != nil {
			t.Fatal(err)
		}
		r.SubmitAll(t, 2)
		time.Sleep(drainMemory)
		worker = r.OpenSession(t, "w", 1)
		wiretest.NextPayload[*lessorv1.Drain](worker)
		worker.WantNoFrame()
		other := r.OpenStream(t, "w")
		other.Send(&lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: "w", InstanceId: "another"}})
		wiretest.NextPayload[*lessorv1.Accept](other)
		other.Send(wiretest.Registration(1))
		wiretest.WantCommitted(t, other.Report(wiretest.Completed(other.ReceiveAssignments(1)[0], "")))
		other.ReceiveAssignments(1)
		worker.Send(&lessorv1.Goodbye{})
		if err := worker.WaitForEnd(); err != nil {
			t.Fatal(err)
		}
		other.Send(&lessorv1.Goodbye{})
		if err := other.WaitForEnd(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(drainMemory + time.Second)
		for range 2 { // the expired drain stays expired when the instance connects and leaves
			worker = r.OpenSession(t, "w", 1)
			worker.ReceiveAssignments(1)
			worker.Send(&lessorv1.Goodbye{})
			if err := worker.WaitForEnd(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// W10: a kick ends the session, and its reset says after which time the worker may connect again.
// The worker keeps its leases until they expire.
func TestOperatorKicksAWorker(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
		kicked := r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", Reason: "stuck", RetryAfter: durationpb.New(time.Minute)})
		if len(kicked) != 1 || kicked[0].GetLeases() != 1 {
			t.Errorf("KickWorker returned %v, want one session with one lease", kicked)
		}
		reset := wiretest.NextPayload[*lessorv1.Reset](worker)
		wiretest.WantEqual(t, "code", reset.GetCode(), refusal.CodeKicked)
		wiretest.WantEqual(t, "reason", reset.GetReason(), "an operator ended the session: stuck")
		wiretest.WantEqual(t, "leases_ended", fmt.Sprint(reset.GetLeasesEnded()), "false")
		if d := reset.GetRetryAfter().AsDuration(); d != time.Minute {
			t.Errorf("retry_after is %v, want 1m", d)
		}
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
		if w := r.ListedWorker(t, "w"); w != nil {
			t.Errorf("the worker is still listed: %v", w)
		}
		worker = r.OpenSession(t, "w", 1)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "")))
		r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w"})
		reset = wiretest.NextPayload[*lessorv1.Reset](worker)
		wiretest.WantEqual(t, "reason", reset.GetReason(), "an operator ended the session")
		if d := reset.GetRetryAfter().AsDuration(); d != service.KickedFor {
			t.Errorf("without retry_after in the call it is %v, want %v", d, service.KickedFor)
		}
		worker = r.OpenSession(t, "w", 1)
		r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", RetryAfter: durationpb.New(service.KickedAtMost)})
		if d := wiretest.NextPayload[*lessorv1.Reset](worker).GetRetryAfter().AsDuration(); d != service.KickedAtMost {
			t.Errorf("retry_after is %v, want %v", d, service.KickedAtMost)
		}
	})
}

// W10: a kick with requeue ends the worker's leases at once, and other workers get their tasks.
// Reports under these leases do not count any more.
func TestKickGivesLeasesToOthers(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker, other := r.OpenSession(t, "w", 1), r.OpenSession(t, "other", 1)
		r.SubmitAll(t, 2)
		a := worker.ReceiveAssignments(1)[0]
		b := other.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, other.Report(wiretest.Completed(b, "")))
		r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true, Reason: "gone"})
		if again := other.ReceiveAssignments(1)[0]; again.GetTask().GetTaskId() != a.GetTask().GetTaskId() || again.GetAttempt() != 2 {
			t.Errorf("the other worker got %v, want attempt 2 of task %s", again, a.GetTask().GetTaskId())
		}
		reset := wiretest.NextPayload[*lessorv1.Reset](worker)
		wiretest.WantEqual(t, "code", reset.GetCode(), refusal.CodeKicked)
		wiretest.WantEqual(t, "leases_ended", fmt.Sprint(reset.GetLeasesEnded()), "true")
		worker = r.OpenSession(t, "w", 1)
		v := worker.Report(wiretest.Completed(a, ""))[0]
		if v.GetVerdict() != lessorv1.Verdict_VERDICT_CANCELLED || v.GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
			t.Errorf("the verdict is %v, want CANCELLED SUPERSEDED", v)
		}
		x, err := r.Tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: a.GetTask().GetTaskId()})
		if err != nil {
			t.Fatal(err)
		}
		wiretest.WantEqual(t, "the detail of the last lease",
			x.GetLastLease().GetDetail(), "an operator revoked the worker's leases: gone")
		wiretest.WantContains(t, "the log", r.Log.String(), `"by":"anonymous","reason":"gone","requeue":true`)
	})
}

// W10: a kick with requeue also ends the leases, and the session, of a stream that takes over from
// one of the kicked ones before the kick comes to it: with the token of the session or as a new
// one.
func TestKickBesideANewSession(t *testing.T) {
	t.Attr("rules", "W10")
	const sessions = 101 // one more than the engine revokes at once
	for _, resume := range []bool{true, false} {
		st := &wiretest.SlowStore{Store: memstore.New()}
		wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
			hellos := map[string]*lessorv1.Handshake{}
			for i := range sessions {
				hello := &lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: "w", InstanceId: fmt.Sprint(i)}}
				worker := r.OpenStream(t, "w")
				worker.Send(hello)
				accept := wiretest.NextPayload[*lessorv1.Accept](worker)
				if resume {
					hello.Resume = &lessorv1.Resume{
						SessionId:    accept.GetSessionId(),
						SessionToken: accept.GetSessionToken(), LastSeenSeq: 2,
					}
				}
				hellos[accept.GetSessionId()] = hello
				worker.Send(wiretest.Registration(1))
				r.SubmitAll(t, 1)
				wiretest.WantCommitted(t, worker.Report(wiretest.Started(worker.ReceiveAssignments(1)[0])))
			}
			last := open(t, r)[sessions-1]
			st.CommitTime.Store(int64(3 * time.Second))
			answered := make(chan []*lessorv1.Worker, 1)
			go func() {
				res, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true})
				if err != nil {
					t.Error(err)
				}
				answered <- res.GetWorkers()
			}()
			time.Sleep(time.Second) // a commit with the end of the leases of all but the last session is under way
			again := r.OpenStream(t, "w")
			again.Send(hellos[last.GetSessionId()])
			wiretest.NextPayload[*lessorv1.Accept](again)
			again.Send(wiretest.Registration(1))
			st.CommitTime.Store(0)
			kicked := <-answered
			wiretest.WantEqual(t, "the code", wiretest.NextFrameWith[*lessorv1.Reset](again).GetReset_().GetCode(),
				refusal.CodeKicked)
			if len(kicked) != sessions+1 {
				t.Errorf("%d sessions were ended, want %d", len(kicked), sessions+1)
			}
			synctest.Wait()
			if left := open(t, r); len(left) != 0 {
				t.Errorf("after the kick these sessions are open: %v", left)
			}
			res, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{Queue: "q"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range res.GetTasks() {
				if task.GetState() != lessorv1.TaskState_TASK_STATE_READY {
					t.Errorf("task %s is %v, want READY", task.GetTaskId(), task.GetState())
				}
			}
		})
	}
}

// unregistered opens a stream of the instance that openSession uses for a worker, or of another
// one, up to its accept.
func unregistered(t *testing.T, r *wiretest.Rig, worker, instance string) (s *wiretest.Worker, session string) {
	t.Helper()
	s = r.OpenStream(t, worker)
	s.Send(&lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: worker, InstanceId: instance}})
	return s, wiretest.NextPayload[*lessorv1.Accept](s).GetSessionId()
}

// W10: a kick of one session that has not taken over the leases of its instance yet leaves them to
// the session that has them.
func TestKickOfASessionWithoutLeases(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		holder, _ := unregistered(t, r, "w", "i")
		holder.Send(wiretest.Registration(1))
		r.SubmitAll(t, 1)
		a := holder.ReceiveAssignments(1)[0]
		late, session := unregistered(t, r, "w", "i")
		r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", SessionId: session, Requeue: true})
		reset := wiretest.NextPayload[*lessorv1.Reset](late)
		wiretest.WantEqual(t, "code", reset.GetCode(), refusal.CodeKicked)
		wiretest.WantEqual(t, "leases_ended", fmt.Sprint(reset.GetLeasesEnded()), "false")
		wiretest.WantCommitted(t, holder.Report(wiretest.Completed(a, "")))
		r.SubmitAll(t, 1)
		b := holder.ReceiveAssignments(1)[0]
		r.Kick(t, &lessorv1.KickWorkerRequest{WorkerId: "w", SessionId: r.ListedWorker(t, "w").GetSessionId(), Requeue: true})
		wiretest.WantEqual(t, "the state after a kick of the holder",
			r.Get(t, b.GetTask().GetTaskId()).GetState().String(), "TASK_STATE_READY")
	})
}

// W10: a session that registers while it is being kicked gets no lease any more.
func TestKickBesideARegistration(t *testing.T) {
	t.Attr("rules", "W10")
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		first, _ := unregistered(t, r, "w", "i")
		first.Send(wiretest.Registration(1))
		r.SubmitAll(t, 1)
		a := first.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, first.Report(wiretest.Started(a)))
		first.Cut()
		synctest.Wait()
		late, session := unregistered(t, r, "w", "i")
		st.CommitTime.Store(int64(3 * time.Second))
		kicked := make(chan error, 1)
		go func() {
			_, err := r.Admin.KickWorker(t.Context(),
				&lessorv1.KickWorkerRequest{WorkerId: "w", SessionId: session, Requeue: true})
			kicked <- err
		}()
		time.Sleep(time.Second) // the end of the lease is being committed
		late.Send(wiretest.Registration(1))
		synctest.Wait()
		st.CommitTime.Store(0)
		if err := <-kicked; err != nil {
			t.Fatal(err)
		}
		wiretest.WantEqual(t, "the code", wiretest.NextFrameWith[*lessorv1.Reset](late).GetReset_().GetCode(), refusal.CodeKicked)
		wiretest.WantEqual(t, "the state", r.Get(t, a.GetTask().GetTaskId()).GetState().String(), "TASK_STATE_READY")
	})
}

// W10: a kick that waits for the engine before it begins also ends the sessions that are opened
// meanwhile.
func TestKickThatWaits(t *testing.T) {
	t.Attr("rules", "W10")
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		r.OpenSession(t, "w", 1)
		st.CommitTime.Store(int64(3 * time.Second))
		go func() {
			_, _ = r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "other"}})
		}()
		time.Sleep(time.Second)
		kicked := make(chan int, 1)
		go func() {
			res, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w"})
			if err != nil {
				t.Error(err)
			}
			kicked <- len(res.GetWorkers())
		}()
		time.Sleep(time.Second)
		unregistered(t, r, "w", "another")
		st.CommitTime.Store(0)
		if n := <-kicked; n != 2 {
			t.Errorf("%d sessions were ended, want both", n)
		}
	})
}

// GetWorker shows the sessions of one worker with the tasks that they hold.
func TestGetWorkerShowsItsTasks(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 3)
		r.OpenSession(t, "other", 1).Send(&lessorv1.Drain{})
		synctest.Wait()
		r.SubmitAll(t, 2)
		all := worker.ReceiveAssignments(2)
		res, err := r.Admin.GetWorker(t.Context(), &lessorv1.GetWorkerRequest{WorkerId: "w"})
		if err != nil || len(res.GetWorkers()) != 1 {
			t.Fatalf("%v (%v), want one session", res, err)
		}
		w := res.GetWorkers()[0]
		if w.GetLeases() != 2 || len(w.GetTaskIds()) != 2 || w.GetTaskIds()[0] != all[0].GetTask().GetTaskId() {
			t.Errorf("the session is %v, want two leases with their tasks", w)
		}
	})
}

// X5, W10: a worker with very many sessions makes no answer that is too large to send. The answer
// has some of the sessions, and the number of all, and all are drained or ended.
func TestManySessionsOfAWorker(t *testing.T) {
	t.Attr("rules", "X5 W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const n = 300
		large := wiretest.Registration(1)
		large.Capabilities.Labels = map[string]string{}
		for i := range 64 {
			large.Capabilities.Labels[fmt.Sprint(i)] = wiretest.Text(250)
		}
		for i := range n {
			worker := r.OpenStream(t, "w")
			hello := wiretest.HandshakeOf("w")
			hello.Worker.InstanceId = fmt.Sprint(i)
			worker.Send(hello)
			wiretest.NextPayload[*lessorv1.Accept](worker)
			worker.Send(large)
		}
		synctest.Wait()
		for name, call := range map[string]func() (proto.Message, error){
			"1 get": func() (proto.Message, error) {
				return r.Admin.GetWorker(t.Context(), &lessorv1.GetWorkerRequest{WorkerId: "w"})
			},
			"2 drain": func() (proto.Message, error) {
				return r.Admin.DrainWorker(t.Context(), &lessorv1.DrainWorkerRequest{WorkerId: "w"})
			},
		} {
			res, err := call()
			if err != nil || proto.Size(res) > 2<<20 {
				t.Errorf("%s: %d bytes (%v), want at most 2 MiB", name, proto.Size(res), err)
			}
			answer := res.(interface {
				GetWorkers() []*lessorv1.Worker
				GetSessions() uint32
			})
			if shown := len(answer.GetWorkers()); answer.GetSessions() != n || shown < 10 || shown >= n {
				t.Errorf("%s: %d of %d sessions, want some of %d", name, shown, answer.GetSessions(), n)
			}
		}
		all := open(t, r)
		for _, w := range all {
			if w.GetState() != lessorv1.WorkerState_WORKER_STATE_DRAINING {
				t.Fatalf("session %s is %v, want DRAINING", w.GetSessionId(), w.GetState())
			}
		}
		res, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w"})
		if err != nil || proto.Size(res) > 2<<20 || res.GetSessions() != n {
			t.Errorf("kick: %d bytes about %d sessions (%v), want at most 2 MiB about %d",
				proto.Size(res), res.GetSessions(), err, n)
		}
		synctest.Wait()
		if left := open(t, r); len(all) != n || len(left) != 0 {
			t.Errorf("%d sessions were open, and %d are after the kick, want %d and none", len(all), len(left), n)
		}
	})
}

// open lists all open sessions.
func open(t *testing.T, r *wiretest.Rig) (all []*lessorv1.Worker) {
	t.Helper()
	for token, more := "", true; more; more = token != "" {
		res, err := r.Admin.ListWorkers(t.Context(), &lessorv1.ListWorkersRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		all, token = append(all, res.GetWorkers()...), res.GetNextPageToken()
	}
	return all
}

// changesOfWorker are the calls that change the worker w.
var changesOfWorker = map[string]func(context.Context, lessorv1.AdminServiceClient) error{
	"DrainWorker": func(ctx context.Context, c lessorv1.AdminServiceClient) error {
		_, err := c.DrainWorker(ctx, &lessorv1.DrainWorkerRequest{WorkerId: "w"})
		return err
	},
	"KickWorker": func(ctx context.Context, c lessorv1.AdminServiceClient) error {
		_, err := c.KickWorker(ctx, &lessorv1.KickWorkerRequest{WorkerId: "w"})
		return err
	},
	"KickWorker with requeue": func(ctx context.Context, c lessorv1.AdminServiceClient) error {
		_, err := c.KickWorker(ctx, &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true})
		return err
	},
}

// X4: a worker is drained or kicked if and only if the audit has an entry about it, also if the
// caller does not wait for the answer.
func TestAbandonedCallsAboutWorkersAreAudited(t *testing.T) {
	t.Attr("rules", "X4")
	for name, call := range changesOfWorker {
		st := &wiretest.SlowStore{Store: memstore.New()}
		wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
			r.OpenSession(t, "w", 1)
			st.CommitTime.Store(int64(3 * time.Second))
			go func() {
				_, _ = r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "other"}})
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := call(ctx, r.Admin); status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("%s: error %v, want DEADLINE_EXCEEDED", name, err)
			}
			st.CommitTime.Store(0)
			time.Sleep(3 * time.Second)
			res, err := r.Admin.ListWorkers(t.Context(), &lessorv1.ListWorkersRequest{})
			if err != nil {
				t.Fatal(err)
			}
			changed := len(res.GetWorkers()) == 0 || res.GetWorkers()[0].GetDrain() != nil
			if entries := r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: strings.Fields(name)[0]}); changed != (len(entries) == 1) {
				t.Errorf("%s: the worker was changed: %t; the audit has %v", name, changed, entries)
			}
		})
	}
}

// X4: before a worker learns of a drain or a kick, the audit entry about it is durable, also if the
// caller does not wait for that.
func TestChangesOfWorkersAreAuditedFirst(t *testing.T) {
	t.Attr("rules", "X4")
	const commit = 3 * time.Second
	for name, call := range changesOfWorker {
		for _, leaves := range []bool{false, true} {
			st := &wiretest.SlowStore{Store: memstore.New()}
			wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if leaves {
					time.AfterFunc(commit/2, cancel)
				}
				st.CommitTime.Store(int64(commit))
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- call(ctx, r.Admin) }()
				worker.NextFrame()
				if took := time.Since(began); took < commit {
					t.Errorf("%s: the worker was told after %v, want after the commit of the entry, %v", name, took, commit)
				}
				if err := <-ended; err != nil != leaves {
					t.Errorf("%s: error %v; the caller has left: %t", name, err, leaves)
				}
				st.CommitTime.Store(0)
				if events := r.AuditEvents(t.Context(), t, wiretest.WholeAudit()); len(events) != 1 || events[0].GetAction() != strings.Fields(name)[0] {
					t.Errorf("%s: the audit has %v, want one entry", name, events)
				}
			})
		}
	}
}

// DrainWorker, KickWorker and GetWorker answer NOT_FOUND for a worker that is not connected. They
// refuse bad fields with the name, and such a call has no effect.
func TestWorkerCallsRefuse(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.OpenSession(t, "w", 1)
		calls := map[string]func(worker, session string) error{
			"GetWorker": func(w, s string) error {
				_, err := r.Admin.GetWorker(t.Context(), &lessorv1.GetWorkerRequest{WorkerId: w, SessionId: s})
				return err
			},
			"DrainWorker": func(w, s string) error {
				_, err := r.Admin.DrainWorker(t.Context(), &lessorv1.DrainWorkerRequest{WorkerId: w, SessionId: s})
				return err
			},
			"KickWorker": func(w, s string) error {
				_, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: w, SessionId: s})
				return err
			},
		}
		for name, call := range calls {
			for _, who := range [][2]string{{"nobody", ""}, {"w", "s-none"}} {
				if err := call(who[0], who[1]); status.Code(err) != codes.NotFound || refusal.CodeOf(err) != refusal.CodeNoWorker {
					t.Errorf("%s of %v: %v, want NOT_FOUND", name, who, err)
				}
			}
			if err := call("", ""); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s without a worker_id: %v, want INVALID_ARGUMENT", name, err)
			}
		}
		_, err := r.Admin.DrainWorker(t.Context(), &lessorv1.DrainWorkerRequest{WorkerId: "w", Undo: true, Reason: "x"})
		wiretest.WantContains(t, "undo with a reason", status.Convert(err).Message(), "undo: cannot be set together")
		_, err = r.Admin.DrainWorker(t.Context(),
			&lessorv1.DrainWorkerRequest{WorkerId: "w", Undo: true, Deadline: timestamppb.Now()})
		wiretest.WantContains(t, "undo with a deadline", status.Convert(err).Message(), "undo: cannot be set together")
		_, err = r.Admin.KickWorker(t.Context(),
			&lessorv1.KickWorkerRequest{WorkerId: "w", RetryAfter: durationpb.New(25 * time.Hour)})
		wiretest.WantContains(t, "a long wait", status.Convert(err).Message(), "retry_after: is 25h0m0s")
		if r.ListedWorker(t, "w").GetState() != lessorv1.WorkerState_WORKER_STATE_REGISTERED {
			t.Error("a refused call had an effect")
		}
	})
}
