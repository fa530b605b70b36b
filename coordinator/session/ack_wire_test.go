package session_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// wantLeaseEnded checks that the next frame is a cancel which says that the lease of a has ended
// for this reason.
func wantLeaseEnded(worker *wiretest.Worker, a *lessorv1.Assignment, reason lessorv1.Reason) {
	worker.T.Helper()
	m := worker.NextFrame()
	c := wiretest.WantPayload[*lessorv1.Cancel](worker, m)
	if c.GetLeaseId() != a.GetLeaseId() || c.GetTaskId() != a.GetTask().GetTaskId() || c.GetReason() != reason || c.GetGrace() != nil {
		worker.T.Fatalf("%s: received %v, want the end of the lease %s for %v", worker.Name, c, a.GetLeaseId(), reason)
	}
	wiretest.WantEqual(worker.T, "corr", m.GetCorr(), c.GetTaskId())
}

// W5: a dispatch that is not acknowledged within 5 s is taken back, and counts neither as a loss
// nor as a failure. The session gets no tasks until it sends a frame. A late acknowledgement is
// answered with a cancel.
func TestUnacknowledgedDispatchIsTakenBack(t *testing.T) {
	t.Attr("rules", "W5")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		m := worker.NextFrame()
		a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin - time.Millisecond)
		worker.WantNoFrame()
		began := time.Now()
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		if late := time.Since(began); late > 100*time.Millisecond {
			t.Errorf("the cancel came %v after the 5 s, want at most 100 ms", late)
		}
		time.Sleep(30 * time.Second)
		worker.WantNoFrame()
		got := r.Get(t, a.GetTask().GetTaskId())
		if got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetLosses() != 0 || got.GetFailures() != 0 {
			t.Errorf("the task is %v, want READY without losses and failures", got)
		}
		worker.Ack(m)
		synctest.Wait()
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		if again := worker.ReceiveAssignments(1)[0]; again.GetAttempt() != 2 { // the late ack counts as a frame
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}

// W5: if the task has been granted to another worker in the meantime, a late acknowledgement is
// answered with SUPERSEDED.
func TestLateAckOfATaskThatAnotherWorkerHas(t *testing.T) {
	t.Attr("rules", "W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		m := worker.NextFrame()
		a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin)
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		r.OpenSession(t, "other", 1).ReceiveAssignments(1)
		worker.Ack(m)
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_SUPERSEDED)
		worker.Ack(m) // only the first ack of a frame counts
		worker.WantNoFrame()
	})
}

// W5: if a late acknowledgement comes in the frame of a Start that is REJECTED, the worker also
// gets a cancel, because the verdict does not say that the lease has ended.
func TestLateAckBesideARefusedStart(t *testing.T) {
	t.Attr("rules", "W5")
	for name, spoil := range map[string]func(*lessorv1.StartRequest){
		"another attempt": func(m *lessorv1.StartRequest) { m.Attempt++ },
		"a bad field":     func(m *lessorv1.StartRequest) { m.WorkerId = wiretest.Text(257) },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) { lateAckBesideARefusedStart(t, r, spoil) })
		})
	}
}

