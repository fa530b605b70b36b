package coordinator

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// numbered returns a frame with a seq.
func (tk *talker) numbered(seq uint64, payload proto.Message) *lessorv1.SessionRequest {
	m := tk.frame(payload)
	m.Seq = seq
	return m
}

// slots returns how many slots the worker has for the coordinator.
func (tk *talker) slots() uint32 {
	tk.t.Helper()
	synctest.Wait()
	return tk.r.worker(tk.t, tk.name).GetCapabilities().GetConcurrency().GetMaxParallel()
}

// acked checks that the next frame only acknowledges the frame id.
func (tk *talker) acked(id string) {
	tk.t.Helper()
	m := tk.next()
	if m.GetPayload() != nil || m.GetAck().GetFor() != id {
		tk.t.Fatalf("heard %v, want the ack of %s", m, id)
	}
}

// W7: frames in order are handled. A repeated frame changes nothing and is acknowledged again. A frame that comes too early is dropped, and the gap
// is reported.
func TestSequenceOfTheWorker(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		first := tk.numbered(1, &lessorv1.Capacity{MaxParallel: 2})
		second := tk.numbered(2, &lessorv1.Capacity{MaxParallel: 3})
		third := tk.numbered(3, &lessorv1.Capacity{MaxParallel: 4})
		tk.send(first)
		tk.send(second)
		if n := tk.slots(); n != 3 {
			t.Fatalf("%d slots after two frames in order, want 3", n)
		}
		tk.quiet() // no frame asked for an ack
		tk.acked(tk.send(first))
		if n := tk.slots(); n != 3 {
			t.Errorf("a repeat made it %d slots", n)
		}
		early := tk.numbered(4, &lessorv1.Capacity{MaxParallel: 5})
		tk.gap(tk.send(early), 3)
		tk.send(tk.numbered(5, &lessorv1.Capacity{MaxParallel: 6})) // the gap is reported only once
		tk.beat()                                                   // frames without a seq do not wait for it
		if n := tk.slots(); n != 3 {
			t.Errorf("early frames made it %d slots", n)
		}
		tk.gap(tk.send(early), 3) // the repeated frame did not close the gap
		tk.send(third)
		tk.send(early)
		if n := tk.slots(); n != 5 {
			t.Errorf("%d slots once the gap was closed, want 5", n)
		}
		tk.quiet()
		r.counts(t, "lessor_frame_repeats_total", 1)
		r.counts(t, `lessor_frame_gaps_total{dir="in"}`, 2)
	})
}

// gap checks that the next frame reports a gap before the frame corr.
func (tk *talker) gap(corr string, expected uint64) {
	tk.t.Helper()
	m := tk.next()
	e := payloadOf[*lessorv1.Error](tk, m)
	if m.GetCorr() != corr || e.GetCode() != refusal.CodeSeqGap || e.GetExpectedSeq() != expected {
		tk.t.Fatalf("heard %v, want %s with expected_seq %d on %s", m, refusal.CodeSeqGap, expected, corr)
	}
}

// W7: a refused frame counts in the sequence, and so does one whose payload cannot be decoded.
func TestRefusedFramesHaveTheirPlace(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		tk.refused(tk.send(tk.numbered(1, &lessorv1.Capacity{MaxParallel: convert.MaxParallel + 1})), refusal.CodeInvalid, "capacity")
		raw, err := proto.Marshal(tk.numbered(2, &lessorv1.Error{Message: "word"}))
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] = 0xff
		if err := tk.stream.SendMsg(rawBytes(raw)); err != nil {
			t.Fatal(err)
		}
		hear[*lessorv1.Error](tk)
		tk.send(tk.numbered(3, &lessorv1.Capacity{MaxParallel: 7}))
		if n := tk.slots(); n != 7 {
			t.Errorf("%d slots, want 7", n)
		}
	})
}

// W6: a frame without a seq that comes twice changes nothing the second time and is acknowledged again, if it is among the last 1,024.
func TestRepeatsWithoutASeq(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		grow := tk.frame(&lessorv1.Capacity{MaxParallel: 2})
		tk.send(grow)
		tk.send(tk.frame(&lessorv1.Capacity{MaxParallel: 1}))
		tk.acked(tk.send(grow))
		if n := tk.slots(); n != 1 {
			t.Errorf("a repeat made it %d slots", n)
		}
		other := proto.CloneOf(grow)
		other.Corr = "about something else"
		tk.send(other)
		if n := tk.slots(); n != 2 {
			t.Errorf("%d slots after a frame of another corr, want 2", n)
		}
		beat := tk.frame(&lessorv1.WorkerHeartbeat{Healthy: true})
		for range 2 { // a repeat does not fill the memory of frames
			tk.send(beat)
			hear[*lessorv1.HeartbeatAck](tk)
		}
		for range maxRecent {
			tk.say(&lessorv1.Capacity{MaxParallel: 1})
		}
		tk.send(grow)
		if n := tk.slots(); n != 2 {
			t.Errorf("%d slots: a frame of long ago is still remembered", n)
		}
		tk.quiet()
	})
}

