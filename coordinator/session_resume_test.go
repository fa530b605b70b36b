package coordinator

import (
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// openSessionWith opens and registers a session, and returns its worker and its accept.
func (r *rig) openSessionWith(t *testing.T, name string, slots uint32, change func(*lessorv1.Handshake)) (*testWorker, *lessorv1.Accept) {
	t.Helper()
	worker := r.openStream(t, name)
	h := handshakeOf(name)
	if change != nil {
		change(h)
	}
	worker.send(h)
	a := nextPayload[*lessorv1.Accept](worker)
	worker.send(registration(slots))
	synctest.Wait()
	return worker, a
}

// resumeFrom changes a handshake so that it resumes a session, of which the frames up to seen have been received.
func resumeFrom(a *lessorv1.Accept, seen uint64) func(*lessorv1.Handshake) {
	return func(h *lessorv1.Handshake) {
		h.Resume = &lessorv1.Resume{SessionId: a.GetSessionId(), SessionToken: a.GetSessionToken(), LastSeenSeq: seen}
	}
}

// W8, W7: with its token a worker resumes its session. The frames that it has not received come again, in order and with the same ids, and no others.
// The worker's own sequence goes on.
func TestResume(t *testing.T) {
	t.Attr("rules", "W8 W7")
	for name, lose := range map[string]func(*testWorker){
		"after a cut":        func(worker *testWorker) { worker.cut(); synctest.Wait() },
		"a half open line":   func(*testWorker) {},
		"after a half close": func(worker *testWorker) { _ = worker.stream.CloseSend(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				old, a := r.openSessionWith(t, "w", 3, nil)
				if a.GetResumed() || a.GetNextSeq() != 1 {
					t.Errorf("a new session begins with %v", a)
				}
				r.submitAll(t, 2)
				work := old.receiveAssignments(2)
				old.sendFrame(old.numberedFrame(1, &lessorv1.Reports{Reports: []*lessorv1.Report{started(work[0])}}))
				seen := old.nextFrame()
				old.sendFrame(old.numberedFrame(2, &lessorv1.Reports{Reports: []*lessorv1.Report{completed(work[0], "")}}))
				missed := old.nextFrame()
				r.submitAll(t, 1)
				dispatch := old.nextFrame()
				synctest.Wait() // the verdict may come before its frame is counted
				lose(old)

				worker, b := r.openSessionWith(t, "w", 3, resumeFrom(a, seen.GetSeq()))
				if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() || b.GetNextSeq() != 3 || b.GetSessionToken() == a.GetSessionToken() {
					t.Errorf("the session goes on with %v", b)
				}
				m := worker.nextFrame()
				if m.GetId() != missed.GetId() || m.GetSeq() != seen.GetSeq()+1 {
					t.Errorf("the missed verdict came as %v", m)
				}
				wantCommitted(t, wantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
				m = worker.nextFrame()
				again := wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()
				if m.GetId() != dispatch.GetId() || len(again) != 1 || again[0].GetAttempt() != 1 {
					t.Errorf("the dispatch came as %v", m)
				}
				worker.ack(m)
				worker.wantAck(worker.sendFrame(worker.numberedFrame(2, &lessorv1.Capacity{MaxParallel: 1}))) // it was received on the other stream
				wantCommitted(t, worker.report(completed(work[1], ""), completed(again[0], "")))
				if name == "a half open line" {
					wantEqual(t, "the reset of the old stream", nextPayload[*lessorv1.Reset](old).GetCode(), refusal.CodeStaleBinding)
					if err := old.waitForEnd(); err != nil {
						t.Errorf("the old stream ended with %v", err)
					}
				}
				if w := r.listedWorker(t, "w"); w.GetLeases() != 0 || w.GetSessionId() != a.GetSessionId() {
					t.Errorf("listed as %v", w)
				}
			})
		})
	}
}

