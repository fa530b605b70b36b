package session

import "testing"

// What is remembered of unacknowledged dispatches is forgotten with the acknowledgement, and is bounded if none comes.
func TestUnackedIsBounded(t *testing.T) {
	refs := func(n int) []handedLease { return make([]handedLease, n) }
	var u unacked
	for seq := uint64(1); seq <= 100_000; seq += 2 {
		u.add(seq, refs(1))
		u.add(seq+1, refs(2))
		if a := u.take(seq + 1); len(a.before) != 1 || len(a.named) != 2 {
			t.Fatalf("frame %d has %d leases, those before it %d", seq+1, len(a.named), len(a.before))
		}
	}
	take := func(seq uint64) int {
		a := u.take(seq)
		return len(a.before) + len(a.named)
	}
	if n := take(9); n != 0 || len(u.frames) != 0 || u.leases != 0 {
		t.Errorf("a frame was taken twice, with %d leases; %d frames are left", n, len(u.frames))
	}
	for seq := range uint64(100) {
		u.add(seq+1, refs(maxUnacked/10))
	}
	if u.leases > maxUnacked || len(u.frames) != 10 {
		t.Errorf("%d leases of %d frames are remembered; the limit is %d", u.leases, len(u.frames), maxUnacked)
	}
	if take(90) != 0 || take(91) == 0 {
		t.Error("it is not the oldest that are forgotten")
	}
	u.add(101, refs(2*maxUnacked))
	if take(101) < 2*maxUnacked {
		t.Error("a frame over the limit is not remembered even alone")
	}
}
