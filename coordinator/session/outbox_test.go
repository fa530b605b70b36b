package session

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
	"github.com/lessor-dev/lessor/lease"
)

// withOutbox runs a test with the outbox of a stream. No writer takes frames from it; the test
// does.
func withOutbox(t *testing.T, test func(t *testing.T, o *outbox, w *streamWriter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o, w := newOutbox(slog.New(slog.DiscardHandler)), &streamWriter{running: true}
		if !o.attach(w, 1) {
			t.Fatal("a new outbox does not accept its stream")
		}
		o.unpause()
		test(t, o, w)
	})
}

// noFrame makes no frame.
func noFrame(lease.Now, convert.Tokens) *lessorv1.SessionResponse { return nil }

// grants returns n granted leases.
func grants(n int) []engine.Granted {
	all := make([]engine.Granted, n)
	for i := range all {
		all[i].Task = &lease.Task{Spec: &lease.Spec{}, Lease: &lease.Lease{Attempt: 1}}
	}
	return all
}

// The reader of a stream waits until the outbox has room for the answer, or until the stream or the
// session ends.
func TestReaderWaitsForRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*outbox, *streamWriter)
		room bool
	}{
		"room":               {func(o *outbox, _ *streamWriter) { o.release(1) }, true},
		"too little room":    {func(o *outbox, _ *streamWriter) { o.release(0) }, false},
		"close":              {func(o *outbox, w *streamWriter) { o.close(w) }, false},
		"close of another":   {func(o *outbox, _ *streamWriter) { o.close(&streamWriter{running: true}) }, false},
		"end of the stream":  {func(o *outbox, _ *streamWriter) { o.detach() }, false},
		"end of the session": {func(o *outbox, _ *streamWriter) { o.forget() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			withOutbox(t, func(t *testing.T, o *outbox, w *streamWriter) {
				if !o.reserve(2 * maxHeld) { // a single item of any size is accepted
					t.Fatal("no room in an empty outbox")
				}
				o.release(maxHeld)
				got := make(chan bool, 1)
				go func() { got <- o.reserve(1) }()
				synctest.Wait()
				if len(got) != 0 {
					t.Fatal("the reader did not wait")
				}
				tt.end(o, w)
				synctest.Wait()
				if (len(got) == 1 && <-got) != tt.room {
					t.Errorf("the reader got room: %v, want %v", !tt.room, tt.room)
				}
				o.close(w)
			})
		})
	}
}

// After close, the writer still sends the items that have reserved room, and then ends.
func TestCloseWaitsForReservedItems(t *testing.T) {
	withOutbox(t, func(t *testing.T, o *outbox, w *streamWriter) {
		o.reserve(1)
		o.close(w)
		if _, then := o.nextTransmission(w); then != stepPause {
			t.Fatalf("the writer's next step is %v while an item is reserved, want stepPause", then)
		}
		w.running = true
		o.put(waitingFrame{make: noFrame, reserved: 1})
		if _, then := o.nextTransmission(w); then != stepSend {
			t.Fatalf("the writer's next step is %v after the item was put, want stepSend", then)
		}
		if p, then := o.nextTransmission(w); then != stepEnd {
			t.Errorf("the writer's next step is %v with %v after the last item, want stepEnd", then, p)
		}
	})
}

// W11: workWaits is true while a dispatch waits to be sent, and false while only a cancel does.
// Leases that wait at the same time share a dispatch.
func TestWorkWaitsWhileADispatchWaits(t *testing.T) {
	t.Attr("rules", "W11")
	withOutbox(t, func(t *testing.T, o *outbox, w *streamWriter) {
		o.cancel(&lessorv1.Cancel{}, 0)
		if o.workWaits() {
			t.Error("workWaits is true while only a cancel waits")
		}
		o.dispatch(grants(1))
		o.dispatch(grants(2))
		if !o.workWaits() {
			t.Error("workWaits is false while a dispatch waits")
		}
		for _, leases := range []int{0, 3} { // the cancel, and the dispatch
			if p, then := o.nextTransmission(w); then != stepSend || len(p.leases) != leases {
				t.Fatalf("the writer's next step is %v with %d leases, want stepSend with %d", then, len(p.leases), leases)
			}
		}
		if o.workWaits() {
			t.Error("workWaits is true although nothing waits")
		}
	})
}

// The outbox of a session that has ended holds nothing, and accepts nothing more.
func TestForgottenOutboxTakesNothing(t *testing.T) {
	withOutbox(t, func(t *testing.T, o *outbox, _ *streamWriter) {
		o.dispatch(grants(1))
		o.forget()
		o.put(waitingFrame{make: noFrame})
		o.dispatch(grants(1))
		o.cancel(&lessorv1.Cancel{}, 0)
		if !o.waiting.empty() || o.size() != 0 {
			t.Errorf("the outbox has %v, want nothing", o.waiting)
		}
	})
}

