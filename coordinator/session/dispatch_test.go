package session

import (
	"errors"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// W8, W11: before a dispatch is sent, the store is read again if one of its leases may have ended.
func TestMayHaveEnded(t *testing.T) {
	t.Attr("rules", "W8 W11")
	now := lease.Now{Serving: 100, Wall: 1000}
	for name, tt := range map[string]struct {
		again            bool
		ackBy, expiresAt lease.Instant
		want             bool
	}{
		"new":               {false, 101, 101, false},
		"delivered again":   {true, 101, 101, true},
		"not acknowledged":  {false, 100, 101, true},
		"not renewed":       {false, 101, 100, true},
		"needs no ack":      {false, 0, 101, true},
		"long not renewed":  {false, 101, 1, true},
		"long without acks": {false, 1, 101, true},
	} {
		g := engine.Granted{Task: &lease.Task{Lease: &lease.Lease{AckBy: tt.ackBy, ExpiresAt: tt.expiresAt}}, Again: tt.again}
		live := engine.Granted{Task: &lease.Task{Lease: &lease.Lease{AckBy: 200, ExpiresAt: 200}}}
		if got := mayHaveEnded([]engine.Granted{live, g}, now); got != tt.want {
			t.Errorf("%s: mayHaveEnded is %v, want %v", name, got, tt.want)
		}
	}
}

// A dispatch of which no lease is left has no payload, and one that cannot be read is an error.
func TestDispatchWithoutLeases(t *testing.T) {
	unread := errors.New("unread")
	for _, want := range []error{nil, unread} {
		s := Server{Deps: Deps{Assign: func(string, []engine.Granted) ([]*lessorv1.Assignment, error) { return nil, want }}}
		if m, err := s.dispatchOf("", nil); m.GetPayload() != nil || !errors.Is(err, want) {
			t.Errorf("the frame has the payload %v (%v), want none (%v)", m.GetPayload(), err, want)
		}
	}
}

// The leases of unacknowledged dispatches are forgotten when they are acknowledged. If no
// acknowledgement comes, their number is limited, and the oldest are forgotten first.
func TestUnackedIsBounded(t *testing.T) {
	refs := func(n int) []handedLease { return make([]handedLease, n) }
	var u unacked
	for seq := uint64(1); seq <= 100_000; seq += 2 {
		u.add(seq, refs(1))
		u.add(seq+1, refs(2))
		if a := u.take(seq + 1); len(a.before) != 1 || len(a.named) != 2 {
			t.Fatalf("the ack of frame %d has %d leases, and %d of frames before it, want 2 and 1",
				seq+1, len(a.named), len(a.before))
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
	u.add(103, refs(maxUnacked))
	if u.putBack(refs(1)); u.leases > maxUnacked {
		t.Errorf("%d leases are remembered after some were put back; the limit is %d", u.leases, maxUnacked)
	}
}