// W6: a repeated handshake is acknowledged and does not count as a second one.
func TestRepeatedHandshake(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.talk(t, "w")
		m := tk.frame(hello("w"))
		tk.send(m)
		hear[*lessorv1.Accept](tk)
		tk.acked(tk.send(m))
		tk.refused(tk.say(hello("w")), refusal.CodeUnknown, "handshake is not allowed in the state HANDSHAKING")
	})
}

// W6: the coordinator acknowledges the worker's frames in the next frame that it sends anyway.
func TestAcksRide(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		tk.send(tk.numbered(1, &lessorv1.Capacity{MaxParallel: 2}))
		second := tk.send(tk.numbered(2, &lessorv1.Capacity{MaxParallel: 1}))
		tk.quiet()
		tk.say(&lessorv1.WorkerHeartbeat{Healthy: true})
		m := tk.next()
		wantText(t, "the ack of the next frame", m.GetAck().GetFor(), second)
		tk.say(&lessorv1.WorkerHeartbeat{Healthy: true})
		if m := tk.next(); m.GetAck() != nil {
			t.Errorf("acknowledged again: %v", m)
		}
	})
}

// W7: a worker that reports a gap gets all frames from that seq on again, in order and with the same ids, except for leases that have ended.
func TestGapOfTheCoordinator(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		tk.raw.Store(true)
		r.submitAll(t, 2)
		dispatch := tk.next()
		work := payloadOf[*lessorv1.Dispatch](tk, dispatch).GetAssignments()
		did(t, tk.judge(started(work[0]), started(work[1])))
		did(t, tk.judge(completed(work[0], "")))
		tk.say(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: dispatch.GetSeq()})
		again := tk.next()
		if again.GetId() != dispatch.GetId() || again.GetSeq() != dispatch.GetSeq() || !again.GetAck().GetRequest() {
			t.Errorf("sent again as %v", again)
		}
		left := payloadOf[*lessorv1.Dispatch](tk, again).GetAssignments()
		if len(left) != 1 || left[0].GetLeaseId() != work[1].GetLeaseId() { // the other lease has ended
			t.Errorf("handed over again: %v", left)
		}
		for range 2 {
			did(t, hear[*lessorv1.Verdicts](tk).GetVerdicts())
		}
		did(t, tk.judge(completed(work[1], "")))
		tk.say(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: dispatch.GetSeq()})
		if m := tk.next(); m.GetId() != dispatch.GetId() || m.GetPayload() != nil {
			t.Errorf("a dispatch of which no lease lives comes again as %v, want a bare envelope", m)
		}
		r.counts(t, `lessor_frame_gaps_total{dir="out"}`, 2)
	})
}

// W7: if the frames that a worker asks for are not kept any more, or never existed, the session is reset.
func TestGapThatCanNotBeClosed(t *testing.T) {
	t.Attr("rules", "W7")
	for name, expected := range map[string]func(last uint64) uint64{
		"forgotten":  func(last uint64) uint64 { return last - maxRetained },
		"never sent": func(last uint64) uint64 { return last + 2 },
		"0":          func(uint64) uint64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				tk := r.work(t, "w", 1)
				var last *lessorv1.SessionResponse
				for range 2 * maxRetained {
					tk.say(&lessorv1.WorkerHeartbeat{Healthy: true})
					last = tk.next()
				}
				tk.say(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: expected(last.GetSeq())})
				wantText(t, "code", hear[*lessorv1.Reset](tk).GetCode(), refusal.CodeSeqGap)
				if err := tk.over(); err != nil {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// W7: if the worker has acknowledged the frame that it then reports as missing, it has come meanwhile, and nothing is sent again.
func TestGapThatClosedMeanwhile(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		tk.say(&lessorv1.WorkerHeartbeat{Healthy: true})
		last := tk.next()
		tk.ack(last)
		tk.say(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: last.GetSeq()})
		tk.quiet() // a reset would be sent only after the answer below
		tk.say(&lessorv1.WorkerHeartbeat{Healthy: true})
		if next := tk.next(); next.GetHeartbeatAck() == nil || next.GetSeq() != last.GetSeq()+1 {
			t.Errorf("heard %v, want the answer to the heartbeat", next)
		}
	})
}

