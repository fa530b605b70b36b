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

// numberedFrame returns a frame with a seq.
func (worker *testWorker) numberedFrame(seq uint64, payload proto.Message) *lessorv1.SessionRequest {
	m := worker.newFrame(payload)
	m.Seq = seq
	return m
}

// slots returns how many slots the worker has for the coordinator.
func (worker *testWorker) slots() uint32 {
	worker.t.Helper()
	synctest.Wait()
	return worker.r.listedWorker(worker.t, worker.name).GetCapabilities().GetConcurrency().GetMaxParallel()
}

// wantAck checks that the next frame only acknowledges the frame id.
func (worker *testWorker) wantAck(id string) {
	worker.t.Helper()
	m := worker.nextFrame()
	if m.GetPayload() != nil || m.GetAck().GetFor() != id {
		worker.t.Fatalf("heard %v, want the ack of %s", m, id)
	}
}

// W7: frames in order are handled. A repeated frame changes nothing and is acknowledged again. A frame that comes too early is dropped, and the gap
// is reported.
func TestSequenceOfTheWorker(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		first := worker.numberedFrame(1, &lessorv1.Capacity{MaxParallel: 2})
		second := worker.numberedFrame(2, &lessorv1.Capacity{MaxParallel: 3})
		third := worker.numberedFrame(3, &lessorv1.Capacity{MaxParallel: 4})
		worker.sendFrame(first)
		worker.sendFrame(second)
		if n := worker.slots(); n != 3 {
			t.Fatalf("%d slots after two frames in order, want 3", n)
		}
		worker.wantNoFrame() // no frame asked for an ack
		worker.wantAck(worker.sendFrame(first))
		if n := worker.slots(); n != 3 {
			t.Errorf("a repeat made it %d slots", n)
		}
		early := worker.numberedFrame(4, &lessorv1.Capacity{MaxParallel: 5})
		worker.wantGap(worker.sendFrame(early), 3)
		worker.sendFrame(worker.numberedFrame(5, &lessorv1.Capacity{MaxParallel: 6})) // the gap is reported only once
		worker.heartbeat()                                                            // frames without a seq do not wait for it
		if n := worker.slots(); n != 3 {
			t.Errorf("early frames made it %d slots", n)
		}
		worker.wantGap(worker.sendFrame(early), 3) // the repeated frame did not close the gap
		worker.sendFrame(third)
		worker.sendFrame(early)
		if n := worker.slots(); n != 5 {
			t.Errorf("%d slots once the gap was closed, want 5", n)
		}
		worker.wantNoFrame()
		r.wantMetric(t, "lessor_frame_repeats_total", 1)
		r.wantMetric(t, `lessor_frame_gaps_total{dir="in"}`, 2)
	})
}

// wantGap checks that the next frame reports a gap before the frame corr.
func (worker *testWorker) wantGap(corr string, expected uint64) {
	worker.t.Helper()
	m := worker.nextFrame()
	e := wantPayload[*lessorv1.Error](worker, m)
	if m.GetCorr() != corr || e.GetCode() != refusal.CodeSeqGap || e.GetExpectedSeq() != expected {
		worker.t.Fatalf("heard %v, want %s with expected_seq %d on %s", m, refusal.CodeSeqGap, expected, corr)
	}
}

// W7: a refused frame counts in the sequence, and so does one whose payload cannot be decoded.
func TestRefusedFramesCountInTheSequence(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		worker.wantError(worker.sendFrame(worker.numberedFrame(1, &lessorv1.Capacity{MaxParallel: convert.MaxParallel + 1})), refusal.CodeInvalid, "capacity")
		raw, err := proto.Marshal(worker.numberedFrame(2, &lessorv1.Error{Message: "word"}))
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] = 0xff
		if err := worker.stream.SendMsg(rawBytes(raw)); err != nil {
			t.Fatal(err)
		}
		nextPayload[*lessorv1.Error](worker)
		worker.sendFrame(worker.numberedFrame(3, &lessorv1.Capacity{MaxParallel: 7}))
		if n := worker.slots(); n != 7 {
			t.Errorf("%d slots, want 7", n)
		}
	})
}

