package session_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W8, W7: a worker resumes its session with its token. It gets exactly the frames that it has not
// received, in order and with the same ids. The sequence of its own frames continues.
func TestResume(t *testing.T) {
	t.Attr("rules", "W8 W7")
	for name, lose := range map[string]func(*wiretest.Worker){
		"after a cut":           func(worker *wiretest.Worker) { worker.Cut(); synctest.Wait() },
		"old stream still open": func(*wiretest.Worker) {},
		"after a half close":    func(worker *wiretest.Worker) { _ = worker.Stream.CloseSend(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				old, a := r.OpenSessionWith(t, "w", 3, nil)
				if a.GetResumed() || a.GetNextSeq() != 1 {
					t.Errorf("a new session begins with %v, want next_seq 1 and not resumed", a)
				}
				r.SubmitAll(t, 2)
				work := old.ReceiveAssignments(2)
				old.SendFrame(numberedFrame(old, 1, &lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(work[0])}}))
				seen := old.NextFrame() // the last frame that the worker says it has received
				old.SendFrame(numberedFrame(old, 2,
					&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work[0], "")}}))
				missed := old.NextFrame()
				r.SubmitAll(t, 1)
				dispatch := old.NextFrame()
				synctest.Wait() // the verdict may come before its frame is counted
				lose(old)

				worker, b := r.OpenSessionWith(t, "w", 3, wiretest.ResumeFrom(a, seen.GetSeq()))
				if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() || b.GetNextSeq() != 3 || b.GetSessionToken() == a.GetSessionToken() {
					t.Errorf("the resumed session begins with %v, want the same session, a new token and next_seq 3", b)
				}
				m := worker.NextFrame()
				if m.GetId() != missed.GetId() || m.GetSeq() != seen.GetSeq()+1 {
					t.Errorf("the first frame sent again is %v, want the missed verdicts %s", m, missed.GetId())
				}
				wiretest.WantCommitted(t, wiretest.WantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
				m = worker.NextFrame()
				again := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()
				if m.GetId() != dispatch.GetId() || len(again) != 1 || again[0].GetAttempt() != 1 {
					t.Errorf("the second frame sent again is %v, want the dispatch %s", m, dispatch.GetId())
				}
				worker.Ack(m)
				// the coordinator received seq 2 on the old stream
				wantAck(worker, worker.SendFrame(numberedFrame(worker, 2, &lessorv1.Capacity{MaxParallel: 1})))
				wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[1], ""), wiretest.Completed(again[0], "")))
				if name == "old stream still open" {
					wiretest.WantEqual(t, "the reset of the old stream",
						wiretest.NextPayload[*lessorv1.Reset](old).GetCode(), refusal.CodeStaleBinding)
					if err := old.WaitForEnd(); err != nil {
						t.Errorf("the old stream ended with %v, want OK", err)
					}
				}
				if w := r.ListedWorker(t, "w"); w.GetLeases() != 0 || w.GetSessionId() != a.GetSessionId() {
					t.Errorf("the worker is listed as %v, want no leases and the same session", w)
				}
			})
		})
	}
}

// W8, W5: a worker that resumes its session and says that it has taken a dispatch acknowledges it,
// because the acknowledgement may have been lost with the stream, and the dispatch is not sent
// again. If that comes too late, the answer is a cancel.
func TestResumeAcknowledgesWhatTheWorkerHasTaken(t *testing.T) {
	t.Attr("rules", "W8 W5")
	for name, away := range map[string]time.Duration{"in time": lease.DefaultAckWithin - time.Millisecond, "late": lease.DefaultAckWithin} {
		t.Run(name, func(t *testing.T) {
			wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				old, a := r.OpenSessionWith(t, "w", 1, nil)
				r.SubmitAll(t, 1)
				m := old.NextFrame()
				work := wiretest.WantPayload[*lessorv1.Dispatch](old, m).GetAssignments()[0]
				old.Cut()
				time.Sleep(away)
				worker, _ := r.OpenSessionWith(t, "w", 1, wiretest.ResumeFrom(a, m.GetSeq()))
				if name == "late" {
					wantLeaseEnded(worker, work, lessorv1.Reason_REASON_DISPATCH_UNACKED)
					return
				}
				time.Sleep(2 * lease.DefaultAckWithin)
				worker.WantNoFrame()
				wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work, "")))
			})
		})
	}
}

