package session

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W8: if two streams resume a session at the same time, the later stream gets the session,
// whichever of the two takes over first.
func TestLaterOfTwoStreamsHasTheSession(t *testing.T) {
	t.Attr("rules", "W8")
	for _, laterFirst := range []bool{false, true} {
		all, first := newResumeTable(), &Session{}
		begun := all.begin(first, "a-1", nil, 0)
		early, late := &Session{}, &Session{}
		a, b := begun, begun
		begun.state.stream = late // the state after both have resumed: early was admitted first, then late
		take := []func(){
			func() {
				if all.takeOver(&a, early, first) {
					t.Errorf("later stream takes over first %v: the earlier stream has got the session", laterFirst)
				}
			},
			func() {
				if !all.takeOver(&b, late, early) {
					t.Errorf("later stream takes over first %v: the later stream has not got the session", laterFirst)
				}
			},
		}
		if laterFirst {
			slices.Reverse(take)
		}
		for _, takeOver := range take {
			takeOver()
		}
		if in := &begun.state.in; in.enter(early) || in.mu.held {
			t.Errorf("later stream takes over first %v: a frame of the earlier stream is handled, or blocks the later stream", laterFirst)
		}
		if begun.state.in.stream != late || begun.state.out.writer != &late.writer {
			t.Errorf("later stream takes over first %v: the later stream does not have the session", laterFirst)
		}
		if first.resetFrame() == nil || early.resetFrame() == nil || late.resetFrame() != nil {
			t.Errorf("later stream takes over first %v: the resets are %v, %v and %v, want one for the first two streams",
				laterFirst, first.resetFrame(), early.resetFrame(), late.resetFrame())
		}
		if _, err := all.restart(early, a, nil, 0); !errors.Is(err, errStale) {
			t.Errorf("a restart by the earlier stream returned %v, want errStale", err)
		}
	}
}

// W8: each token has a higher generation than every token before it, also if the wall clock stands
// still or is behind the tokens of an earlier run. Once the newest token is used, the session
// cannot be resumed with an older one, also not after a restart of its sequence numbers.
func TestOlderTokensStayStale(t *testing.T) {
	t.Attr("rules", "W8")
	const now, foreign = 1000, 5000 // foreign: the generation of a token of an earlier run
	// whether each resume lacks a frame that the worker has not seen, so that the sequences begin
	// again
	for _, restarts := range []bool{false, true} {
		all, gen := newResumeTable(), uint64(foreign)
		resume := func(gen uint64) (admission, error) {
			return all.resume(&Session{ended: make(chan error, 1)}, ticket{session: "a-1", gen: gen}, 1, nil, now)
		}
		for n := range 5 {
			a, err := resume(gen)
			if err != nil || a.gen <= gen || a.intact != (n > 0 && !restarts) {
				t.Fatalf("restarts %v: a token of generation %d got %+v, %v, want a token of a higher generation",
					restarts, gen, a, err)
			}
			if n > 0 { // the token that was used before
				if _, err := resume(gen - 1); !errors.Is(err, errStale) {
					t.Fatalf("restarts %v: an older token than the newest used one got %v, want errStale", restarts, err)
				}
			}
			all.registered(a)
			gen = a.gen
			if restarts {
				a.state.out.sent.last += 2
			}
		}
		unused, _ := resume(gen)
		next, _ := resume(gen) // the worker has not received the accept frame with the token of unused
		last, _ := resume(next.gen + foreign)
		if next.gen <= unused.gen || last.gen <= next.gen+foreign {
			t.Errorf("restarts %v: three resumes got tokens of generations %d, %d and %d",
				restarts, unused.gen, next.gen, last.gen)
		}
		gen = last.gen
		if a := all.begin(&Session{}, "b-1", nil, now); a.gen <= gen {
			t.Errorf("a new session got a token of generation %d after %d", a.gen, gen)
		}
	}
}

// W8, W11: the sessions of lost streams are kept for keepFor, and within a limit of bytes; over the
// limit, the oldest are forgotten. A session that never registered is not kept.
func TestKeptSessionsAreBounded(t *testing.T) {
	t.Attr("rules", "W8 W11")
	synctest.Test(t, func(t *testing.T) {
		all := newResumeTable()
		heavy := maxKeptBytes / 8
		for i := range 20 {
			ss := &Session{}
			a := all.begin(ss, string(rune('a'+i))+"-1", nil, 0)
			a.state.out.reserved = heavy
			all.registered(a)
			all.leave(a.state, ss, false)
		}
		all.mu.Lock()
		if n := all.kept.Len(); n != 7 || all.bytes > maxKeptBytes || len(all.byID) != n || len(all.newest) != n {
			t.Errorf("%d sessions of %d bytes are kept and %d are indexed, want 7 of at most %d bytes",
				n, all.bytes, len(all.byID), maxKeptBytes)
		}
		if all.byID["t-1"] == nil || all.byID["a-1"] != nil {
			t.Error("the newest session is forgotten or the oldest is kept")
		}
		all.mu.Unlock()
		time.Sleep(keepFor)
		synctest.Wait()
		all.mu.Lock()
		if all.kept.Len() != 0 || all.bytes != 0 || len(all.byID) != 0 || len(all.newest) != 0 {
			t.Errorf("%d sessions of %d bytes are kept after %v, want none", all.kept.Len(), all.bytes, keepFor)
		}
		all.mu.Unlock()
		ss := &Session{}
		a := all.begin(ss, "x-1", nil, 0) // never registered
		all.leave(a.state, ss, false)
		if len(all.byID) != 0 {
			t.Error("a session that never registered is kept")
		}
		a = all.begin(ss, "y-1", nil, 0)
		all.registered(a)
		all.leave(a.state, ss, false)
		if all.replaced("y"); len(all.byID) != 0 || all.kept.Len() != 0 {
			t.Error("a session is kept although another instance has replaced its instance")
		}
	})
}

// endedStream is a stream that its worker has closed.
type endedStream struct {
	grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
}

func (endedStream) RecvMsg(any) error { return io.EOF }

// W11: a session does not remember frames any more when its stream takes no more of them, unless
// another stream has the session by then.
func TestKeptSessionRemembersNoFrames(t *testing.T) {
	t.Attr("rules", "W11")
	all := newResumeTable()
	ss := &Session{stream: endedStream{}, ended: make(chan error, 1)}
	a := all.begin(ss, "a-1", nil, 0)
	ss.in = &a.state.in
	remembered := func() int { return cap(ss.in.recent.hashes) }
	for sum := range uint64(maxRecent) {
		ss.in.recent.add(sum)
	}
	ss.in.stream = &Session{}
	if ss.read(); remembered() == 0 {
		t.Error("the end of an older stream has dropped what another stream of the session remembers")
	}
	ss.in.stream = ss
	if ss.read(); remembered() != 0 {
		t.Errorf("after its stream has ended, the session has room for %d frames to remember, want none", remembered())
	}
	all.registered(a)
	all.leave(a.state, ss, false)
	if all.bytes > 1<<10 {
		t.Errorf("a kept session without frames or feedback counts as %d bytes, want 1 KiB, so that 65,536 of them are kept", all.bytes)
	}
}
