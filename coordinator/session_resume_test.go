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

// accepted opens and registers a session, and returns its talker and accept.
func (r *rig) accepted(t *testing.T, name string, slots uint32, change func(*lessorv1.Handshake)) (*talker, *lessorv1.Accept) {
	t.Helper()
	tk := r.talk(t, name)
	h := hello(name)
	if change != nil {
		change(h)
	}
	tk.say(h)
	a := hear[*lessorv1.Accept](tk)
	tk.say(registration(slots))
	synctest.Wait()
	return tk, a
}

// goOn changes a handshake so that it resumes a session, of which the frames up to seen have been received.
func goOn(a *lessorv1.Accept, seen uint64) func(*lessorv1.Handshake) {
	return func(h *lessorv1.Handshake) {
		h.Resume = &lessorv1.Resume{SessionId: a.GetSessionId(), SessionToken: a.GetSessionToken(), LastSeenSeq: seen}
	}
}

// W8, W7: with its token a worker resumes its session. The frames that it has not received come again, in order and with the same ids, and no others.
// The worker's own sequence goes on.
func TestResume(t *testing.T) {
	t.Attr("rules", "W8 W7")
	for name, lose := range map[string]func(*talker){
		"after a cut":        func(tk *talker) { tk.cut(); synctest.Wait() },
		"a half open line":   func(*talker) {},
		"after a half close": func(tk *talker) { _ = tk.stream.CloseSend(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				old, a := r.accepted(t, "w", 3, nil)
				if a.GetResumed() || a.GetNextSeq() != 1 {
					t.Errorf("a new session begins with %v", a)
				}
				r.submitAll(t, 2)
				work := old.given(2)
				old.send(old.numbered(1, &lessorv1.Reports{Reports: []*lessorv1.Report{started(work[0])}}))
				seen := old.next()
				old.send(old.numbered(2, &lessorv1.Reports{Reports: []*lessorv1.Report{completed(work[0], "")}}))
				missed := old.next()
				r.submitAll(t, 1)
				dispatch := old.next()
				synctest.Wait() // the verdict may come before its frame is counted
				lose(old)

				tk, b := r.accepted(t, "w", 3, goOn(a, seen.GetSeq()))
				if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() || b.GetNextSeq() != 3 || b.GetSessionToken() == a.GetSessionToken() {
					t.Errorf("the session goes on with %v", b)
				}
				m := tk.next()
				if m.GetId() != missed.GetId() || m.GetSeq() != seen.GetSeq()+1 {
					t.Errorf("the missed verdict came as %v", m)
				}
				did(t, payloadOf[*lessorv1.Verdicts](tk, m).GetVerdicts())
				m = tk.next()
				again := payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()
				if m.GetId() != dispatch.GetId() || len(again) != 1 || again[0].GetAttempt() != 1 {
					t.Errorf("the dispatch came as %v", m)
				}
				tk.ack(m)
				tk.acked(tk.send(tk.numbered(2, &lessorv1.Capacity{MaxParallel: 1}))) // it was received on the other stream
				did(t, tk.judge(completed(work[1], ""), completed(again[0], "")))
				if name == "a half open line" {
					wantText(t, "the reset of the old stream", hear[*lessorv1.Reset](old).GetCode(), refusal.CodeStaleBinding)
					if err := old.over(); err != nil {
						t.Errorf("the old stream ended with %v", err)
					}
				}
				if w := r.worker(t, "w"); w.GetLeases() != 0 || w.GetSessionId() != a.GetSessionId() {
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
	for name, lose := range map[string]func(*talker){
		"a half open line":   func(*talker) {},
		"after a half close": func(tk *talker) { _ = tk.stream.CloseSend(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			serve(t, st, func(t *testing.T, r *rig) {
				old, a := r.accepted(t, "w", 1, nil)
				r.submitAll(t, 1)
				work := old.given(1)
				synctest.Wait()
				release := hold(st)
				corr := old.send(old.numbered(1, &lessorv1.Reports{Reports: []*lessorv1.Report{completed(work[0], "")}}))
				synctest.Wait()
				lose(old)
				tk := r.talk(t, "w")
				h := hello("w")
				goOn(a, 2)(h)
				tk.say(h)
				if b := hear[*lessorv1.Accept](tk); b.GetNextSeq() != 2 {
					t.Errorf("the report under way was not counted: %v", b)
				}
				tk.say(registration(1))
				synctest.Wait()
				release()
				m := tk.next()
				wantText(t, "corr", m.GetCorr(), corr)
				did(t, payloadOf[*lessorv1.Verdicts](tk, m).GetVerdicts())
				hear[*lessorv1.Reset](old)
				_ = old.over()
			})
		})
	}
}

// W8: frames are kept for a resume for one minute. After that, or after a restart of the coordinator, both sequences begin anew, and leases that were
// not acknowledged are dispatched again at once.
func TestResumeAfterAWhile(t *testing.T) {
	t.Attr("rules", "W8")
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			r := newRig(t, st)
			defer func() { r.close(t) }()
			old, a := r.accepted(t, "w", 2, nil)
			r.submitAll(t, 1)
			work := old.given(1)
			did(t, old.judge(started(work[0])))
			if restart {
				r.submitAll(t, 1)
				payloadOf[*lessorv1.Dispatch](old, old.next())
				synctest.Wait()
				r.close(t)
				r = newRig(t, st)
			} else {
				old.cut()
				time.Sleep(keepFor + time.Second)
			}
			tk, b := r.accepted(t, "w", 2, goOn(a, 3))
			if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() || b.GetNextSeq() != 1 {
				t.Errorf("restart %v: the session goes on with %v", restart, b)
			}
			if restart {
				if again := tk.given(1); again[0].GetAttempt() != 1 {
					t.Errorf("handed over again: %v", again)
				}
			}
			did(t, tk.judge(completed(work[0], "")))
			tk.quiet()
		})
	}
}

// W8, W5: a worker that comes back without a token also gets its unacknowledged leases again at once, and does not have to wait 5 s for them.
func TestBlinkWithoutAToken(t *testing.T) {
	t.Attr("rules", "W8 W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		old := r.work(t, "w", 2)
		r.submitAll(t, 2)
		m := old.next()
		work := payloadOf[*lessorv1.Dispatch](old, m).GetAssignments()
		did(t, old.judge(started(work[0])))
		old.cut()
		again := r.work(t, "w", 2)
		left := again.given(1)
		if left[0].GetLeaseId() != work[1].GetLeaseId() {
			t.Errorf("handed over again: %v, want the lease that was not acknowledged", left)
		}
		did(t, again.judge(completed(work[0], ""), completed(left[0], "")))
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
				old, a := r.accepted(t, "w", 1, nil)
				r.submitAll(t, 1)
				work := old.given(1)[0]
				did(t, old.judge(started(work)))
				if !tt.open {
					old.cut()
					synctest.Wait()
				}
				if tt.restart {
					r.close(t)
					r = newRig(t, st)
				}
				tk, h := r.talk(t, "w"), hello("w")
				if tt.resumes {
					goOn(a, 3)(h)
				}
				tk.say(h)
				hear[*lessorv1.Accept](tk)
				tk.say(&lessorv1.Goodbye{})
				if err := tk.over(); err != nil {
					t.Errorf("ended with %v", err)
				}
				synctest.Wait()
				got := r.get(t, work.GetTask().GetTaskId())
				if released := got.GetState() == lessorv1.TaskState_TASK_STATE_READY; released != tt.resumes || got.GetLosses() != 0 {
					t.Errorf("after the goodbye: %v", got)
				}
				if tt.open && !tt.resumes {
					old.beat(work)
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
				old, a := r.accepted(t, "w", 1, nil)
				if got := a.GetExpiresAt().AsTime().Sub(a.GetServerTime().AsTime()); got != tokenLife {
					t.Errorf("the token is good for %v", got)
				}
				old.cut()
				h := hello("w")
				goOn(a, 1)(h)
				change(t, h)
				tk := r.talk(t, h.GetWorker().GetName())
				tk.refused(tk.say(h), refusal.CodeToken, "handshake.resume.session_token")
				if err := tk.over(); status.Code(err) != codes.Unauthenticated || refusal.CodeOf(err) != refusal.CodeToken {
					t.Errorf("ended with %v, want UNAUTHENTICATED and %s", err, refusal.CodeToken)
				}
				r.work(t, "w", 1).beat()
			})
		})
	}
}

