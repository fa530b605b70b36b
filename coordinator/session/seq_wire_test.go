package session_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// numberedFrame returns a frame with this payload and seq.
func numberedFrame(worker *wiretest.Worker, seq uint64, payload proto.Message) *lessorv1.SessionRequest {
	m := worker.NewFrame(payload)
	m.Seq = seq
	return m
}

// slots returns the number of the worker's slots that ListWorkers shows.
func slots(worker *wiretest.Worker) uint32 {
	worker.T.Helper()
	synctest.Wait()
	return worker.Rig.ListedWorker(worker.T, worker.Name).GetCapabilities().GetConcurrency().GetMaxParallel()
}

// wantAck checks that the next frame has no payload and acknowledges the frame id.
func wantAck(worker *wiretest.Worker, id string) {
	worker.T.Helper()
	m := worker.NextFrame()
	if m.GetPayload() != nil || m.GetAck().GetFor() != id {
		worker.T.Fatalf("received %v, want only the ack of %s", m, id)
	}
}

// W7: the coordinator handles the frames of a worker in order. A repeated frame changes nothing and
// is acknowledged again. A frame that comes too early is dropped, and the gap is reported.
func TestSequenceOfTheWorker(t *testing.T) {
	t.Attr("rules", "W7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		first := numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: 2})
		second := numberedFrame(worker, 2, &lessorv1.Capacity{MaxParallel: 3})
		third := numberedFrame(worker, 3, &lessorv1.Capacity{MaxParallel: 4})
		worker.SendFrame(first)
		worker.SendFrame(second)
		if n := slots(worker); n != 3 {
			t.Fatalf("%d slots after two frames in order, want 3", n)
		}
		worker.WantNoFrame() // no frame asked for an ack
		wantAck(worker, worker.SendFrame(first))
		if n := slots(worker); n != 3 {
			t.Errorf("%d slots after a repeated frame, want 3", n)
		}
		early := numberedFrame(worker, 4, &lessorv1.Capacity{MaxParallel: 5})
		wantGap(worker, worker.SendFrame(early), 3)
		last := numberedFrame(worker, 5, &lessorv1.Capacity{MaxParallel: 6})
		worker.SendFrame(last) // the gap is reported only once
		worker.Heartbeat()     // frames without a seq do not wait for it
		if n := slots(worker); n != 3 {
			t.Errorf("%d slots after frames that came too early, want 3", n)
		}
		wantGap(worker, worker.SendFrame(early), 3) // the repeated frame did not close the gap
		wantGap(worker, worker.SendFrame(last), 3)
		worker.SendFrame(third)
		worker.SendFrame(early)
		if n := slots(worker); n != 5 {
			t.Errorf("%d slots once the gap was closed, want 5", n)
		}
		worker.WantNoFrame()
		r.WantMetric(t, "lessor_frame_repeats_total", 1)
		r.WantMetric(t, `lessor_frame_gaps_total{dir="in"}`, 3)
	})
}

// wantGap checks that the next frame answers the frame corr with a gap, and asks for the frame
// expected.
func wantGap(worker *wiretest.Worker, corr string, expected uint64) {
	worker.T.Helper()
	m := worker.NextFrame()
	e := wiretest.WantPayload[*lessorv1.Error](worker, m)
	if m.GetCorr() != corr || e.GetCode() != refusal.CodeSeqGap || e.GetExpectedSeq() != expected {
		worker.T.Fatalf("received %v, want %s with expected_seq %d on %s", m, refusal.CodeSeqGap, expected, corr)
	}
}

// W7: a refused frame counts in the sequence, and so does a frame whose payload cannot be decoded.
func TestRefusedFramesCountInTheSequence(t *testing.T) {
	t.Attr("rules", "W7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		worker.WantError(worker.SendFrame(numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: convert.MaxParallel + 1})), refusal.CodeInvalid, "capacity")
		sendUndecodable(worker, numberedFrame(worker, 2, nil))
		wiretest.NextPayload[*lessorv1.Error](worker)
		worker.SendFrame(numberedFrame(worker, 3, &lessorv1.Capacity{MaxParallel: 7}))
		if n := slots(worker); n != 7 {
			t.Errorf("%d slots, want 7", n)
		}
	})
}