// W8: if a new stream resumes a session while a report is being judged, the verdict is sent on the
// new stream. The old stream ends, even if it was half-closed and waited for that verdict.
func TestVerdictFollowsTheSession(t *testing.T) {
	t.Attr("rules", "W8")
	for name, lose := range map[string]func(*wiretest.Worker){
		"old stream still open": func(*wiretest.Worker) {},
		"after a half close":    func(worker *wiretest.Worker) { _ = worker.Stream.CloseSend(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
				old, a := r.OpenSessionWith(t, "w", 1, nil)
				r.SubmitAll(t, 1)
				work := old.ReceiveAssignments(1)
				synctest.Wait()
				release := wiretest.BlockCommits(st)
				corr := old.SendFrame(numberedFrame(old, 1,
					&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work[0], "")}}))
				synctest.Wait()
				lose(old)
				worker := r.OpenStream(t, "w")
				h := wiretest.HandshakeOf("w")
				wiretest.ResumeFrom(a, 2)(h)
				worker.Send(h)
				if b := wiretest.NextPayload[*lessorv1.Accept](worker); b.GetNextSeq() != 2 {
					t.Errorf("the accept is %v, want next_seq 2: the report has been received", b)
				}
				worker.Send(wiretest.Registration(1))
				synctest.Wait()
				release()
				m := worker.NextFrame()
				wiretest.WantEqual(t, "corr", m.GetCorr(), corr)
				wiretest.WantCommitted(t, wiretest.WantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
				wiretest.NextPayload[*lessorv1.Reset](old)
				_ = old.WaitForEnd()
			})
		})
	}
}

// W8, W11: the answers that wait for a worker may take all the room that there is for them. The
// worker resumes its session all the same, and gets them: the acknowledgement of its register does
// not wait for room, which only the sending of the answers makes.
func TestResumeWhileAnswersTakeAllTheRoom(t *testing.T) {
	t.Attr("rules", "W8 W11")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		old, a := r.OpenSessionWith(t, "w", 1, nil)
		r.SubmitAll(t, 1)
		work := old.ReceiveAssignments(1)
		synctest.Wait()
		release := wiretest.BlockCommits(st)
		corr := old.SendFrame(numberedFrame(old, 1,
			&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work[0], wiretest.Text(4<<20-1<<10))}}))
		synctest.Wait()
		old.Cut()
		synctest.Wait()

		worker := r.OpenStream(t, "w")
		h := wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 2)(h)
		worker.Send(h)
		wiretest.NextPayload[*lessorv1.Accept](worker)
		register := numberedFrame(worker, 2, wiretest.Registration(1))
		register.Ack = &lessorv1.Ack{Request: true}
		worker.SendFrame(register)
		synctest.Wait()
		release()
		m := worker.NextFrame()
		wiretest.WantEqual(t, "corr", m.GetCorr(), corr)
		wiretest.WantEqual(t, "reason", wiretest.WantPayload[*lessorv1.Verdicts](worker,
			m).GetVerdicts()[0].GetReason().String(), "REASON_RESULT_TOO_LARGE")
		wantAck(worker, register.GetId())
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
	})
}

// W8: once a new stream has the session, a frame on the old one has no effect, also a bad one: the
// new stream gets no error about it, and no other frame before its register. The old stream is
// still open because its worker reads nothing.
func TestBadFrameOfADisplacedStreamIsDropped(t *testing.T) {
	t.Attr("rules", "W8")
	for name, spoil := range map[string]func(*lessorv1.SessionRequest){
		"no id":          func(m *lessorv1.SessionRequest) { m.Id = "" },
		"another tenant": func(m *lessorv1.SessionRequest) { m.Tenant = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				old := r.OpenUnreadStream(t, "w")
				old.Send(wiretest.HandshakeOf("w"))
				m, err := old.Stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				old.Send(wiretest.Registration(8))
				for range 8 { // more than the flow-control windows hold
					r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) })
				}
				synctest.Wait()
				worker := r.OpenStream(t, "w")
				h := wiretest.HandshakeOf("w")
				wiretest.ResumeFrom(m.GetAccept(), 1)(h)
				worker.Send(h)
				wiretest.NextPayload[*lessorv1.Accept](worker)
				bad := old.NewFrame(nil)
				spoil(bad)
				old.SendFrame(bad)
				worker.WantNoFrame()
				old.Cut()
				worker.Send(wiretest.Registration(8))
				wiretest.NextPayload[*lessorv1.Dispatch](worker)
			})
		})
	}
}

