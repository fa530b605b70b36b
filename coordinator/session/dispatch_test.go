package session

import "testing"

// The leases of unacknowledged dispatches are forgotten when they are acknowledged. If no acknowledgement comes, their number is limited, and the oldest
// are forgotten first.
func TestUnackedIsBounded(t *testing.T) {
	refs := func(n int) []handedLease { return make([]handedLease, n) }
	var u unacked
	for seq := uint64(1); seq <= 100_000; seq += 2 {
		u.add(seq, refs(1))
		u.add(seq+1, refs(2))
		if a := u.take(seq + 1); len(a.before) != 1 || len(a.named) != 2 {
			t.Fatalf("the ack of frame %d has %d leases, and %d of frames before it, want 2 and 1", seq+1, len(a.named), len(a.before))
		}
	}
	take := func(seq uint64) int {
		a := u.take(seq)
		return len(a.before) + len(a.named)
	}
	if n := take(9); n != 0 || len(u.frames) != 0 || u.leases != 0 {
		t.Errorf("a second ack has %d leases, and %d frames are left, want none", n, len(u.frames))
	}
	for seq := range uint64(100) {
		u.add(seq+1, refs(maxUnacked/10))
	}
	if u.leases > maxUnacked || len(u.frames) != 10 {
		t.Errorf("%d leases of %d frames are remembered; the limit is %d", u.leases, len(u.frames), maxUnacked)
	}
	if take(90) != 0 || take(91) == 0 {
		t.Error("frame 90 is remembered or frame 91 is forgotten, want the last 10 frames")
	}
	u.add(101, refs(2*maxUnacked))
	if take(101) < 2*maxUnacked {
		t.Error("a single frame with more leases than the limit is not remembered")
	}
}