// sendUndecodable sends a frame without a payload, and with one that cannot be decoded.
func sendUndecodable(worker *wiretest.Worker, m *lessorv1.SessionRequest) {
	worker.T.Helper()
	wrong := proto.CloneOf(m)
	wiretest.SetPayload(wrong, &lessorv1.Error{Message: "word"})
	raw, err := proto.Marshal(wrong)
	if err != nil {
		worker.T.Fatal(err)
	}
	raw[len(raw)-1] = 0xff
	if err := worker.Stream.SendMsg(wiretest.RawBytes(raw)); err != nil {
		worker.T.Fatal(err)
	}
}

// W6, W7: a frame that was refused is not remembered. An identical repeat is refused again, and a
// correction under the same id is handled. All of them use up their seq.
func TestRefusedFrameIsNotRemembered(t *testing.T) {
	t.Attr("rules", "W6 W7")
	unknown := wiretest.Started(&lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "unknown"}, LeaseId: "forged"})
	reports := func(n int) proto.Message {
		return &lessorv1.Reports{Reports: slices.Repeat([]*lessorv1.Report{unknown}, n)}
	}
	for name, frame := range map[string]struct {
		wrong, corrected proto.Message // wrong is nil: it cannot be decoded
		code, word       string
		between          proto.Message // must come before the correction
	}{
		"reports before register": {reports(1), reports(1), refusal.CodeUnknown, "not allowed in the state HANDSHAKING", wiretest.Registration(1)},
		"too many reports":        {reports(1001), reports(1), refusal.CodeInvalid, "reports.reports: has 1001 items", nil},
		"undecodable":             {nil, reports(1), refusal.CodeInvalid, "cannot be read", nil},
		"register":                {&lessorv1.Register{}, wiretest.Registration(7), refusal.CodeInvalid, "register.queues", nil},
		"capacity":                {&lessorv1.Capacity{MaxParallel: 1 << 31}, &lessorv1.Capacity{MaxParallel: 7}, refusal.CodeInvalid, "capacity", nil},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				for _, numbered := range []bool{false, true} {
					worker := r.OpenStream(t, fmt.Sprint("w", numbered))
					worker.Handshake()
					seq := uint64(0)
					send := func(m *lessorv1.SessionRequest, payload proto.Message) {
						if m.Payload = nil; payload != nil {
							wiretest.SetPayload(m, payload)
						}
						if seq++; numbered {
							m.Seq = seq
						}
						if payload == nil {
							sendUndecodable(worker, m)
						} else {
							worker.SendFrame(m)
						}
					}
					if _, opens := frame.corrected.(*lessorv1.Register); !opens && frame.between == nil {
						send(worker.NewFrame(nil), wiretest.Registration(1))
					}
					m := worker.NewFrame(nil)
					for range 2 {
						send(m, frame.wrong)
						worker.WantError(m.GetId(), frame.code, frame.word)
					}
					if frame.between != nil {
						send(worker.NewFrame(nil), frame.between)
					}
					send(m, frame.corrected)
					if _, answered := frame.corrected.(*lessorv1.Reports); answered {
						wiretest.NextPayload[*lessorv1.Verdicts](worker)
					} else if n := slots(worker); n != 7 {
						t.Errorf("%d slots after the correction, want 7", n)
					}
					send(m, frame.corrected) // which was taken
					wantAck(worker, m.GetId())
					worker.WantNoFrame()
				}
			})
		})
	}
}

// W6: refused frames are not among the 1,024 frames that are remembered.
func TestRefusedFramesTakeNoPlace(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		first := worker.NewFrame(&lessorv1.Capacity{MaxParallel: 2})
		worker.SendFrame(first)
		for range maxRecent - 1 {
			worker.WantError(worker.Send(&lessorv1.Capacity{MaxParallel: 1 << 31}), refusal.CodeInvalid, "capacity")
			worker.Send(&lessorv1.Capacity{MaxParallel: 1})
		}
		wantAck(worker, worker.SendFrame(first))
		if n := slots(worker); n != 1 {
			t.Errorf("%d slots after a repeat of the oldest of the last %d frames that were taken, want 1", n, maxRecent)
		}
	})
}

