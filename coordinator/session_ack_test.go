package coordinator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// wantEnded waits until the worker is told that its lease has ended, and for which reason.
func (tk *talker) wantEnded(a *lessorv1.Assignment, reason lessorv1.Reason) {
	tk.t.Helper()
	m := tk.next()
	c := payloadOf[*lessorv1.Cancel](tk, m)
	if c.GetLeaseId() != a.GetLeaseId() || c.GetTaskId() != a.GetTask().GetTaskId() || c.GetReason() != reason || c.GetGrace() != nil {
		tk.t.Fatalf("%s: told %v, want the end of %s for %v", tk.name, c, a.GetLeaseId(), reason)
	}
	wantText(tk.t, "corr", m.GetCorr(), c.GetTaskId())
}

// W5: a dispatch that is not acknowledged for 5 s is taken back, and counts in no budget. The session gets no work until it sends a frame. A late ack
// is answered with a cancel.
func TestUnacknowledgedDispatchComesBack(t *testing.T) {
	t.Attr("rules", "W5")
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		m := tk.next()
		a := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin - time.Millisecond)
		tk.quiet()
		began := time.Now()
		tk.wantEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		if late := time.Since(began); late > 100*time.Millisecond {
			t.Errorf("noticed %v late", late)
		}
		time.Sleep(30 * time.Second)
		tk.quiet()
		got := r.get(t, a.GetTask().GetTaskId())
		if got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetLosses() != 0 || got.GetFailures() != 0 {
			t.Errorf("the task is %v", got)
		}
		tk.ack(m)
		synctest.Wait()
		tk.wantEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		if again := tk.given(1)[0]; again.GetAttempt() != 2 { // the late ack was a frame
			t.Errorf("dispatched again: %v", again)
		}
	})
}

// W5: if the task was granted to another worker meanwhile, the late ack is answered with SUPERSEDED.
func TestLateAckOfWhatAnotherHas(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		m := tk.next()
		a := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin)
		tk.wantEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		r.work(t, "other", 1).given(1)
		tk.ack(m)
		tk.wantEnded(a, lessorv1.Reason_REASON_SUPERSEDED)
		tk.ack(m) // only the first ack of a frame counts
		tk.quiet()
	})
}

// W5: a late ack in the frame of a Start that is REJECTED is answered, too: the verdict does not say that the lease has ended.
func TestLateAckBesideARefusedStart(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		m := tk.next()
		a := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()[0]
		tk.wantEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		bad := started(a)
		bad.GetStart().Attempt = a.GetAttempt() + 1
		f := tk.frame(&lessorv1.Reports{Reports: []*lessorv1.Report{bad}})
		f.Ack = &lessorv1.Ack{For: m.GetId()}
		tk.send(f)
		var told, refused int
		for range 3 { // the third one dispatches the task again
			switch m := payload(tk.next()).(type) {
			case *lessorv1.Cancel:
				told++
				if m.GetLeaseId() != a.GetLeaseId() || m.GetReason() != lessorv1.Reason_REASON_DISPATCH_UNACKED {
					t.Errorf("told %v", m)
				}
			case *lessorv1.Verdicts:
				refused++
				if got := m.GetVerdicts()[0].GetReason(); got != lessorv1.Reason_REASON_INVALID_REQUEST {
					t.Errorf("the start got %v", got)
				}
			}
		}
		if told != 1 || refused != 1 {
			t.Errorf("%d cancels and %d verdicts, want one of each", told, refused)
		}
	})
}

