package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

const (
	resendBase  = 200 * time.Millisecond
	resendTries = 6
	resendMost  = 5 * time.Second
)

func isRegister(f *lessorv1.SessionRequest) bool { return f.GetRegister() != nil }

// outcomes returns how many reports of a frame are outcomes.
func outcomes(f *lessorv1.SessionRequest) (n int) {
	for _, r := range f.GetReports().GetReports() {
		if isOutcomeReport(r) {
			n++
		}
	}
	return n
}

// commitOutcomes answers frames of reports with COMMITTED until n outcomes were among them.
func (s *stream) commitOutcomes(n int) {
	for n > 0 {
		f := s.reports()
		n -= outcomes(f)
		s.commit(f)
	}
}

func isError(f *lessorv1.SessionRequest) bool { return f.GetError() != nil }

func isGapError(f *lessorv1.SessionRequest) bool { return f.GetError().GetCode() == "E.RESULT.SEQ_GAP" }

// W6: the worker sends a frame that is not acknowledged again, with the same id and seq: after 200
// ms, and then after waits that double up to 5 s, with some jitter. After six resends it leaves the
// stream and opens another. Here the first coordinator acknowledges nothing.
func TestResends(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		streams := 0
		c.accepts = func(s *stream, _ *lessorv1.Accept) {
			streams++
			s.mute.Store(streams == 1)
		}
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		last, least := time.Now(), resendBase
		for range resendTries {
			f := s.next("register", isRegister)
			if f.GetId() != s.register.GetId() || f.GetSeq() != 1 || !f.GetAck().GetRequest() {
				t.Errorf("resend = %v, want the id and seq of %v and a request for an acknowledgement", f, s.register)
			}
			if got := time.Since(last); got < min(least, resendMost*4/5) || got > min(least*5/4, resendMost) {
				t.Errorf("resend after %v, want %v to %v", got, min(least, resendMost*4/5), min(least*5/4, resendMost))
			}
			last, least = time.Now(), 2*least
		}
		c.accept() // another stream
		if got := time.Since(last); got > resendMost+time.Second {
			t.Errorf("the worker left the stream %v after the last resend, want at most %v", got, resendMost+time.Second)
		}
		r.shutdown()
	})
}

// W6: a frame is not sent again after its answer, which counts as an acknowledgement, or after the
// acknowledgement of its id, even if the answer takes long.
func TestAcknowledgedFrameIsNotResent(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{}, func(context.Context, *worker.Task) ([]byte, error) { <-hold; return nil, nil })
		s := c.accept()
		s.mute.Store(true)
		s.dispatch("t1")
		s.commit(s.reports())
		time.Sleep(20 * time.Second)
		s.quiet("resend after the answer", isReports)
		close(hold)
		f, _ := s.outcome()
		s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{For: f.GetId()}})
		time.Sleep(20 * time.Second) // the verdict takes as long
		s.quiet("resend after the acknowledgement", isReports)
		s.commit(f)
		r.shutdown()
	})
}

// W6: an acknowledgement also acknowledges all frames before the one that it names.
func TestAcknowledgementCoversEarlierFrames(t *testing.T) {
	t.Attr("rules", "W6")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		hold := make(chan struct{})
		r := c.run(worker.Config{Concurrency: 2}, func(context.Context, *worker.Task) ([]byte, error) { <-hold; return nil, nil })
		s := c.accept()
		s.mute.Store(true)
		s.dispatch("t1")
		first := s.reports()
		s.dispatch("t2")
		second := s.reports()
		s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{For: second.GetId()}})
		time.Sleep(20 * time.Second)
		s.quiet("resend of what is acknowledged", isReports)
		s.commit(first)
		s.commit(second)
		s.mute.Store(false)
		close(hold)
		for n := 0; n < 2; {
			f := s.next("outcomes", isOutcome)
			n += outcomes(f)
			s.commit(f)
		}
		r.shutdown()
	})
}

// W7: the worker numbers its frames without a gap, beginning with next_seq of the accept.
// Heartbeats, feedback and frames without a payload have no seq.
func TestSequenceNumbers(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.accepts = func(_ *stream, a *lessorv1.Accept) { a.NextSeq = 40 }
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		if s.handshake.GetSeq() != 0 || s.register.GetSeq() != 40 {
			t.Errorf("handshake has seq %d, register %d; want 0 and 40", s.handshake.GetSeq(), s.register.GetSeq())
		}
		s.dispatch("t1", "t2")
		next := uint64(41)
		for done := 0; done < 2; {
			f := s.next("frame", func(*lessorv1.SessionRequest) bool { return true })
			if f.GetHeartbeat() != nil || f.GetFeedback() != nil || f.GetPayload() == nil {
				if f.GetSeq() != 0 {
					t.Errorf("seq = %d, want none: %v", f.GetSeq(), f)
				}
				continue
			}
			if f.GetSeq() != next {
				t.Errorf("seq = %d, want %d: %v", f.GetSeq(), next, f)
			}
			next++
			done += outcomes(f)
			s.commit(f)
		}
		r.shutdown()
	})
}

