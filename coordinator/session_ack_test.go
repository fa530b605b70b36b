package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// wantLeaseEnded checks that the next frame is a cancel which says that the lease of a has ended for this reason.
func (worker *testWorker) wantLeaseEnded(a *lessorv1.Assignment, reason lessorv1.Reason) {
	worker.t.Helper()
	m := worker.nextFrame()
	c := wantPayload[*lessorv1.Cancel](worker, m)
	if c.GetLeaseId() != a.GetLeaseId() || c.GetTaskId() != a.GetTask().GetTaskId() || c.GetReason() != reason || c.GetGrace() != nil {
		worker.t.Fatalf("%s: received %v, want the end of the lease %s for %v", worker.name, c, a.GetLeaseId(), reason)
	}
	wantEqual(worker.t, "corr", m.GetCorr(), c.GetTaskId())
}

// W5: a dispatch that is not acknowledged within 5 s is taken back, and counts neither as a loss nor as a failure. The session gets no tasks until it
// sends a frame. A late acknowledgement is answered with a cancel.
func TestUnacknowledgedDispatchIsTakenBack(t *testing.T) {
	t.Attr("rules", "W5")
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		m := worker.nextFrame()
		a := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin - time.Millisecond)
		worker.wantNoFrame()
		began := time.Now()
		worker.wantLeaseEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		if late := time.Since(began); late > 100*time.Millisecond {
			t.Errorf("the cancel came %v after the 5 s, want at most 100 ms", late)
		}
		time.Sleep(30 * time.Second)
		worker.wantNoFrame()
		got := r.get(t, a.GetTask().GetTaskId())
		if got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetLosses() != 0 || got.GetFailures() != 0 {
			t.Errorf("the task is %v, want READY without losses and failures", got)
		}
		worker.ack(m)
		synctest.Wait()
		worker.wantLeaseEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		if again := worker.receiveAssignments(1)[0]; again.GetAttempt() != 2 { // the late ack counts as a frame
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}

// W5: if the task has been granted to another worker in the meantime, a late acknowledgement is answered with SUPERSEDED.
func TestLateAckOfATaskThatAnotherWorkerHas(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		m := worker.nextFrame()
		a := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin)
		worker.wantLeaseEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		r.openSession(t, "other", 1).receiveAssignments(1)
		worker.ack(m)
		worker.wantLeaseEnded(a, lessorv1.Reason_REASON_SUPERSEDED)
		worker.ack(m) // only the first ack of a frame counts
		worker.wantNoFrame()
	})
}

// W5: if a late acknowledgement comes in the frame of a Start that is REJECTED, the worker also gets a cancel, because the verdict does not say that the
// lease has ended.
func TestLateAckBesideARefusedStart(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		m := worker.nextFrame()
		a := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		worker.wantLeaseEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		bad := started(a)
		bad.GetStart().Attempt = a.GetAttempt() + 1
		f := worker.newFrame(&lessorv1.Reports{Reports: []*lessorv1.Report{bad}})
		f.Ack = &lessorv1.Ack{For: m.GetId()}
		worker.sendFrame(f)
		var cancels, verdicts int
		for range 3 { // the third frame dispatches the task again
			switch m := payload(worker.nextFrame()).(type) {
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
	})
}

