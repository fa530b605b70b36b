package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// After a standstill one round expires nothing, so that the heartbeats that wait come first; but if
// every round stands still, every other one expires leases.
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

// The delay of a batch begins when it is handed over, or with the end of the commit before it. What
// the leases have got back since then is not left.
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
		b := &batch{sealed: sealed{serving: at(now)}}
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

// On fake time the loop does not wake for each tick while leases are live, and takes no rest for a
// standstill: a lease that nobody renews ends on time.
func TestLoopRestsOnFakeTime(t *testing.T) {
	cfg := Config{FakeTime: true}
	cfg.Events.StoodStill = func(by time.Duration) { t.Errorf("the loop took a rest for a standstill of %v", by) }
	runWith(t, cfg, func(r *rig) {
		id := r.submit(work())[0].ID
		r.lease(1, 0)
		ends := time.Now().Add(lease.DefaultHeartbeatTimeout)
		time.Sleep(2 * tick) // nothing else is due
		sleeps := func() time.Duration {
			taken := r.intake.taken
			defer func() { r.intake.taken = taken }()
			r.intake.taken = nil // as if this operation were done
			return r.sleep()
		}
		if d := onLoop(r, sleeps); d <= tick {
			r.Errorf("the loop sleeps for %v, want more than %v", d, tick)
		}
		time.Sleep(time.Until(ends) - time.Nanosecond)
		if state := r.version(id).State(); state != lease.Leased {
			r.Errorf("before the end of its lease the task is %v, want LEASED", state)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if state := r.version(id).State(); state == lease.Leased {
			r.Error("at the end of its lease the task is still LEASED")
		}
	})
}