// W7: if the coordinator reports a gap, the worker sends the missing frame and all after it again,
// in order and with the same ids; the last one asks for an acknowledgement. That is no error for
// OnError.
func TestCoordinatorReportsGap(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 2}, echo)
		s := c.accept()
		s.mute.Store(true)
		var sent []*lessorv1.SessionRequest
		for _, id := range []string{"t1", "t2"} {
			s.dispatch(id)
			for n := 0; n == 0; {
				f := s.reports()
				n = outcomes(f)
				sent = append(sent, f)
			}
		}
		s.send(&lessorv1.SessionResponse{Corr: sent[1].GetId(), Payload: &lessorv1.SessionResponse_Error{Error: &lessorv1.Error{
			Code: "E.RESULT.SEQ_GAP", ExpectedSeq: sent[0].GetSeq(),
		}}})
		for _, want := range sent {
			f := s.reports()
			if f.GetId() != want.GetId() || f.GetSeq() != want.GetSeq() {
				t.Errorf("sent again: %v, want id %s and seq %d", f, want.GetId(), want.GetSeq())
			}
			if last := want == sent[len(sent)-1]; f.GetAck().GetRequest() != last {
				t.Errorf("sent again: %v, want only the last frame to ask for an acknowledgement", f)
			}
		}
		s.quiet("frame sent a third time", isReports)
		for _, f := range sent {
			s.commit(f)
		}
		synctest.Wait()
		s.mute.Store(false)
		r.shutdown()
		if len(r.errors) > 0 {
			t.Errorf("OnError got %v, want no error", r.errors)
		}
	})
}

// W7: a frame that the coordinator sends twice has an effect only once, and is acknowledged again.
// Here the repeat contains another task, so that only its id and seq show that it is a repeat.
func TestDuplicateFrame(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		f := s.dispatch("t1")
		s.started("t1")
		report, _ := s.outcome()
		s.commit(report)
		synctest.Wait()
		s.quiet("second start", isReports)
		f.GetDispatch().Assignments[0] = assignment("t2")
		s.resend(f)
		ack := s.next("acknowledgement", func(f *lessorv1.SessionRequest) bool { return f.GetAck().GetFor() != "" })
		if ack.GetPayload() != nil || ack.GetSeq() != 0 {
			t.Errorf("acknowledgement = %v, want a frame without payload and seq", ack)
		}
		s.quiet("effect of a duplicate", isReports)
		r.shutdown()
	})
}

// W7: the worker reports a gap once, with the seq of the missing frame. It drops the frames behind
// the gap, and handles them when they come again after the missing one.
func TestGap(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 3}, echo)
		s := c.accept()
		synctest.Wait()
		s.mute.Store(true) // an acknowledgement would be a frame behind the gap as well
		lost := s.lose(dispatchOf("t1"))
		begun := time.Now()
		after := []*lessorv1.SessionResponse{s.dispatch("t2"), s.dispatch("t3")}
		e := s.next("gap", isGapError)
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("the gap was reported after %v, want at once", waited)
		}
		if e.GetError().GetExpectedSeq() != lost.GetSeq() || e.GetCorr() != after[0].GetId() {
			t.Errorf("error = %v, want expected_seq %d and corr %s", e, lost.GetSeq(), after[0].GetId())
		}
		s.quiet("effect of a frame behind a gap, or second report of the gap", func(f *lessorv1.SessionRequest) bool {
			return isReports(f) || isError(f)
		})
		s.resend(lost)
		s.resend(after[0])
		s.resend(after[1])
		s.commitOutcomes(3)
		s.mute.Store(false)
		r.shutdown()
	})
}

// openGap loses a dispatch, and sends and returns the one after it.
func (s *stream) openGap() *lessorv1.SessionResponse {
	synctest.Wait()
	s.lose(dispatchOf("t1"))
	return s.dispatch("t2")
}

// wantGapToStayOpen wants the worker to ask for the missing frame after each of its waits.
func (s *stream) wantGapToStayOpen() {
	for range resendTries {
		s.next("gap, by the clock", isGapError)
	}
}

// W7: the worker reports a gap again at once if a repeated frame does not close it, and also after
// waits. After six of these waits it leaves the stream.
func TestGapStaysOpen(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		after := s.openGap()
		reportedAt := time.Now()
		s.next("gap", isGapError)
		s.resend(after)
		s.next("gap, by the repeat", isGapError)
		if got := time.Since(reportedAt); got != 0 {
			t.Errorf("the worker reported the gap again %v after a repeat that does not close it, want at once", got)
		}
		s.wantGapToStayOpen()
		c.accept()
		r.shutdown()
	})
}

// W7: a frame without a seq does not close a gap: the worker goes on asking for the missing frame.
func TestFrameWithoutSeqLeavesTheGapOpen(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.openGap()
		s.next("gap", isGapError)
		s.resend(&lessorv1.SessionResponse{Id: "without seq"})
		s.wantGapToStayOpen()
		c.accept()
		r.shutdown()
	})
}

// idle_timeout holds for both sides: the worker leaves a stream on which the coordinator sends
// nothing for that long. A frame without a payload, here every 50 s, is enough to keep it open.
func TestIdleTimeout(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.accepts = func(_ *stream, a *lessorv1.Accept) {
			a.IdleTimeout, a.HeartbeatInterval = durationpb.New(time.Minute), durationpb.New(10*time.Second)
		}
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		begun := time.Now()
		for range 5 {
			time.Sleep(50 * time.Second)
			s.send(&lessorv1.SessionResponse{})
		}
		if len(c.streams) > 0 {
			t.Error("the worker left a stream with a frame every 50s, want it to stay for an idle_timeout of 1m")
		}
		c.accept()
		if got := time.Since(begun); got < 310*time.Second || got > 340*time.Second {
			t.Errorf("the worker left the stream after %v, want 310s to 340s: 1m after the last frame", got)
		}
		r.shutdown()
	})
}

// W7: a frame of the coordinator without a seq is processed when it comes, and is no part of the
// sequence.
func TestFrameWithoutSeq(t *testing.T) {
	t.Attr("rules", "W7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Concurrency: 3}, echo)
		s := c.accept()
		s.dispatch("t1")
		f := dispatchOf("t2")
		f.Id = "without seq"
		s.resend(f)
		s.dispatch("t3")
		s.commitOutcomes(3)
		s.quiet("report of a gap", isError)
		r.shutdown()
	})
}
