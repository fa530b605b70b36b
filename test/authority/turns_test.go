//go:build faults

package authority

import (
	"testing"
	"time"
)

// TestTurns: another fairness key has a hundred thousand tasks waiting in the same queue. The
// single task of a key waits for one turn at most (T12).
func TestTurns(t *testing.T) {
	const many, rounds, between = 100_000, 20, 7
	r := newRig(t)
	r.c.Start()
	crowd, single := spec("turns", time.Hour), spec("turns", time.Hour)
	crowd.FairnessKey, single.FairnessKey = "crowd", "single"
	r.submit(many, crowd)
	first := 0
	for i := range rounds {
		for range i % between {
			r.leaseNext()
		}
		r.submit(1, single)
		switch {
		case r.leaseNext() == single.GetFairnessKey():
			first++
		case r.leaseNext() != single.GetFairnessKey():
			t.Errorf("T12: round %d: two turns passed before the single task", i)
		}
	}
	t.Logf("%d tasks of another key were waiting; a single task was granted %d times at once, %d times after one other",
		many, first, rounds-first)
}

// leaseNext leases one task, and returns its fairness key.
func (r *rig) leaseNext() string {
	r.t.Helper()
	a, err := r.lease("turns")
	return must(r, a, err).GetTask().GetSpec().GetFairnessKey()
}