// W8, W5: an acknowledgement that waits for room when its stream is lost is not lost: the worker
// acknowledges the dispatch by resuming its session, whatever it does after that.
func TestAcknowledgementThatWaitsForRoomIsNotLost(t *testing.T) {
	t.Attr("rules", "W8 W5")
	for name, resumes := range map[string]int{"one resume": 1, "a resume that is lost as well": 2} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.ServeWith(t, st, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				worker, a := r.OpenSessionWith(t, "w", 2, nil)
				r.SubmitAll(t, 1)
				other := worker.ReceiveAssignments(1)[0]
				r.SubmitAll(t, 1)
				m := worker.NextFrame()
				work := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
				synctest.Wait()
				release := sync.OnceFunc(wiretest.BlockCommits(st))
				defer release()
				// its answer takes all the room until it is judged
				large := wiretest.Completed(other, wiretest.Text(4<<20-1<<10))
				worker.SendFrame(numberedFrame(worker, 1, &lessorv1.Reports{Reports: []*lessorv1.Report{large}}))
				synctest.Wait()
				worker.Ack(m)
				synctest.Wait()
				for range resumes {
					worker = r.OpenStream(t, "w")
					h := wiretest.HandshakeOf("w")
					wiretest.ResumeFrom(a, m.GetSeq())(h)
					worker.Send(h)
					a = wiretest.NextPayload[*lessorv1.Accept](worker)
					worker.Send(wiretest.Registration(2)) // what it acknowledges waits for room, too
					synctest.Wait()
				}
				release()
				wiretest.NextPayload[*lessorv1.Verdicts](worker)
				time.Sleep(2 * lease.DefaultAckWithin)
				worker.WantNoFrame()
				wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work, "")))
			})
		})
	}
}

// W8, W7: a stream that is lost while a frame waits for room has not handled that frame, so the
// worker sends it again on its next stream.
func TestFrameThatWaitsForRoomIsSentAgain(t *testing.T) {
	t.Attr("rules", "W8 W7")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		old, a := r.OpenSessionWith(t, "w", 1, nil)
		r.SubmitAll(t, 1)
		work := old.ReceiveAssignments(1)
		synctest.Wait()
		release := sync.OnceFunc(wiretest.BlockCommits(st))
		defer release()
		large := wiretest.Completed(&lessorv1.Assignment{}, strings.Repeat("x", 3<<20))
		// the commit for the Start is held up
		old.SendFrame(numberedFrame(old, 1, &lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(work[0]), large}}))
		report := numberedFrame(old, 2, &lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work[0], strings.Repeat("x", 1<<20))}})
		old.SendFrame(report)
		synctest.Wait()

		worker := r.OpenStream(t, "w")
		h := wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 2)(h)
		worker.Send(h)
		if b := wiretest.NextPayload[*lessorv1.Accept](worker); b.GetNextSeq() != 2 {
			t.Fatalf("the accept is %v, want next_seq 2: the second frame was not handled", b)
		}
		worker.Send(wiretest.Registration(1))
		worker.SendFrame(report)
		synctest.Wait()
		release()
		wiretest.NextPayload[*lessorv1.Verdicts](worker)
		m := worker.NextFrame()
		wiretest.WantEqual(t, "corr", m.GetCorr(), report.GetId())
		wiretest.WantCommitted(t, wiretest.WantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
	})
}