// W6: a frame that asks for an acknowledgement is sent again up to 6 times, at growing intervals, until it is acknowledged; but only to a worker that
// numbers its frames.
func TestResends(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		tk.raw.Store(true)
		tk.send(tk.numbered(1, &lessorv1.Capacity{MaxParallel: 1}))
		r.submitAll(t, 1)
		first := tk.next()
		payloadOf[*lessorv1.Dispatch](tk, first)
		before := time.Now()
		for i := range 4 { // within the time for an acknowledgement
			m := tk.next()
			if m.GetId() != first.GetId() || m.GetSeq() != first.GetSeq() {
				t.Fatalf("resend %d is %v", i+1, m)
			}
			payloadOf[*lessorv1.Dispatch](tk, m)
			waited := time.Since(before)
			if least := resendBase << i; waited < least || waited > least*5/4 {
				t.Errorf("resend %d came after %v, want %v and some jitter", i+1, waited, least)
			}
			before = time.Now()
		}
		cancels, bare := 0, 0
		for range 2 + 1 + resendTries {
			switch m := tk.next(); {
			case m.GetCancel() != nil:
				cancels++
			case m.GetPayload() == nil && m.GetSeq() == first.GetSeq():
				bare++ // the lease has ended meanwhile
			default:
				t.Errorf("heard %v", m)
			}
		}
		if cancels != 1+resendTries || bare != resendTries-4 {
			t.Errorf("%d times the cancel, %d times an empty dispatch", cancels, bare)
		}
		time.Sleep(resendMost)
		tk.quiet()
		r.counts(t, "lessor_frame_resends_total", 2*resendTries)
	})
}

// W6: frames that were sent before the worker sent its first numbered frame are sent again from then on.
func TestResendsBeginLate(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		tk.raw.Store(true)
		r.submitAll(t, 1)
		first := tk.next()
		time.Sleep(2 * time.Second)
		tk.quiet()
		tk.send(tk.numbered(1, &lessorv1.Capacity{MaxParallel: 1}))
		m := tk.next()
		wantText(t, "the frame", m.GetId(), first.GetId())
		tk.ack(m)
		time.Sleep(resendMost)
		tk.quiet()
	})
}

// W6, W5: an acknowledgement covers all frames before it, and ends their resends.
func TestAckEndsResends(t *testing.T) {
	t.Attr("rules", "W6 W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		tk.raw.Store(true)
		r.submitAll(t, 1)
		payloadOf[*lessorv1.Dispatch](tk, tk.next())
		r.submitAll(t, 1)
		tk.ack(tk.next())
		time.Sleep(30 * time.Second) // without an ack, each lease would have ended after 5 s
		tk.quiet()
		if n := r.worker(t, "w").GetLeases(); n != 2 {
			t.Errorf("%d leases live, want both", n)
		}
	})
}

// W6: a frame that was sent again and again, and then acknowledged, does not hold up the resends of the next one, although it would have waited for long
// by then.
func TestResendsBeginAnewForTheNextFrame(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 2)
		tk.raw.Store(true)
		tk.send(tk.numbered(1, &lessorv1.Capacity{MaxParallel: 2}))
		r.submitAll(t, 1)
		first := tk.next()
		for range 4 { // within the time for an acknowledgement
			wantText(t, "the frame", tk.next().GetId(), first.GetId())
		}
		tk.ack(first)
		r.submitAll(t, 1)
		second, before := tk.next(), time.Now()
		wantText(t, "the frame sent again", tk.next().GetId(), second.GetId())
		if waited := time.Since(before); waited > resendBase*5/4 {
			t.Errorf("it was sent again after %v, want %v and some jitter", waited, resendBase)
		}
	})
}

// W6: acknowledgements of frames that were never sent do nothing.
func TestStrangeAcks(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		m := tk.next()
		for _, id := range []string{"d", "d-1", "x2", "c99999999999999999999", "c" + strconv.Itoa(1000), "2", "dd2"} {
			tk.ack(&lessorv1.SessionResponse{Id: id})
		}
		time.Sleep(6 * time.Second)
		tk.wantEnded(payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()[0], lessorv1.Reason_REASON_DISPATCH_UNACKED)
	})
}