// W6: if a frame without a seq is repeated, it changes nothing and is acknowledged again. This
// holds for the last 1,024 frames.
func TestRepeatsWithoutASeq(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		grow := worker.NewFrame(&lessorv1.Capacity{MaxParallel: 2})
		worker.SendFrame(grow)
		worker.SendFrame(worker.NewFrame(&lessorv1.Capacity{MaxParallel: 1}))
		wantAck(worker, worker.SendFrame(grow))
		if n := slots(worker); n != 1 {
			t.Errorf("%d slots after a repeated frame, want 1", n)
		}
		other := proto.CloneOf(grow)
		other.Corr = "about something else"
		worker.SendFrame(other)
		if n := slots(worker); n != 2 {
			t.Errorf("%d slots after a frame with the same id and another corr, want 2", n)
		}
		for range maxRecent - 1 {
			worker.Send(&lessorv1.Capacity{MaxParallel: 1})
		}
		beat := worker.NewFrame(&lessorv1.WorkerHeartbeat{Healthy: true})
		for range 2 { // the repeated heartbeat does not count among the last frames
			worker.SendFrame(beat)
			wiretest.NextPayload[*lessorv1.HeartbeatAck](worker)
		}
		wantAck(worker, worker.SendFrame(other))
		worker.Send(&lessorv1.Capacity{MaxParallel: 1})
		worker.SendFrame(other)
		if n := slots(worker); n != 2 {
			t.Errorf("%d slots, want 2: a frame before the last %d is not remembered", n, maxRecent)
		}
		worker.WantNoFrame()
	})
}

// W6: a frame with a seq that is repeated with another one, or with none, changes nothing and is
// acknowledged again. The number of the repeat is used up.
func TestRepeatsWithAnotherSeq(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		grow := numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: 2})
		worker.SendFrame(grow)
		worker.SendFrame(numberedFrame(worker, 2, &lessorv1.Capacity{MaxParallel: 1}))
		for _, seq := range []uint64{0, 3} {
			again := proto.CloneOf(grow)
			again.Seq = seq
			wantAck(worker, worker.SendFrame(again))
			if n := slots(worker); n != 1 {
				t.Errorf("%d slots after a repeat with the seq %d, want 1", n, seq)
			}
		}
		worker.SendFrame(numberedFrame(worker, 4, &lessorv1.Capacity{MaxParallel: 3}))
		if n := slots(worker); n != 3 {
			t.Errorf("%d slots after the next frame, want 3", n)
		}
	})
}

// W6: a repeated feedback frame adds no output, even if it asks for no acknowledgement.
func TestRepeatedFeedback(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		item := wiretest.Feedback(worker.ReceiveAssignments(1)[0], "", "a", "b")
		first := worker.NewFrame(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{item}})
		worker.SendFrame(first)
		wantAck(worker, worker.SendFrame(first))
		worker.SendFrame(worker.NewFrame(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{item}}))
		synctest.Wait()
		if n := len(r.Get(t, id).GetFeedback()); n != 4 {
			t.Errorf("the task has %d chunks of output, want the 2 of each of the two frames", n)
		}
	})
}

// W6: a repeated handshake is acknowledged and does not count as a second one.
func TestRepeatedHandshake(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		m := worker.NewFrame(wiretest.HandshakeOf("w"))
		worker.SendFrame(m)
		wiretest.NextPayload[*lessorv1.Accept](worker)
		wantAck(worker, worker.SendFrame(m))
		worker.WantError(worker.Send(wiretest.HandshakeOf("w")), refusal.CodeUnknown,
			"handshake is not allowed in the state HANDSHAKING")
	})
}

// W6: the coordinator sends no frame only to acknowledge the worker's frames. The next frame that
// it sends anyway acknowledges them.
func TestAckComesInTheNextFrame(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		worker.SendFrame(numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: 2}))
		second := worker.SendFrame(numberedFrame(worker, 2, &lessorv1.Capacity{MaxParallel: 1}))
		worker.WantNoFrame()
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		m := worker.NextFrame()
		wiretest.WantEqual(t, "the ack of the next frame", m.GetAck().GetFor(), second)
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		if m := worker.NextFrame(); m.GetAck() != nil {
			t.Errorf("the frame after that is %v, want no second ack", m)
		}
	})
}