// W8: a verdict that is due when a new stream takes over is sent on the new stream. The old stream then ends, even if it was half-closed and waited
// for that verdict.
func TestVerdictFollowsTheSession(t *testing.T) {
	t.Attr("rules", "W8")
	for name, lose := range map[string]func(*testWorker){
		"a half open line":   func(*testWorker) {},
		"after a half close": func(worker *testWorker) { _ = worker.stream.CloseSend(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			serve(t, st, func(t *testing.T, r *rig) {
				old, a := r.openSessionWith(t, "w", 1, nil)
				r.submitAll(t, 1)
				work := old.receiveAssignments(1)
				synctest.Wait()
				release := blockCommits(st)
				corr := old.sendFrame(old.numberedFrame(1, &lessorv1.Reports{Reports: []*lessorv1.Report{completed(work[0], "")}}))
				synctest.Wait()
				lose(old)
				worker := r.openStream(t, "w")
				h := handshakeOf("w")
				resumeFrom(a, 2)(h)
				worker.send(h)
				if b := nextPayload[*lessorv1.Accept](worker); b.GetNextSeq() != 2 {
					t.Errorf("the report under way was not counted: %v", b)
				}
				worker.send(registration(1))
				synctest.Wait()
				release()
				m := worker.nextFrame()
				wantEqual(t, "corr", m.GetCorr(), corr)
				wantCommitted(t, wantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
				nextPayload[*lessorv1.Reset](old)
				_ = old.waitForEnd()
			})
		})
	}
}

// W8: frames are kept for a resume for one minute. After that, or after a restart of the coordinator, both sequences begin anew, and leases that were
// not acknowledged are dispatched again at once.
func TestResumeAfterAMinuteOrARestart(t *testing.T) {
	t.Attr("rules", "W8")
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			r := newRig(t, st)
			defer func() { r.close(t) }()
			old, a := r.openSessionWith(t, "w", 2, nil)
			r.submitAll(t, 1)
			work := old.receiveAssignments(1)
			wantCommitted(t, old.report(started(work[0])))
			if restart {
				r.submitAll(t, 1)
				wantPayload[*lessorv1.Dispatch](old, old.nextFrame())
				synctest.Wait()
				r.close(t)
				r = newRig(t, st)
			} else {
				old.cut()
				time.Sleep(keepFor + time.Second)
			}
			worker, b := r.openSessionWith(t, "w", 2, resumeFrom(a, 3))
			if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() || b.GetNextSeq() != 1 {
				t.Errorf("restart %v: the session goes on with %v", restart, b)
			}
			if restart {
				if again := worker.receiveAssignments(1); again[0].GetAttempt() != 1 {
					t.Errorf("handed over again: %v", again)
				}
			}
			wantCommitted(t, worker.report(completed(work[0], "")))
			worker.wantNoFrame()
		})
	}
}

// W8, W5: a worker that comes back without a token also gets its unacknowledged leases again at once, and does not have to wait 5 s for them.
func TestReconnectWithoutATokenGetsItsLeasesAgain(t *testing.T) {
	t.Attr("rules", "W8 W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		old := r.openSession(t, "w", 2)
		r.submitAll(t, 2)
		m := old.nextFrame()
		work := wantPayload[*lessorv1.Dispatch](old, m).GetAssignments()
		wantCommitted(t, old.report(started(work[0])))
		old.cut()
		again := r.openSession(t, "w", 2)
		left := again.receiveAssignments(1)
		if left[0].GetLeaseId() != work[1].GetLeaseId() {
			t.Errorf("handed over again: %v, want the lease that was not acknowledged", left)
		}
		wantCommitted(t, again.report(completed(work[0], ""), completed(left[0], "")))
	})
}

// W9, W8: a goodbye of a resumed session gives its leases back at once, even before register. A session that was opened without a token has no leases
// to give back: those of its instance belong to another stream.
func TestGoodbyeBeforeRegister(t *testing.T) {
	t.Attr("rules", "W9 W8")
	for name, tt := range map[string]struct{ open, resumes, restart bool }{
		"resumed":                    {resumes: true},
		"resumed from an open line":  {open: true, resumes: true},
		"resumed after a restart":    {resumes: true, restart: true},
		"without a token":            {},
		"without a token, line open": {open: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				r := newRig(t, st)
				defer func() { r.close(t) }()
				old, a := r.openSessionWith(t, "w", 1, nil)
				r.submitAll(t, 1)
				work := old.receiveAssignments(1)[0]
				wantCommitted(t, old.report(started(work)))
				if !tt.open {
					old.cut()
					synctest.Wait()
				}
				if tt.restart {
					r.close(t)
					r = newRig(t, st)
				}
				worker, h := r.openStream(t, "w"), handshakeOf("w")
				if tt.resumes {
					resumeFrom(a, 3)(h)
				}
				worker.send(h)
				nextPayload[*lessorv1.Accept](worker)
				worker.send(&lessorv1.Goodbye{})
				if err := worker.waitForEnd(); err != nil {
					t.Errorf("ended with %v", err)
				}
				synctest.Wait()
				got := r.get(t, work.GetTask().GetTaskId())
				if released := got.GetState() == lessorv1.TaskState_TASK_STATE_READY; released != tt.resumes || got.GetLosses() != 0 {
					t.Errorf("after the goodbye: %v", got)
				}
				if tt.open && !tt.resumes {
					old.heartbeat(work)
				}
			})
		})
	}
}