// W8: frames are kept for a resume for one minute. After that, or after a restart of the
// coordinator, a resume begins both sequences at 1. After a restart, leases that were not
// acknowledged are dispatched again at once.
func TestResumeAfterAMinuteOrARestart(t *testing.T) {
	t.Attr("rules", "W8")
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			r := wiretest.New(t, st)
			defer func() { r.Close(t) }()
			old, a := r.OpenSessionWith(t, "w", 2, nil)
			r.SubmitAll(t, 1)
			work := old.ReceiveAssignments(1)
			wiretest.WantCommitted(t, old.Report(wiretest.Started(work[0])))
			if restart {
				r.SubmitAll(t, 1)
				wiretest.WantPayload[*lessorv1.Dispatch](old, old.NextFrame())
				synctest.Wait()
				r.Close(t)
				r = wiretest.New(t, st)
			} else {
				old.Cut()
				time.Sleep(keepFor + time.Second)
			}
			worker, b := r.OpenSessionWith(t, "w", 2, wiretest.ResumeFrom(a, 3))
			if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() || b.GetNextSeq() != 1 {
				t.Errorf("restart %v: the resumed session begins with %v, want the same session with next_seq 1", restart, b)
			}
			if log := r.Log.String(); !strings.Contains(log, `"resumed":true`) {
				t.Errorf("restart %v: the log does not say that the session was resumed:\n%s", restart, log)
			}
			if restart {
				if again := worker.ReceiveAssignments(1); again[0].GetAttempt() != 1 {
					t.Errorf("the lease was dispatched again as %v, want attempt 1", again)
				}
			}
			wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
			worker.WantNoFrame()
		})
	}
}

// W8: a lease that is dispatched again has its whole payload, also a large one, which is no longer
// in memory.
func TestRepeatedDispatchHasItsPayload(t *testing.T) {
	t.Attr("rules", "W8")
	large := bytes.Repeat([]byte("x"), lease.DefaultLimits().Payload)
	for name, resumed := range map[string]bool{"with a token": true, "without a token": false} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				old, a := r.OpenSessionWith(t, "w", 1, nil)
				r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = large })
				old.NextFrame()
				old.Cut()
				synctest.Wait()
				var resume func(*lessorv1.Handshake)
				if resumed {
					resume = wiretest.ResumeFrom(a, 1)
				}
				worker, _ := r.OpenSessionWith(t, "w", 1, resume)
				if got := worker.ReceiveAssignments(1)[0].GetTask().GetSpec().GetPayload(); !bytes.Equal(got, large) {
					t.Errorf("the task is dispatched again with %d bytes of payload, want all %d", len(got), len(large))
				}
			})
		})
	}
}

// W8, W5: a worker that connects again without a token gets its unacknowledged leases again at
// once, and does not have to wait 5 s for them.
func TestReconnectWithoutATokenGetsItsLeasesAgain(t *testing.T) {
	t.Attr("rules", "W8 W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		old := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 2)
		m := old.NextFrame()
		work := wiretest.WantPayload[*lessorv1.Dispatch](old, m).GetAssignments()
		wiretest.WantCommitted(t, old.Report(wiretest.Started(work[0])))
		old.Cut()
		again := r.OpenSession(t, "w", 2)
		left := again.ReceiveAssignments(1)
		if left[0].GetLeaseId() != work[1].GetLeaseId() {
			t.Errorf("dispatched again are %v, want the lease that was not acknowledged", left)
		}
		wiretest.WantCommitted(t, again.Report(wiretest.Completed(work[0], ""), wiretest.Completed(left[0], "")))
	})
}

// W9, W8: a goodbye of a resumed session gives its leases back at once, even before the register. A
// goodbye of a session that was opened without a token gives nothing back before the register: the
// leases of its instance belong to another stream.
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
				r := wiretest.New(t, st)
				defer func() { r.Close(t) }()
				old, a := r.OpenSessionWith(t, "w", 1, nil)
				r.SubmitAll(t, 1)
				work := old.ReceiveAssignments(1)[0]
				wiretest.WantCommitted(t, old.Report(wiretest.Started(work)))
				if !tt.open {
					old.Cut()
					synctest.Wait()
				}
				if tt.restart {
					r.Close(t)
					r = wiretest.New(t, st)
				}
				worker, h := r.OpenStream(t, "w"), wiretest.HandshakeOf("w")
				if tt.resumes {
					wiretest.ResumeFrom(a, 3)(h)
				}
				worker.Send(h)
				wiretest.NextPayload[*lessorv1.Accept](worker)
				worker.Send(&lessorv1.Goodbye{})
				if err := worker.WaitForEnd(); err != nil {
					t.Errorf("the stream ended with %v, want OK", err)
				}
				synctest.Wait()
				got := r.Get(t, work.GetTask().GetTaskId())
				if released := got.GetState() == lessorv1.TaskState_TASK_STATE_READY; released != tt.resumes || got.GetLosses() != 0 {
					t.Errorf("after the goodbye the task is %v, want READY: %v, and no losses", got, tt.resumes)
				}
				if tt.open && !tt.resumes {
					old.Heartbeat(work)
				}
			})
		})
	}
}