// W6: a frame without a seq that comes twice changes nothing the second time and is acknowledged again, if it is among the last 1,024.
func TestRepeatsWithoutASeq(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		grow := worker.newFrame(&lessorv1.Capacity{MaxParallel: 2})
		worker.sendFrame(grow)
		worker.sendFrame(worker.newFrame(&lessorv1.Capacity{MaxParallel: 1}))
		worker.wantAck(worker.sendFrame(grow))
		if n := worker.slots(); n != 1 {
			t.Errorf("a repeat made it %d slots", n)
		}
		other := proto.CloneOf(grow)
		other.Corr = "about something else"
		worker.sendFrame(other)
		if n := worker.slots(); n != 2 {
			t.Errorf("%d slots after a frame of another corr, want 2", n)
		}
		beat := worker.newFrame(&lessorv1.WorkerHeartbeat{Healthy: true})
		for range 2 { // a repeat does not fill the memory of frames
			worker.sendFrame(beat)
			nextPayload[*lessorv1.HeartbeatAck](worker)
		}
		for range maxRecent {
			worker.send(&lessorv1.Capacity{MaxParallel: 1})
		}
		worker.sendFrame(grow)
		if n := worker.slots(); n != 2 {
			t.Errorf("%d slots: a frame of long ago is still remembered", n)
		}
		worker.wantNoFrame()
	})
}

// W6: a repeated handshake is acknowledged and does not count as a second one.
func TestRepeatedHandshake(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openStream(t, "w")
		m := worker.newFrame(handshakeOf("w"))
		worker.sendFrame(m)
		nextPayload[*lessorv1.Accept](worker)
		worker.wantAck(worker.sendFrame(m))
		worker.wantError(worker.send(handshakeOf("w")), refusal.CodeUnknown, "handshake is not allowed in the state HANDSHAKING")
	})
}

// W6: the coordinator acknowledges the worker's frames in the next frame that it sends anyway.
func TestAckComesInTheNextFrame(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		worker.sendFrame(worker.numberedFrame(1, &lessorv1.Capacity{MaxParallel: 2}))
		second := worker.sendFrame(worker.numberedFrame(2, &lessorv1.Capacity{MaxParallel: 1}))
		worker.wantNoFrame()
		worker.send(&lessorv1.WorkerHeartbeat{Healthy: true})
		m := worker.nextFrame()
		wantEqual(t, "the ack of the next frame", m.GetAck().GetFor(), second)
		worker.send(&lessorv1.WorkerHeartbeat{Healthy: true})
		if m := worker.nextFrame(); m.GetAck() != nil {
			t.Errorf("acknowledged again: %v", m)
		}
	})
}

// W7: a worker that reports a gap gets all frames from that seq on again, in order and with the same ids, except for leases that have ended.
func TestFramesAfterAReportedGapAreSentAgain(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		worker.keepRepeats.Store(true)
		r.submitAll(t, 2)
		dispatch := worker.nextFrame()
		work := wantPayload[*lessorv1.Dispatch](worker, dispatch).GetAssignments()
		wantCommitted(t, worker.report(started(work[0]), started(work[1])))
		wantCommitted(t, worker.report(completed(work[0], "")))
		worker.send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: dispatch.GetSeq()})
		again := worker.nextFrame()
		if again.GetId() != dispatch.GetId() || again.GetSeq() != dispatch.GetSeq() || !again.GetAck().GetRequest() {
			t.Errorf("sent again as %v", again)
		}
		left := wantPayload[*lessorv1.Dispatch](worker, again).GetAssignments()
		if len(left) != 1 || left[0].GetLeaseId() != work[1].GetLeaseId() { // the other lease has ended
			t.Errorf("handed over again: %v", left)
		}
		for range 2 {
			wantCommitted(t, nextPayload[*lessorv1.Verdicts](worker).GetVerdicts())
		}
		wantCommitted(t, worker.report(completed(work[1], "")))
		worker.send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: dispatch.GetSeq()})
		if m := worker.nextFrame(); m.GetId() != dispatch.GetId() || m.GetPayload() != nil {
			t.Errorf("a dispatch of which no lease lives comes again as %v, want a bare envelope", m)
		}
		r.wantMetric(t, `lessor_frame_gaps_total{dir="out"}`, 2)
	})
}

// W7: if the frames that a worker asks for are not kept any more, or never existed, the session is reset.
func TestGapThatCannotBeFilledResetsTheSession(t *testing.T) {
	t.Attr("rules", "W7")
	for name, expected := range map[string]func(last uint64) uint64{
		"forgotten":  func(last uint64) uint64 { return last - maxRetained },
		"never sent": func(last uint64) uint64 { return last + 2 },
		"0":          func(uint64) uint64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				worker := r.openSession(t, "w", 1)
				var last *lessorv1.SessionResponse
				for range 2 * maxRetained {
					worker.send(&lessorv1.WorkerHeartbeat{Healthy: true})
					last = worker.nextFrame()
				}
				worker.send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: expected(last.GetSeq())})
				wantEqual(t, "code", nextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeSeqGap)
				if err := worker.waitForEnd(); err != nil {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// W7: if the worker has acknowledged the frame that it then reports as missing, it has come meanwhile, and nothing is sent again.
func TestGapBeforeAnAcknowledgedFrameIsIgnored(t *testing.T) {
	t.Attr("rules", "W7")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		worker.send(&lessorv1.WorkerHeartbeat{Healthy: true})
		last := worker.nextFrame()
		worker.ack(last)
		worker.send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: last.GetSeq()})
		worker.wantNoFrame() // a reset would be sent only after the answer below
		worker.send(&lessorv1.WorkerHeartbeat{Healthy: true})
		if next := worker.nextFrame(); next.GetHeartbeatAck() == nil || next.GetSeq() != last.GetSeq()+1 {
			t.Errorf("heard %v, want the answer to the heartbeat", next)
		}
	})
}

