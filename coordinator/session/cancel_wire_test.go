package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// T7: when a task is cancelled, its worker gets a cancel frame with the grace at once. The answer
// to each heartbeat of the lease repeats it, and the worker's report ends the cancelling.
func TestCancelReachesTheStream(t *testing.T) {
	t.Attr("rules", "T7")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(10 * time.Second) })
		a := worker.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
		r.Cancel(t, a)
		c := wiretest.NextPayload[*lessorv1.Cancel](worker)
		if c.GetReason() != lessorv1.Reason_REASON_TASK_CANCELLED || c.GetGrace().AsDuration() != 10*time.Second ||
			c.GetDetail() != "not needed" || c.GetLeaseId() != a.GetLeaseId() {
			t.Errorf("the cancel is %v, want TASK_CANCELLED with a grace of 10 s and the reason", c)
		}
		got := worker.Heartbeat(a)[0]
		if got.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED || !got.GetShouldCancel() || got.GetCancelReason() != "not needed" {
			t.Errorf("the heartbeat got %v, want COMMITTED with should_cancel", got)
		}
		r.Cancel(t, a) // a repeated cancel is not sent again
		worker.WantNoFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Released(a)))
		if s := r.Get(t, a.GetTask().GetTaskId()).GetState(); s != lessorv1.TaskState_TASK_STATE_CANCELLED {
			t.Errorf("the task is %v, want CANCELLED", s)
		}
		time.Sleep(50 * time.Second)
		worker.WantNoFrame()
	})
}

// T7: a Start turns into the end of a task that was cancelled before it, unless it says that the
// work has begun. Then the worker has the grace, and what it reports counts.
func TestStartAfterACancel(t *testing.T) {
	t.Attr("rules", "T7")
	for begun, want := range map[bool]lessorv1.TaskState{
		false: lessorv1.TaskState_TASK_STATE_CANCELLED,
		true:  lessorv1.TaskState_TASK_STATE_COMPLETED,
	} {
		t.Run(fmt.Sprintf("begun=%t", begun), func(t *testing.T) {
			wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				r.Submit(t, func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(10 * time.Second) })
				a := worker.ReceiveAssignments(1)[0]
				r.Cancel(t, a)
				wiretest.NextPayload[*lessorv1.Cancel](worker)
				start := wiretest.Started(a)
				start.GetStart().Begun = begun
				got := worker.Report(start)[0]
				if live := got.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED; live != begun || !got.GetShouldCancel() {
					t.Errorf("the start got %v, want should_cancel, and COMMITTED if it has begun", got)
				}
				worker.Report(wiretest.Completed(a, "done"))
				task := r.Get(t, a.GetTask().GetTaskId())
				started := slices.ContainsFunc(task.GetHistory(), func(e *lessorv1.HistoryEvent) bool {
					return e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED
				})
				if task.GetState() != want || started != begun {
					t.Errorf("the task is %v, want %v, and a start only if it has begun", task, want)
				}
			})
		})
	}
}

// T7, W8: a cancel that is sent again on the next stream of its session has the grace that is left
// then: workers count it from its arrival. After the end of the grace, it still has a grace,
// because without one it would say that the lease is lost.
func TestCancelThatIsSentAgainHasTheRestOfTheGrace(t *testing.T) {
	t.Attr("rules", "T7 W8")
	const grace = 30 * time.Second
	for name, away := range map[string]time.Duration{"within the grace": 20 * time.Second, "after the grace": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				worker, accept := r.OpenSessionWith(t, "w", 1, nil)
				r.Submit(t, func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(grace) })
				a := worker.ReceiveAssignments(1)[0]
				wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
				r.Cancel(t, a)
				asked, first := time.Now(), worker.NextFrame()
				wiretest.WantEqual(t, "the grace of the first cancel",
					first.GetCancel().GetGrace().AsDuration().String(), grace.String())
				worker.Cut()
				time.Sleep(away)
				worker, _ = r.OpenSessionWith(t, "w", 1, wiretest.ResumeFrom(accept, first.GetSeq()-1))
				again := worker.NextFrame()
				wiretest.WantEqual(t, "the id of the frame that is sent again", again.GetId(), first.GetId())
				left := max(grace-time.Since(asked), time.Millisecond)
				wiretest.WantEqual(t, "its grace", again.GetCancel().GetGrace().AsDuration().String(), left.String())
				worker.Ack(again)
			})
		})
	}
}