// W8, W14: a session token is valid for one session of one instance, for a limited time. A resume
// with another token ends the stream with UNAUTHENTICATED. The worker can then open a new session
// without a token.
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
		"expired":             func(*testing.T, *lessorv1.Handshake) { time.Sleep(tokenLife) },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				old, a := r.OpenSessionWith(t, "w", 1, nil)
				if got := a.GetExpiresAt().AsTime().Sub(a.GetServerTime().AsTime()); got != tokenLife {
					t.Errorf("the token is valid for %v, want %v", got, tokenLife)
				}
				old.Cut()
				h := wiretest.HandshakeOf("w")
				wiretest.ResumeFrom(a, 1)(h)
				change(t, h)
				worker := r.OpenStream(t, h.GetWorker().GetName())
				worker.WantError(worker.Send(h), refusal.CodeToken, "handshake.resume.session_token")
				if err := worker.WaitForEnd(); status.Code(err) != codes.Unauthenticated || refusal.CodeOf(err) != refusal.CodeToken {
					t.Errorf("the stream ended with %v, want UNAUTHENTICATED and %s", err, refusal.CodeToken)
				}
				r.OpenSession(t, "w", 1).Heartbeat()
			})
		})
	}
}

// W8: if a resume was accepted, but its stream was lost before the worker received the new token,
// the token before is still valid. Once the worker has registered on the stream of a newer token,
// older tokens are refused.
func TestUnusedNewTokenLeavesTheOldOneValid(t *testing.T) {
	t.Attr("rules", "W8")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		first, a := r.OpenSessionWith(t, "w", 1, nil)
		first.Cut()
		lost := r.OpenStream(t, "w")
		h := wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		lost.Send(h)
		wiretest.NextPayload[*lessorv1.Accept](lost)
		lost.Cut() // before the register
		synctest.Wait()
		worker, b := r.OpenSessionWith(t, "w", 1, wiretest.ResumeFrom(a, 1))
		if !b.GetResumed() || b.GetSessionId() != a.GetSessionId() {
			t.Errorf("the second resume begins with %v, want the same session", b)
		}
		late := r.OpenStream(t, "w")
		h = wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		late.Send(h)
		wiretest.WantEqual(t, "the reset of a third resume",
			wiretest.NextPayload[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		if err := late.WaitForEnd(); err != nil {
			t.Errorf("the third stream ended with %v, want OK", err)
		}
		worker.Heartbeat() // the newest stream has not ended
	})
}

// W8: a refused handshake does not replace the instance that it names as replaced.
func TestRefusedHandshakeReplacesNobody(t *testing.T) {
	t.Attr("rules", "W8")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		first, a := r.OpenSessionWith(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "other" })
		first.Cut()
		newer, _ := r.OpenSessionWith(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId = "other" })
		newer.Send(&lessorv1.Capacity{MaxParallel: 0})
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		work := worker.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(work)))
		late, h := r.OpenStream(t, "w"), wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		h.Worker.InstanceId, h.ReplacesInstanceId = "other", "w"
		late.Send(h)
		wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work, "")))
	})
}

// W8: a session cannot be resumed once a newer session of the same instance has displaced it.
func TestDisplacedSessionCannotBeResumed(t *testing.T) {
	t.Attr("rules", "W8")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		old, a := r.OpenSessionWith(t, "w", 1, nil)
		worker := r.OpenSession(t, "w", 1)
		wiretest.NextPayload[*lessorv1.Reset](old)
		late := r.OpenStream(t, "w")
		h := wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		late.Send(h)
		wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](late).GetCode(), refusal.CodeStaleBinding)
		worker.Heartbeat()
	})
}