// W5: a dispatch is acknowledged by an ack, by a Start, or by a heartbeat that names the lease. None of them is answered with a cancel.
func TestWhatAcknowledges(t *testing.T) {
	t.Attr("rules", "W5")
	for name, acknowledge := range map[string]func(*talker, *lessorv1.SessionResponse, *lessorv1.Assignment){
		"ack":       func(tk *talker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) { tk.ack(m) },
		"start":     func(tk *talker, _ *lessorv1.SessionResponse, a *lessorv1.Assignment) { did(tk.t, tk.judge(started(a))) },
		"heartbeat": func(tk *talker, _ *lessorv1.SessionResponse, a *lessorv1.Assignment) { tk.beat(a) },
		"ack beside the start": func(tk *talker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			did(tk.t, tk.judgeWith(m, started(a)))
		},
		"ack beside a start that is refused": func(tk *talker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := started(a)
			bad.GetStart().Attempt = a.GetAttempt() + 1
			if v := tk.judgeWith(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
				tk.t.Errorf("a start of another attempt got %v", v)
			}
		},
		"ack beside the start of another lease": func(tk *talker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			bad := started(a)
			bad.GetStart().LeaseId = "another"
			if v := tk.judgeWith(m, bad)[0]; v.GetReason() != lessorv1.Reason_REASON_INVALID_LEASE {
				tk.t.Errorf("a start under another lease got %v", v)
			}
		},
		"ack beside what is refused as a whole": func(tk *talker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			f := tk.frame(&lessorv1.Reports{Reports: make([]*lessorv1.Report, 2000)})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			tk.send(f)
			tk.refused(f.GetId(), refusal.CodeInvalid, "items")
		},
		"ack beside a payload": func(tk *talker, m *lessorv1.SessionResponse, _ *lessorv1.Assignment) {
			f := tk.frame(&lessorv1.Capacity{MaxParallel: 1})
			f.Ack = &lessorv1.Ack{For: m.GetId()}
			tk.send(f)
		},
		"ack after the start": func(tk *talker, m *lessorv1.SessionResponse, a *lessorv1.Assignment) {
			did(tk.t, tk.judge(started(a)))
			tk.ack(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				tk := r.work(t, "w", 1)
				r.submitAll(t, 1)
				m := tk.next()
				a := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()[0]
				time.Sleep(lease.DefaultAckWithin - time.Millisecond)
				acknowledge(tk, m, a)
				time.Sleep(30 * time.Second)
				tk.quiet()
				did(t, tk.judge(completed(a, "")))
			})
		})
	}
}

// W5: a lease that is shorter than the time for an ack expires first. The session then gets no work until it sends a frame, either.
func TestShortLeaseRunsOutUnacknowledged(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second/2), durationpb.New(time.Second)
		})
		a := payloadOf[*lessorv1.Dispatch](tk, tk.next()).GetAssignments()[0]
		tk.wantEnded(a, lessorv1.Reason_REASON_LEASE_EXPIRED)
		time.Sleep(30 * time.Second)
		tk.quiet()
		tk.beat()
		if again := tk.given(1)[0]; again.GetAttempt() != 2 {
			t.Errorf("dispatched again: %v", again)
		}
	})
}

// An ack that comes after the report of the task is not late: it is not answered with a cancel.
func TestAckAfterTheReport(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		m := tk.next()
		did(t, tk.judge(completed(payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()[0], "")))
		tk.ack(m)
		tk.quiet()
	})
}

// W5: a dispatch that is not acknowledged counts against its session. Only after six different sessions in a row the task is FAILED.
func TestSixSilentSessions(t *testing.T) {
	t.Attr("rules", "W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		for i := range lease.MaxUnacked {
			tk := r.work(t, fmt.Sprintf("w%d", i), 1)
			a := payloadOf[*lessorv1.Dispatch](tk, tk.next()).GetAssignments()[0]
			tk.wantEnded(a, lessorv1.Reason_REASON_DISPATCH_UNACKED)
		}
		got := r.get(t, id)
		if got.GetState() != lessorv1.TaskState_TASK_STATE_FAILED || got.GetReason() != lessorv1.Reason_REASON_DISPATCH_UNAVAILABLE {
			t.Errorf("the task is %v", got)
		}
	})
}

// T10: if a Start comes in the frame that acknowledges its dispatch, the history has only the Start.
func TestStartBesideTheAck(t *testing.T) {
	t.Attr("rules", "T10")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		r.submitAll(t, 2)
		m := tk.next()
		all := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()
		did(t, tk.judgeWith(m, started(all[0]), completed(all[0], "")))
		for i, want := range []lessorv1.HistoryEventType{
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ACKNOWLEDGED,
		} {
			got := r.get(t, all[i].GetTask().GetTaskId()).GetHistory()
			if len(got) < 3 || got[2].GetType() != want { // behind the submit and the grant
				t.Errorf("the history of task %d is %v, want %v", i, got, want)
			}
		}
	})
}