// So does one that is sent again on the same stream, because the worker has not acknowledged it.
func TestCancelThatIsNotAcknowledgedHasTheRestOfTheGrace(t *testing.T) {
	t.Attr("rules", "T7 W6")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		const grace = 30 * time.Second
		worker := r.OpenSession(t, "w", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(grace) })
		a := worker.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
		worker.KeepRepeats.Store(true)
		r.Cancel(t, a)
		asked, first := time.Now(), worker.NextFrame()
		for range 3 {
			again := worker.NextFrame()
			wiretest.WantEqual(t, "the id of the frame that is sent again", again.GetId(), first.GetId())
			wiretest.WantEqual(t, "its grace", again.GetCancel().GetGrace().AsDuration().String(),
				(grace - time.Since(asked)).String())
		}
		worker.Ack(first)
	})
}

// When a worker loses a lease, it gets a cancel without a grace that has the reason.
func TestWorkerIsToldThatItsLeaseIsLost(t *testing.T) {
	for name, tt := range map[string]struct {
		lose   func(*testing.T, *wiretest.Rig, *lessorv1.Assignment)
		reason lessorv1.Reason
	}{
		"expiry":          {func(*testing.T, *wiretest.Rig, *lessorv1.Assignment) { time.Sleep(90 * time.Second) }, lessorv1.Reason_REASON_LEASE_EXPIRED},
		"attempt timeout": {func(*testing.T, *wiretest.Rig, *lessorv1.Assignment) { time.Sleep(20 * time.Second) }, lessorv1.Reason_REASON_DEADLINE_EXCEEDED},
		"grace over": {func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) {
			r.Cancel(t, a)
			time.Sleep(10 * time.Second)
		}, lessorv1.Reason_REASON_CANCEL_TIMEOUT},
		"deletion": {func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) {
			_, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId(), Force: true})
			if err != nil {
				t.Fatal(err)
			}
		}, lessorv1.Reason_REASON_REVOKED},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				r.Submit(t, func(s *lessorv1.TaskSpec) {
					s.CancelGrace = durationpb.New(10 * time.Second)
					if name == "attempt timeout" {
						s.AttemptTimeout = durationpb.New(20 * time.Second)
					}
				})
				a := worker.ReceiveAssignments(1)[0]
				wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
				// keeps the session alive, not the lease
				alive := time.AfterFunc(45*time.Second, func() { worker.Send(&lessorv1.WorkerHeartbeat{}) })
				defer alive.Stop()
				tt.lose(t, r, a)
				for {
					m := worker.NextFrame()
					if m.GetHeartbeatAck() != nil || m.GetCancel().GetGrace() != nil {
						continue
					}
					c := wiretest.WantPayload[*lessorv1.Cancel](worker, m)
					if c.GetReason() != tt.reason || c.GetLeaseId() != a.GetLeaseId() {
						t.Errorf("the cancel is %v, want the loss of the lease for %v", c, tt.reason)
					}
					return
				}
			})
		})
	}
}

// The coordinator sends a cancel after the dispatch of its task and before the next dispatch, even
// if all of them have to wait.
func TestDispatchesAndCancelsKeepTheirOrder(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenUnreadStream(t, "w") // it reads nothing, so that frames have to wait
		worker.Send(wiretest.HandshakeOf("w"))
		worker.Send(wiretest.Registration(4))
		heavy := func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) }
		r.Submit(t, heavy)
		r.Submit(t, heavy)
		id := r.Submit(t, nil).GetTaskId()
		synctest.Wait()
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		last := r.Submit(t, nil).GetTaskId()
		synctest.Wait()
		var got []string
		for len(got) < 5 {
			m, err := worker.Stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range m.GetDispatch().GetAssignments() {
				got = append(got, a.GetTask().GetTaskId())
			}
			if c := m.GetCancel(); c != nil {
				got = append(got, "cancel "+c.GetTaskId())
			}
		}
		wiretest.WantEqual(t, "what came after the first two tasks",
			strings.Join(got[2:], ", "), strings.Join([]string{id, "cancel " + id, last}, ", "))
	})
}
