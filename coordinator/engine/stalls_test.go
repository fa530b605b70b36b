package engine

import (
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// After a standstill one round expires nothing, so that the heartbeats that wait come first; but if every round stands still, every other one expires leases.
func TestStandstillSparesOneRound(t *testing.T) {
	var s stalls
	for i, round := range []struct{ stoodStill, mayExpire bool }{
		{false, true},
		{true, false},
		{true, true},
		{true, false},
		{true, true},
		{false, true},
		{true, false},
		{false, true},
	} {
		if round.stoodStill {
			s.noteStandstill()
		}
		s.opsHaveRun()
		if may := s.mayExpire(); may != round.mayExpire || s.stoodStill() {
			t.Errorf("round %d: leases may expire: %v, want %v", i, may, round.mayExpire)
		}
	}
}

// The delay of a batch begins when it is handed over, or with the end of the commit before it. What the leases have got back since then is not left.
func TestDelayCountsOnce(t *testing.T) {
	var s stalls
	at := func(seconds int) lease.Instant { return lease.Instant(seconds) * lease.Instant(time.Second) }
	check := func(b *batch, now, lasted, left int) {
		t.Helper()
		gotLasted, gotLeft := s.delay(b, at(now))
		if gotLasted != time.Duration(lasted)*time.Second || gotLeft != time.Duration(left)*time.Second {
			t.Errorf("at %d s: the delay is %v, of which %v are left, want %d s and %d s", now, gotLasted, gotLeft, lasted, left)
		}
	}
	handOver := func(now int) *batch {
		b := &batch{serving: at(now)}
		s.noteHandOver(b)
		return b
	}
	check(nil, 5, 0, 0)
	s.noteExtension(7 * time.Second)
	first := handOver(10)
	s.noteExtension(2 * time.Second)
	second := handOver(14)
	check(first, 15, 5, 3)
	check(second, 15, 1, 1)
	s.noteExtension(3 * time.Second)
	check(first, 15, 5, 0)
	s.noteCommit(at(15))
	check(second, 18, 3, 3)
	s.noteExtension(time.Second)
	check(second, 18, 3, 2)
}
