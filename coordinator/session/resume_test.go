package session

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
)

// W8: if two streams resume a session at the same time, the later one gets all of it, whichever takes over first.
func TestLaterOfTwoStreamsHasTheSession(t *testing.T) {
	t.Attr("rules", "W8")
	for _, laterFirst := range []bool{false, true} {
		all, first := newResumeTable(convert.Tokens{}), &Session{}
		begun := all.begin(first, "a-1", nil, 0)
		early, late := &Session{}, &Session{}
		a, b := begun, begun
		begun.stream = late // as if the earlier stream had had it for a moment
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
		if begun.in.stream != late || begun.out.stream != late {
			t.Errorf("the later one first %v: it does not have the session", laterFirst)
		}
		if first.resetCode() == "" || early.resetCode() == "" || late.resetCode() != "" {
			t.Errorf("the later one first %v: resets %q, %q and %q", laterFirst, first.resetCode(), early.resetCode(), late.resetCode())
		}
		if _, err := all.restart(early, a, nil, 0); !errors.Is(err, errStale) {
			t.Errorf("the earlier one is told %v", err)
		}
	}
}

// W8, W11: sessions of lost streams are kept within a bound; the oldest are forgotten first, and all of them after a time.
func TestKeptSessionsAreBounded(t *testing.T) {
	t.Attr("rules", "W8 W11")
	synctest.Test(t, func(t *testing.T) {
		all := newResumeTable(convert.Tokens{})
		const heavy = maxKeptBytes / 8
		for i := range 20 {
			ss := &Session{}
			a := all.begin(ss, string(rune('a'+i))+"-1", nil, 0)
			a.out.reserved = heavy
			all.registered(a)
			all.leave(a.resumeState, ss, false)
		}
		all.mu.Lock()
		if n := all.kept.Len(); n != 7 || all.bytes > maxKeptBytes || len(all.byID) != n || len(all.newest) != n {
			t.Errorf("%d sessions of %d bytes are kept, %d are known", n, all.bytes, len(all.byID))
		}
		if all.byID["t-1"] == nil || all.byID["a-1"] != nil {
			t.Error("it is not the oldest that are forgotten")
		}
		all.mu.Unlock()
		time.Sleep(keepFor)
		synctest.Wait()
		all.mu.Lock()
		if all.kept.Len() != 0 || all.bytes != 0 || len(all.byID) != 0 || len(all.newest) != 0 {
			t.Errorf("%d sessions are kept for ever", all.kept.Len())
		}
		all.mu.Unlock()
		ss := &Session{}
		a := all.begin(ss, "x-1", nil, 0) // never registered
		all.leave(a.resumeState, ss, false)
		if len(all.byID) != 0 {
			t.Error("a session that never registered is kept")
		}
	})
}
