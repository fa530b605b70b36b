package session

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W1: a frame that only acknowledges is allowed in every state and changes none. A closed session
// allows no frame.
func TestBareFramesMoveNothing(t *testing.T) {
	t.Attr("rules", "W1")
	for state := opening; state < closed; state++ {
		if to, allowed := moves[state][frameBare]; !allowed || to != state {
			t.Errorf("in the state %s such a frame leads to %s (allowed: %v), want no change",
				stateNames[state], stateNames[to], allowed)
		}
	}
	if len(moves[closed]) > 0 {
		t.Errorf("a closed session allows %v, want no frame", moves[closed])
	}
}

// X2: every kind of frame that a worker can send has an access rule.
func TestEveryFrameHasARule(t *testing.T) {
	t.Attr("rules", "X2")
	payloads := (&lessorv1.SessionRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("payload").Fields()
	kinds := map[frameKind]bool{frameBare: true}
	for i := range payloads.Len() {
		m := &lessorv1.SessionRequest{}
		m.ProtoReflect().Mutable(payloads.Get(i))
		kind := kindOf(m)
		if kind == frameUnknown || frameAccess[kind] == auth.Nobody {
			t.Errorf("%s has no rule", payloads.Get(i).Name())
		}
		kinds[kind] = true
	}
	if len(kinds) != len(frameAccess) {
		t.Errorf("there are %d kinds of frames and %d rules, want one rule for each kind", len(kinds), len(frameAccess))
	}
}