// W8: if a resume was accepted but the worker never received the new token, the one before is still valid. Once the new token was used, the old one
// is not.
func TestNewestTokenWins(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		first, a := r.accepted(t, "w", 1, nil)
		first.cut()
		lost := r.talk(t, "w")
		h := hello("w")
		goOn(a, 1)(h)
		lost.say(h)
		hear[*lessorv1.Accept](lost)
		lost.cut() // before register
		synctest.Wait()
		tk, b := r.accepted(t, "w", 1, goOn(a, 1))
		if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() {
			t.Errorf("the session goes on with %v", b)
		}
		for name, token := range map[string]*lessorv1.Accept{"used": a} {
			late := r.talk(t, "w")
			h := hello("w")
			goOn(token, 1)(h)
			late.say(h)
			wantText(t, name, hear[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
			if err := late.over(); err != nil {
				t.Errorf("ended with %v", err)
			}
		}
		tk.beat() // the newest stream goes on
	})
}

// W8: a handshake that is refused replaces no other instance.
func TestRefusedHandshakeReplacesNobody(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		first, a := r.accepted(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "other" })
		first.cut()
		newer, _ := r.accepted(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "other" })
		newer.say(&lessorv1.Capacity{MaxParallel: 0})
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		work := tk.given(1)[0]
		did(t, tk.judge(started(work)))
		late, h := r.talk(t, "w"), hello("w")
		goOn(a, 1)(h)
		h.Worker.InstanceId, h.ReplacesInstanceId = "other", "w"
		late.say(h)
		wantText(t, "code", hear[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		did(t, tk.judge(completed(work, "")))
	})
}