func lateAckBesideARefusedStart(t *testing.T, r *wiretest.Rig, spoil func(*lessorv1.StartRequest)) {
	worker := r.OpenSession(t, "w", 1)
	r.SubmitAll(t, 1)
	m := worker.NextFrame()
	a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
	wantLeaseEnded(worker, a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
	bad := wiretest.Started(a)
	bad.GetStart().Attempt = a.GetAttempt()
	spoil(bad.GetStart())
	f := worker.NewFrame(&lessorv1.Reports{Reports: []*lessorv1.Report{bad}})
	f.Ack = &lessorv1.Ack{For: m.GetId()}
	worker.SendFrame(f)
	var cancels, verdicts int
	for range 3 { // the third frame dispatches the task again
		switch m := wiretest.Payload(worker.NextFrame()).(type) {
		case *lessorv1.Cancel:
			cancels++
			if m.GetLeaseId() != a.GetLeaseId() || m.GetReason() != lessorv1.Reason_REASON_DISPATCH_UNACKED {
				t.Errorf("received %v, want the end of the lease for DISPATCH_UNACKED", m)
			}
		case *lessorv1.Verdicts:
			verdicts++
			if got := m.GetVerdicts()[0].GetReason(); got != lessorv1.Reason_REASON_INVALID_REQUEST {
				t.Errorf("the Start got %v, want INVALID_REQUEST", got)
			}
		}
	}
	if cancels != 1 || verdicts != 1 {
		t.Errorf("received %d cancels and %d verdicts, want one of each", cancels, verdicts)
	}
}

// W5: a dispatch is acknowledged by an ack, by a Start, or by a heartbeat that names the lease.
// None of them is answered with a cancel.
func TestWhatAcknowledgesADispatch(t *testing.T) {
	t.Attr("rules", "W5")
	for name, acknowledge := range map[string]func(*wiretest.Worker, *lessorv1.SessionResponse, *lessorv1.Assignment){
		"ack": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) { worker.Ack(m) },
		"start": func(worker *wiretest.Worker, _ *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			wiretest.WantCommitted(worker.T, worker.Report(wiretest.Started(a)))
		},
		"heartbeat": func(worker *wiretest.Worker, _ *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			worker.Heartbeat(a)
		},
		"ack beside the start": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			wiretest.WantCommitted(worker.T, worker.ReportWithAck(m, wiretest.Started(a)))
		},
		"ack beside a start that is refused": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := wiretest.Started(a)
			bad.GetStart().Attempt = a.GetAttempt() + 1
			if v := worker.ReportWithAck(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
				worker.T.Errorf("a start of another attempt got %v", v)
			}
		},
		"ack beside the start of another lease": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := wiretest.Started(a)
			bad.GetStart().LeaseId = "another"
			if v := worker.ReportWithAck(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_LEASE {
				worker.T.Errorf("a start under another lease got %v", v)
			}
		},
		"ack beside a start with a bad field": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := wiretest.Started(a)
			bad.GetStart().WorkerId = wiretest.Text(257)
			if v := worker.ReportWithAck(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
				worker.T.Errorf("a start with a bad field got %v", v)
			}
		},
		"ack beside a result that is too large": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			if v := worker.ReportWithAck(m, wiretest.Completed(a, wiretest.Text(1<<20+1)))[0]; v.GetReason() != lessorv1.Reason_REASON_RESULT_TOO_LARGE {
				worker.T.Errorf("a result that is too large got %v", v)
			}
		},
		"ack beside reports that are refused as a whole": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			f := worker.NewFrame(&lessorv1.Reports{Reports: make([]*lessorv1.Report, 2000)})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			worker.SendFrame(f)
			worker.WantError(f.GetId(), refusal.CodeInvalid, "items")
		},
		"ack beside a payload": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := worker.NewFrame(&lessorv1.Capacity{MaxParallel: 1})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			worker.SendFrame(f)
		},
		"ack beside a repeated frame": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := numberedFrame(worker, 1, &lessorv1.Reports{})
			worker.SendFrame(f)
			wiretest.NextPayload[*lessorv1.Verdicts](worker)
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			wantAck(worker, worker.SendFrame(f))
		},
		"ack beside a frame after a gap": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := numberedFrame(worker, 2, &lessorv1.Reports{})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			wantGap(worker, worker.SendFrame(f), 1)
		},
		"ack after the start": func(worker *wiretest.Worker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			wiretest.WantCommitted(worker.T, worker.Report(wiretest.Started(a)))
			worker.Ack(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				r.SubmitAll(t, 1)
				m := worker.NextFrame()
				a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
				time.Sleep(lease.DefaultAckWithin - time.Millisecond)
				acknowledge(worker, m, a)
				time.Sleep(30 * time.Second)
				worker.WantNoFrame()
				wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "")))
			})
		})
	}
}

// W5: a lease that is shorter than the time for an acknowledgement expires first. The session then
// also gets no tasks until it sends a frame.
func TestShortLeaseRunsOutUnacknowledged(t *testing.T) {
	t.Attr("rules", "W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second/2), durationpb.New(time.Second)
		})
		a := wiretest.WantPayload[*lessorv1.Dispatch](worker, worker.NextFrame()).GetAssignments()[0]
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_LEASE_EXPIRED)
		time.Sleep(30 * time.Second)
		worker.WantNoFrame()
		worker.Heartbeat()
		if again := worker.ReceiveAssignments(1)[0]; again.GetAttempt() != 2 {
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}

// W5, T5: so it is if attempt_timeout is shorter: a worker that stands still takes one task, and
// the task is not at fault.
func TestShortAttemptRunsOutUnacknowledged(t *testing.T) {
	t.Attr("rules", "W5 T5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		task := r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.AttemptTimeout, s.RetryPolicy = durationpb.New(time.Second), &lessorv1.RetryPolicy{MaxAttempts: 1}
		})
		a := wiretest.WantPayload[*lessorv1.Dispatch](worker, worker.NextFrame()).GetAssignments()[0]
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_DEADLINE_EXCEEDED)
		time.Sleep(30 * time.Second)
		worker.WantNoFrame()
		worker.Heartbeat()
		if again := worker.ReceiveAssignments(1)[0]; again.GetTask().GetTaskId() != task.GetTaskId() || again.GetAttempt() != 2 {
			t.Errorf("after a frame the worker got %v, want attempt 2 of %s", again, task.GetTaskId())
		}
	})
}

// An acknowledgement that comes after the report of its task is not late, and is not answered with
// a cancel.
func TestAckAfterTheReport(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		m := worker.NextFrame()
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0], "")))
		worker.Ack(m)
		worker.WantNoFrame()
	})
}