// W8: an instance that a handshake names as replaced loses its stream and its leases at once. This
// counts neither as a loss nor as a failure.
func TestReplacedInstanceLosesItsLeases(t *testing.T) {
	t.Attr("rules", "W8")
	for _, cut := range []bool{false, true} {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			old := r.OpenSession(t, "w", 1)
			r.SubmitAll(t, 1)
			work := old.ReceiveAssignments(1)
			wiretest.WantCommitted(t, old.Report(wiretest.Started(work[0])))
			if cut {
				old.Cut()
				synctest.Wait()
			}
			worker, _ := r.OpenSessionWith(t, "w", 1, func(h *lessorv1.Handshake) {
				h.Worker.InstanceId, h.ReplacesInstanceId = "w2", "w"
			})
			if !cut {
				reset := wiretest.NextPayload[*lessorv1.Reset](old)
				wiretest.WantEqual(t, "the reset", reset.GetCode(), refusal.CodeStaleBinding)
				wiretest.WantEqual(t, "why", reset.GetReason(), "another instance of the worker has replaced this one")
			}
			if again := worker.ReceiveAssignments(1)[0]; again.GetAttempt() != 2 || again.GetTask().GetLosses() != 0 {
				t.Errorf("the new instance got %v, want attempt 2 without losses", again)
			}
			got := worker.Report(wiretest.Completed(work[0], ""))
			if got[0].GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
				t.Errorf("a report under the old lease got %v, want SUPERSEDED", got)
			}
		})
	}
}

// W8, K1: after a restart, a worker may report its tasks while the coordinator dispatches them
// again. Once their verdicts are sent, they must not be dispatched.
func TestReportedTasksAreNotDispatchedAgain(t *testing.T) {
	t.Attr("rules", "W8 K1")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		r := wiretest.New(t, st)
		defer func() { r.Close(t) }()
		const tasks = 20
		old, a := r.OpenSessionWith(t, "w", tasks, nil)
		r.SubmitAll(t, tasks)
		var work []*lessorv1.Assignment
		for len(work) < tasks { // none is acknowledged
			work = append(work, wiretest.WantPayload[*lessorv1.Dispatch](old, old.NextFrame()).GetAssignments()...)
		}
		synctest.Wait()
		r.Close(t)
		r = wiretest.New(t, st)

		worker, h := r.OpenStream(t, "w"), wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		worker.Send(h)
		wiretest.NextPayload[*lessorv1.Accept](worker)
		release := r.SubmitAndBlockCommit(t, st) // so that both frames are handled before either is answered
		worker.Send(wiretest.Registration(tasks))
		report := &lessorv1.Reports{}
		for _, w := range work {
			report.Reports = append(report.Reports, wiretest.Completed(w, ""))
		}
		worker.Send(report)
		synctest.Wait()
		release()
		synctest.Wait()
		judged := false
		for range 2 {
			m := worker.NextFrame()
			if verdicts := m.GetVerdicts().GetVerdicts(); verdicts != nil {
				wiretest.WantCommitted(t, verdicts)
				judged = true
			}
			if n := len(m.GetDispatch().GetAssignments()); judged && n > 0 {
				t.Errorf("%d tasks are dispatched after their verdicts, want none", n)
			}
		}
		worker.WantNoFrame()
	})
}

// W8, W5: a stream that begins the sequence numbers anew, and is lost before its register, does not
// hide the leases that were never acknowledged. The next stream gets them again at once.
func TestRestartLostBeforeTheRegister(t *testing.T) {
	t.Attr("rules", "W8 W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		first, a := r.OpenSessionWith(t, "w", 2, nil)
		r.SubmitAll(t, 1)
		first.Ack(first.NextFrame()) // seq 2 is not retained any more
		synctest.Wait()
		r.SubmitAll(t, 1)
		lost := wiretest.WantPayload[*lessorv1.Dispatch](first, first.NextFrame()).GetAssignments()[0]
		first.Cut()
		synctest.Wait()
		second, h := r.OpenStream(t, "w"), wiretest.HandshakeOf("w")
		wiretest.ResumeFrom(a, 1)(h)
		second.Send(h)
		b := wiretest.NextPayload[*lessorv1.Accept](second)
		second.Cut()
		synctest.Wait()
		third, _ := r.OpenSessionWith(t, "w", 2, wiretest.ResumeFrom(b, 1))
		if got := third.ReceiveAssignments(1)[0]; got.GetLeaseId() != lost.GetLeaseId() {
			t.Errorf("got %v, want the lease that was not acknowledged", got)
		}
	})
}