// W5: a dispatch is acknowledged by an ack, by a Start, or by a heartbeat that names the lease. None of them is answered with a cancel.
func TestWhatAcknowledgesADispatch(t *testing.T) {
	t.Attr("rules", "W5")
	for name, acknowledge := range map[string]func(*testWorker, *lessorv1.SessionResponse, *lessorv1.Assignment){
		"ack": func(worker *testWorker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) { worker.ack(m) },
		"start": func(worker *testWorker, _ *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			wantCommitted(worker.t, worker.report(started(a)))
		},
		"heartbeat": func(worker *testWorker, _ *lessorv1.SessionResponse, a *lessorv1.Assignment) { worker.heartbeat(a) },
		"ack beside the start": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			wantCommitted(worker.t, worker.reportWithAck(m, started(a)))
		},
		"ack beside a start that is refused": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := started(a)
			bad.GetStart().Attempt = a.GetAttempt() + 1
			if v := worker.reportWithAck(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
				worker.t.Errorf("a start of another attempt got %v", v)
			}
		},
		"ack beside the start of another lease": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := started(a)
			bad.GetStart().LeaseId = "another"
			if v := worker.reportWithAck(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_LEASE {
				worker.t.Errorf("a start under another lease got %v", v)
			}
		},
		"ack beside a start with a bad field": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := started(a)
			bad.GetStart().WorkerId = text(257)
			if v := worker.reportWithAck(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
				worker.t.Errorf("a start with a bad field got %v", v)
			}
		},
		"ack beside a result that is too large": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			if v := worker.reportWithAck(m, completed(a, text(1<<20+1)))[0]; v.GetReason() != lessorv1.Reason_REASON_RESULT_TOO_LARGE {
				worker.t.Errorf("a result that is too large got %v", v)
			}
		},
		"ack beside reports that are refused as a whole": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			f := worker.newFrame(&lessorv1.Reports{Reports: make([]*lessorv1.Report, 2000)})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			worker.sendFrame(f)
			worker.wantError(f.GetId(), refusal.CodeInvalid, "items")
		},
		"ack beside a payload": func(worker *testWorker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := worker.newFrame(&lessorv1.Capacity{MaxParallel: 1})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			worker.sendFrame(f)
		},
		"ack beside a repeated frame": func(worker *testWorker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := worker.numberedFrame(1, &lessorv1.Reports{})
			worker.sendFrame(f)
			nextPayload[*lessorv1.Verdicts](worker)
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			worker.wantAck(worker.sendFrame(f))
		},
		"ack beside a frame after a gap": func(worker *testWorker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := worker.numberedFrame(2, &lessorv1.Reports{})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			worker.wantGap(worker.sendFrame(f), 1)
		},
		"ack after the start": func(worker *testWorker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			wantCommitted(worker.t, worker.report(started(a)))
			worker.ack(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				worker := r.openSession(t, "w", 1)
				r.submitAll(t, 1)
				m := worker.nextFrame()
				a := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
				time.Sleep(lease.DefaultAckWithin - time.Millisecond)
				acknowledge(worker, m, a)
				time.Sleep(30 * time.Second)
				worker.wantNoFrame()
				wantCommitted(t, worker.report(completed(a, "")))
			})
		})
	}
}

// W5: a lease that is shorter than the time for an acknowledgement expires first. The session then also gets no tasks until it sends a frame.
func TestShortLeaseRunsOutUnacknowledged(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second/2), durationpb.New(time.Second)
		})
		a := wantPayload[*lessorv1.Dispatch](worker, worker.nextFrame()).GetAssignments()[0]
		worker.wantLeaseEnded(a, lessorv1.Reason_REASON_LEASE_EXPIRED)
		time.Sleep(30 * time.Second)
		worker.wantNoFrame()
		worker.heartbeat()
		if again := worker.receiveAssignments(1)[0]; again.GetAttempt() != 2 {
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}

// An acknowledgement that comes after the report of its task is not late, and is not answered with a cancel.
func TestAckAfterTheReport(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		m := worker.nextFrame()
		wantCommitted(t, worker.report(completed(wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0], "")))
		worker.ack(m)
		worker.wantNoFrame()
	})
}

// W5: a task is FAILED if six different sessions in a row do not acknowledge its dispatch.
func TestSixUnacknowledgedDispatchesFailTheTask(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		for i := range lease.MaxUnacked {
			worker := r.openSession(t, fmt.Sprintf("w%d", i), 1)
			a := wantPayload[*lessorv1.Dispatch](worker, worker.nextFrame()).GetAssignments()[0]
			worker.wantLeaseEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		}
		got := r.get(t, id)
		if got.GetState() != lessorv1.TaskState_TASK_STATE_FAILED || got.GetReason() != lessorv1.Reason_REASON_DISPATCH_UNAVAILABLE {
			t.Errorf("the task is %v, want FAILED for DISPATCH_UNAVAILABLE", got)
		}
	})
}