// W8, W14: a session token is valid for one session of one instance, for a limited time. Any other ends the stream with UNAUTHENTICATED; the worker
// can then open a new session without one.
func TestBadTokens(t *testing.T) {
	t.Attr("rules", "W8 W14")
	for name, change := range map[string]func(t *testing.T, h *lessorv1.Handshake){
		"none":    func(_ *testing.T, h *lessorv1.Handshake) { h.Resume.SessionToken = "" },
		"garbage": func(_ *testing.T, h *lessorv1.Handshake) { h.Resume.SessionToken = "A?" },
		"forged": func(t *testing.T, h *lessorv1.Handshake) {
			raw, err := base64.RawURLEncoding.DecodeString(h.GetResume().GetSessionToken())
			if err != nil {
				t.Fatal(err)
			}
			raw[3] ^= 1
			h.Resume.SessionToken = base64.RawURLEncoding.EncodeToString(raw)
		},
		"of another session":  func(_ *testing.T, h *lessorv1.Handshake) { h.Resume.SessionId += "x" },
		"of another instance": func(_ *testing.T, h *lessorv1.Handshake) { h.Worker.InstanceId = "other" },
		"of another worker":   func(_ *testing.T, h *lessorv1.Handshake) { h.Worker.Name = "other" },
		"over its time":       func(*testing.T, *lessorv1.Handshake) { time.Sleep(tokenLife) },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				old, a := r.openSessionWith(t, "w", 1, nil)
				if got := a.GetExpiresAt().AsTime().Sub(a.GetServerTime().AsTime()); got != tokenLife {
					t.Errorf("the token is good for %v", got)
				}
				old.cut()
				h := handshakeOf("w")
				resumeFrom(a, 1)(h)
				change(t, h)
				worker := r.openStream(t, h.GetWorker().GetName())
				worker.wantError(worker.send(h), refusal.CodeToken, "handshake.resume.session_token")
				if err := worker.waitForEnd(); status.Code(err) != codes.Unauthenticated || refusal.CodeOf(err) != refusal.CodeToken {
					t.Errorf("ended with %v, want UNAUTHENTICATED and %s", err, refusal.CodeToken)
				}
				r.openSession(t, "w", 1).heartbeat()
			})
		})
	}
}

// W8: if a resume was accepted but the worker never received the new token, the one before is still valid. Once the new token was used, the old one
// is not.
func TestUnusedNewTokenLeavesTheOldOneValid(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		first, a := r.openSessionWith(t, "w", 1, nil)
		first.cut()
		lost := r.openStream(t, "w")
		h := handshakeOf("w")
		resumeFrom(a, 1)(h)
		lost.send(h)
		nextPayload[*lessorv1.Accept](lost)
		lost.cut() // before register
		synctest.Wait()
		worker, b := r.openSessionWith(t, "w", 1, resumeFrom(a, 1))
		if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() {
			t.Errorf("the session goes on with %v", b)
		}
		for name, token := range map[string]*lessorv1.Accept{"used": a} {
			late := r.openStream(t, "w")
			h := handshakeOf("w")
			resumeFrom(token, 1)(h)
			late.send(h)
			wantEqual(t, name, nextPayload[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
			if err := late.waitForEnd(); err != nil {
				t.Errorf("ended with %v", err)
			}
		}
		worker.heartbeat() // the newest stream goes on
	})
}