// W6: a frame that asks for an acknowledgement is sent again up to 6 times, at growing intervals, until it is acknowledged; but only to a worker that
// numbers its frames.
func TestResends(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		worker.keepRepeats.Store(true)
		worker.sendFrame(worker.numberedFrame(1, &lessorv1.Capacity{MaxParallel: 1}))
		r.submitAll(t, 1)
		first := worker.nextFrame()
		wantPayload[*lessorv1.Dispatch](worker, first)
		before := time.Now()
		for i := range 4 { // within the time for an acknowledgement
			m := worker.nextFrame()
			if m.GetId() != first.GetId() || m.GetSeq() != first.GetSeq() {
				t.Fatalf("resend %d is %v", i+1, m)
			}
			wantPayload[*lessorv1.Dispatch](worker, m)
			waited := time.Since(before)
			if least := resendBase << i; waited < least || waited > least*5/4 {
				t.Errorf("resend %d came after %v, want %v and some jitter", i+1, waited, least)
			}
			before = time.Now()
		}
		cancels, bare := 0, 0
		for range 2 + 1 + resendTries {
			switch m := worker.nextFrame(); {
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
		worker.wantNoFrame()
		r.wantMetric(t, "lessor_frame_resends_total", 2*resendTries)
	})
}

// W6: frames that were sent before the worker sent its first numbered frame are sent again from then on.
func TestResendsBeginLate(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		worker.keepRepeats.Store(true)
		r.submitAll(t, 1)
		first := worker.nextFrame()
		time.Sleep(2 * time.Second)
		worker.wantNoFrame()
		worker.sendFrame(worker.numberedFrame(1, &lessorv1.Capacity{MaxParallel: 1}))
		m := worker.nextFrame()
		wantEqual(t, "the frame", m.GetId(), first.GetId())
		worker.ack(m)
		time.Sleep(resendMost)
		worker.wantNoFrame()
	})
}

// W6, W5: an acknowledgement covers all frames before it, and ends their resends.
func TestAckEndsResends(t *testing.T) {
	t.Attr("rules", "W6 W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		worker.keepRepeats.Store(true)
		r.submitAll(t, 1)
		wantPayload[*lessorv1.Dispatch](worker, worker.nextFrame())
		r.submitAll(t, 1)
		worker.ack(worker.nextFrame())
		time.Sleep(30 * time.Second) // without an ack, each lease would have ended after 5 s
		worker.wantNoFrame()
		if n := r.listedWorker(t, "w").GetLeases(); n != 2 {
			t.Errorf("%d leases live, want both", n)
		}
	})
}

// W6: a frame that was sent again and again, and then acknowledged, does not hold up the resends of the next one, although it would have waited for long
// by then.
func TestResendsBeginAnewForTheNextFrame(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 2)
		worker.keepRepeats.Store(true)
		worker.sendFrame(worker.numberedFrame(1, &lessorv1.Capacity{MaxParallel: 2}))
		r.submitAll(t, 1)
		first := worker.nextFrame()
		for range 4 { // within the time for an acknowledgement
			wantEqual(t, "the frame", worker.nextFrame().GetId(), first.GetId())
		}
		worker.ack(first)
		r.submitAll(t, 1)
		second, before := worker.nextFrame(), time.Now()
		wantEqual(t, "the frame sent again", worker.nextFrame().GetId(), second.GetId())
		if waited := time.Since(before); waited > resendBase*5/4 {
			t.Errorf("it was sent again after %v, want %v and some jitter", waited, resendBase)
		}
	})
}

// W6: acknowledgements of frames that were never sent do nothing.
func TestAcksOfUnknownFramesDoNothing(t *testing.T) {
	t.Attr("rules", "W6")
	serve(t, nil, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		r.submitAll(t, 1)
		m := worker.nextFrame()
		for _, id := range []string{"d", "d-1", "x2", "c99999999999999999999", "c" + strconv.Itoa(1000), "2", "dd2"} {
			worker.ack(&lessorv1.SessionResponse{Id: id})
		}
		time.Sleep(6 * time.Second)
		worker.wantLeaseEnded(wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0], lessorv1.Reason_REASON_DISPATCH_UNACKED)
	})
}
