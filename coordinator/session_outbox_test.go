package coordinator

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// bubble runs a test with an outbox of which no writer takes anything.
func bubble(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newOutbox(&session{log: slog.New(slog.DiscardHandler)}, sendTimeout)) })
}

func nothing(lease.Now) *lessorv1.SessionResponse { return nil }

// The reader waits for room, and no longer than the stream lasts.
func TestReaderWaitsForRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*outbox)
		room bool
	}{
		"room":              {func(o *outbox) { o.release(1) }, true},
		"too little room":   {func(o *outbox) { o.release(0) }, false},
		"close":             {func(o *outbox) { o.close() }, false},
		"end of the writer": {(*outbox).end, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, o *outbox) {
				if !o.reserve(2 * maxHeld) { // alone, whatever its size
					t.Fatal("no room in an empty outbox")
				}
				o.release(maxHeld)
				got := make(chan bool, 1)
				go func() { got <- o.reserve(1) }()
				synctest.Wait()
				if len(got) != 0 {
					t.Fatal("the reader did not wait")
				}
				tt.end(o)
				synctest.Wait()
				if (len(got) == 1 && <-got) != tt.room {
					t.Errorf("room is %v, want %v", !tt.room, tt.room)
				}
				o.close()
			})
		})
	}
}

// After close, what is under way is still awaited; then comes the reset that was asked for first, and nothing after it.
func TestResetIsTheLastFrame(t *testing.T) {
	bubble(t, func(t *testing.T, o *outbox) {
		o.reserve(1)
		o.reset(codeTimeout, "first", 0)
		o.reset(codeStopping, "second", 0)
		wantText(t, "the code for the log", o.close(), codeTimeout)
		taken := make(chan waiting, 1)
		go func() {
			w, _ := o.take()
			taken <- w
		}()
		synctest.Wait()
		if len(taken) != 0 {
			t.Fatalf("%v came before what is under way", <-taken)
		}
		o.put(outgoing{make: nothing, bytes: 1})
		if w := <-taken; len(w.answers) != 1 {
			t.Fatalf("took %v, want the answer", w)
		}
		o.release(1)
		w, _ := o.take()
		wantText(t, "the reset", w.answers[0].make(lease.Now{}).GetReset_().GetCode(), codeTimeout)
		o.dispatch(make([]engine.Granted, 1))
		o.cancel(&lessorv1.Cancel{})
		if w, more := o.take(); more {
			t.Errorf("%v came after the reset", w)
		}
	})
}

// A worker is behind while work waits for it, not while it is to be told to stop (W11).
func TestBehindIsWithItsWork(t *testing.T) {
	t.Attr("rules", "W11")
	bubble(t, func(t *testing.T, o *outbox) {
		o.cancel(&lessorv1.Cancel{})
		if o.behind() {
			t.Error("behind with a cancel")
		}
		o.dispatch(make([]engine.Granted, 1))
		if !o.behind() {
			t.Error("not behind with a dispatch")
		}
		o.take()
		if o.behind() {
			t.Error("behind with nothing")
		}
	})
}

// Nothing gathers for a writer that has ended.
func TestEndedOutboxTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, o *outbox) {
		o.dispatch(make([]engine.Granted, 1))
		o.end()
		o.put(outgoing{make: nothing})
		o.dispatch(make([]engine.Granted, 1))
		o.cancel(&lessorv1.Cancel{})
		if !o.waiting.empty() {
			t.Errorf("%v waits", o.waiting)
		}
	})
}