// W8: a session that was displaced by a newer session of the same instance cannot be resumed.
func TestTokenOfADisplacedSession(t *testing.T) {
	t.Attr("rules", "W8")
	serve(t, nil, func(t *testing.T, r *rig) {
		old, a := r.accepted(t, "w", 1, nil)
		tk := r.work(t, "w", 1)
		hear[*lessorv1.Reset](old)
		late := r.talk(t, "w")
		h := hello("w")
		goOn(a, 1)(h)
		late.say(h)
		wantText(t, "code", hear[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		tk.beat()
	})
}

// W8: an instance that a handshake names as replaced loses its stream and its leases at once; this counts in no budget.
func TestReplacedInstance(t *testing.T) {
	t.Attr("rules", "W8")
	for _, cut := range []bool{false, true} {
		serve(t, nil, func(t *testing.T, r *rig) {
			old := r.work(t, "w", 1)
			r.submitAll(t, 1)
			work := old.given(1)
			did(t, old.judge(started(work[0])))
			if cut {
				old.cut()
				synctest.Wait()
			}
			tk, _ := r.accepted(t, "w", 1, func(h *lessorv1.Handshake) {
				h.Worker.InstanceId, h.ReplacesInstanceId = "w2", "w"
			})
			if !cut {
				wantText(t, "the reset", hear[*lessorv1.Reset](old).GetCode(), refusal.CodeStaleBinding)
			}
			if again := tk.given(1)[0]; again.GetAttempt() != 2 || again.GetTask().GetLosses() != 0 {
				t.Errorf("handed on: %v", again)
			}
			got := tk.judge(completed(work[0], ""))
			if got[0].GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
				t.Errorf("the old lease: %v", got)
			}
		})
	}
}

// W8, K1: after a restart, a worker reports its tasks while they are being dispatched again. After their verdicts they must not be dispatched.
func TestReportedWorkIsNotHandedOverAgain(t *testing.T) {
	t.Attr("rules", "W8 K1")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		r := newRig(t, st)
		defer func() { r.close(t) }()
		const tasks = 20
		old, a := r.accepted(t, "w", tasks, nil)
		r.submitAll(t, tasks)
		var work []*lessorv1.Assignment
		for len(work) < tasks { // none is acknowledged
			work = append(work, payloadOf[*lessorv1.Dispatch](old, old.next()).GetAssignments()...)
		}
		synctest.Wait()
		r.close(t)
		r = newRig(t, st)

		tk, h := r.talk(t, "w"), hello("w")
		goOn(a, 1)(h)
		tk.say(h)
		hear[*lessorv1.Accept](tk)
		synctest.Wait()
		release := hold(st) // so that both frames are handled before either is answered
		go func() {
			if _, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "other"}}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		tk.say(registration(tasks))
		report := &lessorv1.Reports{}
		for _, w := range work {
			report.Reports = append(report.Reports, completed(w, ""))
		}
		tk.say(report)
		synctest.Wait()
		release()
		synctest.Wait()
		judged := false
		for range 2 {
			m := tk.next()
			if verdicts := m.GetVerdicts().GetVerdicts(); verdicts != nil {
				did(t, verdicts)
				judged = true
			}
			if n := len(m.GetDispatch().GetAssignments()); judged && n > 0 {
				t.Errorf("%d tasks are handed over after their verdicts", n)
			}
		}
		tk.quiet()
	})
}