// W7: a worker that reports a gap gets all frames from that seq on again, in order and with the
// same ids, but without leases that have ended.
func TestFramesAfterAReportedGapAreSentAgain(t *testing.T) {
	t.Attr("rules", "W7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		worker.KeepRepeats.Store(true)
		r.SubmitAll(t, 2)
		dispatch := worker.NextFrame()
		work := wiretest.WantPayload[*lessorv1.Dispatch](worker, dispatch).GetAssignments()
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(work[0]), wiretest.Started(work[1])))
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[0], "")))
		worker.Send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: dispatch.GetSeq()})
		again := worker.NextFrame()
		if again.GetId() != dispatch.GetId() || again.GetSeq() != dispatch.GetSeq() || !again.GetAck().GetRequest() {
			t.Errorf("the frame sent again is %v, want %s with the same seq", again, dispatch.GetId())
		}
		left := wiretest.WantPayload[*lessorv1.Dispatch](worker, again).GetAssignments()
		if len(left) != 1 || left[0].GetLeaseId() != work[1].GetLeaseId() { // the other lease has ended
			t.Errorf("the dispatch sent again has %v, want only the live lease", left)
		}
		for range 2 {
			wiretest.WantCommitted(t, wiretest.NextPayload[*lessorv1.Verdicts](worker).GetVerdicts())
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(work[1], "")))
		worker.Send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: dispatch.GetSeq()})
		if m := worker.NextFrame(); m.GetId() != dispatch.GetId() || m.GetPayload() != nil {
			t.Errorf("a dispatch without live leases was sent again as %v, want no payload", m)
		}
		r.WantMetric(t, `lessor_frame_gaps_total{dir="out"}`, 2)
	})
}

// W7: if a worker asks for frames that are not kept any more, its session is reset.
func TestGapThatCannotBeFilledResetsTheSession(t *testing.T) {
	t.Attr("rules", "W7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		var last *lessorv1.SessionResponse
		for range 2 * maxRetained {
			worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
			last = worker.NextFrame()
		}
		worker.Send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: last.GetSeq() - maxRetained})
		wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeSeqGap)
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
	})
}

// W7: if a worker reports a gap before a frame that was never sent, or names none, it gets an error
// that names the field and its range, and its session goes on. The next frame may be named: nothing
// is missing then.
func TestGapBeforeAFrameThatWasNeverSent(t *testing.T) {
	t.Attr("rules", "W7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		worker.KeepRepeats.Store(true)
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		last := worker.NextFrame().GetSeq()
		report := func(expected uint64) string {
			return worker.Send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: expected})
		}
		for _, expected := range []uint64{0, last + 3, 99, math.MaxUint64} { // the answer to 0 is a frame, too
			worker.WantError(report(expected), refusal.CodeInvalid,
				fmt.Sprintf("error.expected_seq: is %d; the range is 1 to %d", expected, last+1))
			last++
		}
		r.WantMetric(t, `lessor_frame_gaps_total{dir="out"}`, 0)
		report(last + 1)
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		next := worker.NextFrame()
		if next.GetHeartbeatAck() == nil || next.GetSeq() != last+1 {
			t.Errorf("received %v, want the answer to the heartbeat as the frame %d", next, last+1)
		}
		report(next.GetSeq())
		if again := worker.NextFrame(); again.GetSeq() != next.GetSeq() || again.GetHeartbeatAck() == nil {
			t.Errorf("received %v, want the frame %d again", again, next.GetSeq())
		}
	})
}

// W7: if a worker reports a frame as missing that it has acknowledged, the frame has arrived in the
// meantime, and nothing is sent again.
func TestGapBeforeAnAcknowledgedFrameIsIgnored(t *testing.T) {
	t.Attr("rules", "W7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		last := worker.NextFrame()
		worker.Ack(last)
		worker.Send(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: last.GetSeq()})
		worker.WantNoFrame() // a reset would be sent only after the answer below
		worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true})
		if next := worker.NextFrame(); next.GetHeartbeatAck() == nil || next.GetSeq() != last.GetSeq()+1 {
			t.Errorf("received %v, want the answer to the heartbeat with the next seq", next)
		}
	})
}