// W11: a dispatch that waits counts with the payloads that it holds, and not with those that are
// only in the store.
func TestWaitingPayloadsCount(t *testing.T) {
	t.Attr("rules", "W11")
	withOutbox(t, func(t *testing.T, o *outbox, _ *streamWriter) {
		const rest, size = 2000, 1 << 20 // bytes of an assignment, without its payload and of its payload
		all := grants(2)
		for i := range all {
			all[i].Bytes, all[i].Task.Spec.Size = rest+size, size
		}
		all[0].Task.Spec.Payload = make([]byte, size)
		o.dispatch(all)
		if n := o.size(); n != 2*rest+size {
			t.Errorf("the outbox counts for %d bytes, want %d", n, 2*rest+size)
		}
	})
}

// W7, W11: the frames that are kept for a resume are limited in number and in bytes, have no gap,
// and are dropped when they are acknowledged.
func TestRetainedIsBounded(t *testing.T) {
	t.Attr("rules", "W7 W11")
	r, most := retained{}, uint64(maxRetained)
	for range 10 * most {
		r.add(&sentFrame{})
	}
	if len(r.frames) != maxRetained || r.frames[0].seq != 9*most+1 || r.last != 10*most {
		t.Errorf("%d frames from %d to %d are retained, want the last %d", len(r.frames), r.frames[0].seq, r.last, most)
	}
	if r.resendFrom(9 * most) {
		t.Error("from found a frame that is no longer retained")
	}
	if r.resendFrom(10*most + 2) {
		t.Error("from found a frame that was never sent")
	}
	for seq, want := range map[uint64]int{9*most + 1: maxRetained, 10 * most: 1, 10*most + 1: 0} {
		if ok := r.resendFrom(seq); !ok || len(r.toResend) != want {
			t.Errorf("%d frames from %d (%v), want %d", len(r.toResend), seq, ok, want)
		}
	}
	for range 10 {
		r.add(&sentFrame{bytes: maxRetainedBytes / 2})
	}
	if r.bytes > maxRetainedBytes || len(r.frames) != 1 {
		t.Errorf("%d frames of %d bytes are retained, want one of at most %d", len(r.frames), r.bytes, maxRetainedBytes)
	}
	r.add(&sentFrame{bytes: 2 * maxRetainedBytes})
	if len(r.frames) != 1 || r.frames[0].seq != r.last {
		t.Errorf("%d frames are retained after one over the limit, want only that one", len(r.frames))
	}
	r.acknowledged(1)
	r.acknowledged(r.last)
	r.acknowledged(r.last)
	if len(r.frames) != 0 || r.bytes != 0 {
		t.Errorf("%d frames of %d bytes are retained after all were acknowledged, want none", len(r.frames), r.bytes)
	}
}

// W8: a stream ends when all its frames are sent, although an earlier stream of the session is
// stuck while it sends an answer.
func TestStreamEndsAlthoughAnEarlierOneIsStuck(t *testing.T) {
	t.Attr("rules", "W8")
	withOutbox(t, func(t *testing.T, o *outbox, stuck *streamWriter) {
		o.reserve(1)
		o.put(waitingFrame{make: noFrame, reserved: 1})
		if _, then := o.nextTransmission(stuck); then != stepSend {
			t.Fatalf("the answer was not taken: step %v", then)
		}
		next := &streamWriter{running: true}
		if !o.attach(next, 2) {
			t.Fatal("the next stream did not get the session")
		}
		o.unpause()
		o.close(next)
		if p, then := o.nextTransmission(next); then != stepEnd {
			t.Errorf("step %v with %v, want the end of the stream", then, p)
		}
	})
}

// W6: the resend timer was set for a frame that is acknowledged when it fires. The next frame is
// then sent again when its own wait is over, not before.
func TestResendAfterAnAcknowledgement(t *testing.T) {
	t.Attr("rules", "W6")
	withOutbox(t, func(t *testing.T, o *outbox, w *streamWriter) {
		send := func() (id string) {
			o.put(waitingFrame{make: noFrame, wantsAck: true})
			p, then := o.nextTransmission(w)
			if then != stepSend {
				t.Fatal("the outbox has no frame to send")
			}
			return p.id()
		}
		resends := func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.sent.toResend) > 0
		}
		resendBase := wire.LeastResendWait(0)
		o.acknowledged(send()) // from now on frames are sent again
		first := send()
		time.Sleep(resendBase / 2)
		second := send()
		o.acknowledged(first)
		time.Sleep(resendBase - time.Millisecond)
		if synctest.Wait(); resends() {
			t.Errorf("a frame is sent again less than %v after it was sent", resendBase)
		}
		time.Sleep(resendBase/4 + 2*time.Millisecond)
		if synctest.Wait(); !resends() {
			t.Errorf("a frame without an acknowledgement is not sent again %v after it was sent", resendBase*5/4)
		}
		o.acknowledged(second) // ends the timer
	})
}