// T10: if a Start comes in the frame that acknowledges its dispatch, the history has only the event STARTED, not ACKNOWLEDGED.
func TestStartThatAcknowledgesIsOneEvent(t *testing.T) {
	t.Attr("rules", "T10")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		r.submitAll(t, 2)
		m := worker.nextFrame()
		all := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()
		wantCommitted(t, worker.reportWithAck(m, started(all[0]), completed(all[0], "")))
		for i, want := range []lessorv1.HistoryEventType{
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ACKNOWLEDGED,
		} {
			got := r.get(t, all[i].GetTask().GetTaskId()).GetHistory()
			if len(got) < 3 || got[2].GetType() != want { // events 0 and 1 are the submit and the grant
				t.Errorf("the history of task %d is %v, want %v as event 2", i, got, want)
			}
		}
	})
}

// V19, T10: an outcome with started_at is all that the coordinator hears of a short attempt: it acknowledges the dispatch, and the history has the event
// STARTED before that of the outcome, and none for the acknowledgement.
func TestOutcomeThatSaysWhenItBegan(t *testing.T) {
	t.Attr("rules", "V19 T10")
	at := timestamppb.New(time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)) // of the worker's clock, which decides nothing
	for want, outcome := range map[lessorv1.HistoryEventType]func(*lessorv1.Assignment) *lessorv1.Report{
		lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED: func(a *lessorv1.Assignment) *lessorv1.Report {
			r := completed(a, "")
			r.GetComplete().StartedAt = at
			return r
		},
		lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED: func(a *lessorv1.Assignment) *lessorv1.Report {
			return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), StartedAt: at, Error: &lessorv1.TaskError{Message: "no"},
			}}}
		},
		lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED: func(a *lessorv1.Assignment) *lessorv1.Report {
			return &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), StartedAt: at, Delay: durationpb.New(time.Hour),
			}}}
		},
	} {
		t.Run(want.String(), func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				worker := r.openSession(t, "w", 1)
				r.submitAll(t, 1)
				m := worker.nextFrame()
				a := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
				time.Sleep(time.Second)
				reported := time.Now()
				wantCommitted(t, worker.reportWithAck(m, outcome(a)))
				got := r.get(t, a.GetTask().GetTaskId()).GetHistory()
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
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		a := worker.receiveAssignments(1)[0]
		bad := completed(a, "")
		bad.GetComplete().StartedAt = &timestamppb.Timestamp{Nanos: -1}
		v := worker.report(bad)[0]
		if v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST || !strings.Contains(v.GetDetail(), "started_at") {
			t.Errorf("the outcome got %v, want INVALID_REQUEST about started_at", v)
		}
		wantCommitted(t, worker.report(completed(a, "")))
	})
}

// W9: a worker whose lease has expired may be a process that stands still, long before it has missed a heartbeat of its session. It gets no tasks
// until it sends a frame, so that the task is free for another worker at once. A worker that lives acknowledges the cancel, and gets the next task
// without a pause.
func TestWorkerWithAnExpiredLeaseGetsNoWork(t *testing.T) {
	t.Attr("rules", "W9")
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		id := r.submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second/2), durationpb.New(time.Second)
		}).GetTaskId()
		m := worker.nextFrame()
		a := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		worker.ack(m)
		ended := worker.nextFrame()
		if c := wantPayload[*lessorv1.Cancel](worker, ended); c.GetLeaseId() != a.GetLeaseId() || c.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED {
			t.Fatalf("received %v, want the end of the lease", c)
		}
		time.Sleep(30 * time.Second)
		worker.wantNoFrame()
		if got := r.get(t, id); got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetAttempt() != 1 || got.GetLosses() != 1 {
			t.Errorf("the task is %v, want READY after one attempt, which was lost", got)
		}
		worker.ack(ended)
		if again := worker.receiveAssignments(1)[0]; again.GetAttempt() != 2 {
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}