// W6: if a frame that asks for an acknowledgement gets none, it is sent again up to 6 times, at
// growing intervals. It is sent again only to a worker that numbers its frames.
func TestResends(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		worker.KeepRepeats.Store(true)
		worker.SendFrame(numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: 1}))
		r.SubmitAll(t, 1)
		first := worker.NextFrame()
		wiretest.WantPayload[*lessorv1.Dispatch](worker, first)
		before := time.Now()
		for i := range 4 { // within the time for an acknowledgement
			m := worker.NextFrame()
			if m.GetId() != first.GetId() || m.GetSeq() != first.GetSeq() {
				t.Fatalf("resend %d is %v, want %s with the same seq", i+1, m, first.GetId())
			}
			wiretest.WantPayload[*lessorv1.Dispatch](worker, m)
			waited := time.Since(before)
			if least := resendBase << i; waited < least || waited > least*5/4 {
				t.Errorf("resend %d came after %v, want %v and some jitter", i+1, waited, least)
			}
			before = time.Now()
		}
		cancels, bare := 0, 0
		for range 2 + 1 + resendTries {
			switch m := worker.NextFrame(); {
			case m.GetCancel() != nil:
				cancels++
			case m.GetPayload() == nil && m.GetSeq() == first.GetSeq():
				bare++ // the lease has ended meanwhile
			default:
				t.Errorf("received %v, want a cancel or a dispatch without payload", m)
			}
		}
		if cancels != 1+resendTries || bare != resendTries-4 {
			t.Errorf("received %d cancels and %d dispatches without payload, want %d and %d",
				cancels, bare, 1+resendTries, resendTries-4)
		}
		time.Sleep(resendMost)
		worker.WantNoFrame()
		r.WantMetric(t, "lessor_frame_resends_total", 2*resendTries)
	})
}

// W6: once a worker has sent its first numbered frame or its first ack, earlier frames that it has
// not acknowledged are sent again, too.
func TestResendsBeginLate(t *testing.T) {
	t.Attr("rules", "W6")
	for name, begin := range map[string]func(*wiretest.Worker){
		"numbered frame": func(worker *wiretest.Worker) {
			worker.SendFrame(numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: 1}))
		},
		"ack of accept": func(worker *wiretest.Worker) { worker.Ack(&lessorv1.SessionResponse{Id: "c1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				worker.KeepRepeats.Store(true)
				r.SubmitAll(t, 1)
				first := worker.NextFrame()
				time.Sleep(2 * time.Second)
				worker.WantNoFrame()
				begin(worker)
				m := worker.NextFrame()
				wiretest.WantEqual(t, "the frame", m.GetId(), first.GetId())
				worker.Ack(m)
				time.Sleep(resendMost)
				worker.WantNoFrame()
			})
		})
	}
}

// W6, W5: an acknowledgement holds for all earlier frames, and ends their resends.
func TestAckEndsResends(t *testing.T) {
	t.Attr("rules", "W6 W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		worker.KeepRepeats.Store(true)
		r.SubmitAll(t, 1)
		wiretest.WantPayload[*lessorv1.Dispatch](worker, worker.NextFrame())
		r.SubmitAll(t, 1)
		worker.Ack(worker.NextFrame())
		time.Sleep(30 * time.Second) // without an ack, each lease would have ended after 5 s
		worker.WantNoFrame()
		if n := r.ListedWorker(t, "w").GetLeases(); n != 2 {
			t.Errorf("%d leases live, want both", n)
		}
	})
}

// W6: the intervals between resends begin anew for each frame. After a frame was sent several times
// and then acknowledged, the next frame is first sent again after the shortest interval.
func TestResendsBeginAnewForTheNextFrame(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		worker.KeepRepeats.Store(true)
		worker.SendFrame(numberedFrame(worker, 1, &lessorv1.Capacity{MaxParallel: 2}))
		r.SubmitAll(t, 1)
		first := worker.NextFrame()
		for range 4 { // within the time for an acknowledgement
			wiretest.WantEqual(t, "the frame", worker.NextFrame().GetId(), first.GetId())
		}
		worker.Ack(first)
		r.SubmitAll(t, 1)
		second, before := worker.NextFrame(), time.Now()
		wiretest.WantEqual(t, "the frame sent again", worker.NextFrame().GetId(), second.GetId())
		if waited := time.Since(before); waited > resendBase*5/4 {
			t.Errorf("the next frame was sent again after %v, want %v and some jitter", waited, resendBase)
		}
	})
}

// W6: acknowledgements of frames that were never sent do nothing.
func TestAcksOfUnknownFramesDoNothing(t *testing.T) {
	t.Attr("rules", "W6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		m := worker.NextFrame()
		for _, id := range []string{"d", "d-1", "x2", "c99999999999999999999", "c" + strconv.Itoa(1000), "2", "dd2"} {
			worker.Ack(&lessorv1.SessionResponse{Id: id})
		}
		time.Sleep(6 * time.Second)
		wantLeaseEnded(worker, wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0],
			lessorv1.Reason_REASON_DISPATCH_UNACKED)
	})
}