// W8: a handshake that is refused replaces no other instance.
func TestRefusedHandshakeReplacesNobody(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		first, a := r.openSessionWith(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "other" })
		first.cut()
		newer, _ := r.openSessionWith(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "other" })
		newer.send(&lessorv1.Capacity{MaxParallel: 0})
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		work := worker.receiveAssignments(1)[0]
		wantCommitted(t, worker.report(started(work)))
		late, h := r.openStream(t, "w"), handshakeOf("w")
		resumeFrom(a, 1)(h)
		h.Worker.InstanceId, h.ReplacesInstanceId = "other", "w"
		late.send(h)
		wantEqual(t, "code", nextPayload[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		wantCommitted(t, worker.report(completed(work, "")))
	})
}

// W8: a session that was displaced by a newer session of the same instance cannot be resumed.
func TestDisplacedSessionCannotBeResumed(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		old, a := r.openSessionWith(t, "w", 1, nil)
		worker := r.openSession(t, "w", 1)
		nextPayload[*lessorv1.Reset](old)
		late := r.openStream(t, "w")
		h := handshakeOf("w")
		resumeFrom(a, 1)(h)
		late.send(h)
		wantEqual(t, "code", nextPayload[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		worker.heartbeat()
	})
}

// W8: an instance that a handshake names as replaced loses its stream and its leases at once; this counts in no budget.
func TestReplacedInstanceLosesItsLeases(t *testing.T) {
	t.Attr("rules", "W8")
	for _, cut := range []bool{false, true} {
		serve(t, nil, func(t *testing.T, r *rig) {
			old := r.openSession(t, "w", 1)
			r.submitAll(t, 1)
			work := old.receiveAssignments(1)
			wantCommitted(t, old.report(started(work[0])))
			if cut {
				old.cut()
				synctest.Wait()
			}
			worker, _ := r.openSessionWith(t, "w", 1, func(h *lessorv1.Handshake) {
				h.Worker.InstanceId, h.ReplacesInstanceId = "w2", "w"
			})
			if !cut {
				wantEqual(t, "the reset", nextPayload[*lessorv1.Reset](old).GetCode(), refusal.CodeStaleBinding)
			}
			if again := worker.receiveAssignments(1)[0]; again.GetAttempt() != 2 || again.GetTask().GetLosses() != 0 {
				t.Errorf("handed on: %v", again)
			}
			got := worker.report(completed(work[0], ""))
			if got[0].GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
				t.Errorf("the old lease: %v", got)
			}
		})
	}
}

// W8, K1: after a restart, a worker reports its tasks while they are being dispatched again. After their verdicts they must not be dispatched.
func TestReportedTasksAreNotDispatchedAgain(t *testing.T) {
	t.Attr("rules", "W8 K1")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		r := newRig(t, st)
		defer func() { r.close(t) }()
		const tasks = 20
		old, a := r.openSessionWith(t, "w", tasks, nil)
		r.submitAll(t, tasks)
		var work []*lessorv1.Assignment
		for len(work) < tasks { // none is acknowledged
			work = append(work, wantPayload[*lessorv1.Dispatch](old, old.nextFrame()).GetAssignments()...)
		}
		synctest.Wait()
		r.close(t)
		r = newRig(t, st)

		worker, h := r.openStream(t, "w"), handshakeOf("w")
		resumeFrom(a, 1)(h)
		worker.send(h)
		nextPayload[*lessorv1.Accept](worker)
		synctest.Wait()
		release := blockCommits(st) // so that both frames are handled before either is answered
		go func() {
			if _, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "other"}}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		worker.send(registration(tasks))
		report := &lessorv1.Reports{}
		for _, w := range work {
			report.Reports = append(report.Reports, completed(w, ""))
		}
		worker.send(report)
		synctest.Wait()
		release()
		synctest.Wait()
		judged := false
		for range 2 {
			m := worker.nextFrame()
			if verdicts := m.GetVerdicts().GetVerdicts(); verdicts != nil {
				wantCommitted(t, verdicts)
				judged = true
			}
			if n := len(m.GetDispatch().GetAssignments()); judged && n > 0 {
				t.Errorf("%d tasks are handed over after their verdicts", n)
			}
		}
		worker.wantNoFrame()
	})
}
