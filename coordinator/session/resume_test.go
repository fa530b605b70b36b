package session

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
)

// W8: if two streams resume a session at the same time, the later stream gets the session, whichever of the two takes over first.
func TestLaterOfTwoStreamsHasTheSession(t *testing.T) {
	t.Attr("rules", "W8")
	for _, laterFirst := range []bool{false, true} {
		all, first := newResumeTable(convert.Tokens{}), &Session{}
		begun := all.begin(first, "a-1", nil, 0)
		early, late := &Session{}, &Session{}
		a, b := begun, begun
		begun.state.stream = late // the state after both have resumed: early was admitted first, then late
		take := []func() bool{
			func() bool { return all.takeOver(&a, early, first) },
			func() bool { return all.takeOver(&b, late, early) },
		}
		if laterFirst {
			slices.Reverse(take)
		}
		for _, takeOver := range take {
			takeOver()
		}
		if begun.state.in.stream != late || begun.state.out.writer != &late.writer {
			t.Errorf("later stream takes over first %v: the later stream does not have the session", laterFirst)
		}
		if first.resetCode() == "" || early.resetCode() == "" || late.resetCode() != "" {
			t.Errorf("later stream takes over first %v: the resets are %q, %q and %q, want one for the first two streams",
				laterFirst, first.resetCode(), early.resetCode(), late.resetCode())
		}
		if _, err := all.restart(early, a, nil, 0); !errors.Is(err, errStale) {
			t.Errorf("a restart by the earlier stream returned %v, want errStale", err)
		}
	}
}

// W8, W11: the sessions of lost streams are kept for keepFor, and within a limit of bytes; over the limit, the oldest are forgotten. A session that never
// registered is not kept.
func TestKeptSessionsAreBounded(t *testing.T) {
	t.Attr("rules", "W8 W11")
	synctest.Test(t, func(t *testing.T) {
		all := newResumeTable(convert.Tokens{})
		const heavy = maxKeptBytes / 8
		for i := range 20 {
			ss := &Session{}
			a := all.begin(ss, string(rune('a'+i))+"-1", nil, 0)
			a.state.out.reserved = heavy
			all.registered(a)
			all.leave(a.state, ss, false)
		}
		all.mu.Lock()
		if n := all.kept.Len(); n != 7 || all.bytes > maxKeptBytes || len(all.byID) != n || len(all.newest) != n {
			t.Errorf("%d sessions of %d bytes are kept and %d are indexed, want 7 of at most %d bytes", n, all.bytes, len(all.byID), maxKeptBytes)
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
	})
}