// W5: a task is FAILED if six different sessions in a row do not acknowledge its dispatch.
func TestSixUnacknowledgedDispatchesFailTheTask(t *testing.T) {
	t.Attr("rules", "W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		for i := range lease.MaxUnacked {
			worker := r.OpenSession(t, fmt.Sprintf("w%d", i), 1)
			a := wiretest.WantPayload[*lessorv1.Dispatch](worker, worker.NextFrame()).GetAssignments()[0]
			wantLeaseEnded(worker, a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		}
		got := r.Get(t, id)
		if got.GetState() != lessorv1.TaskState_TASK_STATE_FAILED || got.GetReason() != lessorv1.Reason_REASON_DISPATCH_UNAVAILABLE {
			t.Errorf("the task is %v, want FAILED for DISPATCH_UNAVAILABLE", got)
		}
		wiretest.WantContains(t, "the log", r.Log.String(), `"level":"WARN","msg":"a task has failed: no worker acknowledged it","tenant":"default","task_id":"`+id+
			`","queue":"q","worker":"w5","grants":6`)
	})
}

// T10: if a Start comes in the frame that acknowledges its dispatch, the history has only the event
// STARTED, not ACKNOWLEDGED.
func TestStartThatAcknowledgesIsOneEvent(t *testing.T) {
	t.Attr("rules", "T10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 2)
		m := worker.NextFrame()
		all := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()
		wiretest.WantCommitted(t, worker.ReportWithAck(m, wiretest.Started(all[0]), wiretest.Completed(all[0], "")))
		for i, want := range []lessorv1.HistoryEventType{
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ACKNOWLEDGED,
		} {
			got := r.Get(t, all[i].GetTask().GetTaskId()).GetHistory()
			if len(got) < 3 || got[2].GetType() != want { // events 0 and 1 are the submit and the grant
				t.Errorf("the history of task %d is %v, want %v as event 2", i, got, want)
			}
		}
	})
}

// V19, T10: an outcome with started_at is all that the coordinator hears of a short attempt: it
// acknowledges the dispatch, and the history has the event STARTED before that of the outcome, and
// none for the acknowledgement.
func TestOutcomeThatSaysWhenItBegan(t *testing.T) {
	t.Attr("rules", "V19 T10")
	at := timestamppb.New(time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)) // of the worker's clock, which decides nothing
	for want, outcome := range map[lessorv1.HistoryEventType]func(*lessorv1.Assignment) *lessorv1.Report{
		lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED: func(a *lessorv1.Assignment) *lessorv1.Report {
			r := wiretest.Completed(a, "")
			r.GetComplete().StartedAt = at
			return r
		},
		lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED: func(a *lessorv1.Assignment) *lessorv1.Report {
			return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), StartedAt: at,
				Error: &lessorv1.TaskError{Message: "no"},
			}}}
		},
		lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED: func(a *lessorv1.Assignment) *lessorv1.Report {
			return &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), StartedAt: at, Delay: durationpb.New(time.Hour),
			}}}
		},
	} {
		t.Run(want.String(), func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				r.SubmitAll(t, 1)
				m := worker.NextFrame()
				a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
				time.Sleep(time.Second)
				reported := time.Now()
				wiretest.WantCommitted(t, worker.ReportWithAck(m, outcome(a)))
				got := r.Get(t, a.GetTask().GetTaskId()).GetHistory()
				if len(got) != 4 || got[2].GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED || got[3].GetType() != want {
					t.Fatalf("the history is %v, want submitted, granted, started, %v", got, want)
				}
				if begun := got[2].GetAt().AsTime(); begun.Before(reported.Add(-time.Millisecond)) {
					t.Errorf("started at %v, want the coordinator's own time, %v", begun, reported)
				}
			})
		})
	}
}

// V1: a started_at that is no time is a bad field of an outcome, as it is of a Start.
func TestOutcomeWithABadStart(t *testing.T) {
	t.Attr("rules", "V1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		bad := wiretest.Completed(a, "")
		bad.GetComplete().StartedAt = &timestamppb.Timestamp{Nanos: -1}
		v := worker.Report(bad)[0]
		if v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST || !strings.Contains(v.GetDetail(), "started_at") {
			t.Errorf("the outcome got %v, want INVALID_REQUEST about started_at", v)
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "")))
	})
}

// W9: a worker whose lease has expired may be a process that stands still, long before it has
// missed a heartbeat of its session. It gets no tasks until it sends a frame, so that the task is
// free for another worker at once. A worker that lives acknowledges the cancel, and gets the next
// task without a pause.
func TestWorkerWithAnExpiredLeaseGetsNoWork(t *testing.T) {
	t.Attr("rules", "W9")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		id := r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second/2), durationpb.New(time.Second)
		}).GetTaskId()
		m := worker.NextFrame()
		a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		worker.Ack(m)
		ended := worker.NextFrame()
		if c := wiretest.WantPayload[*lessorv1.Cancel](worker, ended); c.GetLeaseId() != a.GetLeaseId() || c.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED {
			t.Fatalf("received %v, want the end of the lease", c)
		}
		time.Sleep(30 * time.Second)
		worker.WantNoFrame()
		if got := r.Get(t, id); got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetAttempt() != 1 || got.GetLosses() != 1 {
			t.Errorf("the task is %v, want READY after one attempt, which was lost", got)
		}
		worker.Ack(ended)
		if again := worker.ReceiveAssignments(1)[0]; again.GetAttempt() != 2 {
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}
