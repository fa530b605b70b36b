//go:build faults

package linear

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// checkSearchCanFail falsifies one answer of a good history to that of a broken coordinator, and
// checks that search finds no order. The history must have no calls without an answer, because such
// a call could explain a false answer.
func checkSearchCanFail(t *testing.T, good []*op) {
	t.Helper()
	for name, lie := range falsifications {
		for i, o := range good {
			a, applies := lie(o)
			if !applies {
				continue
			}
			bad := append([]*op{}, good...)
			changed := *o
			changed.Answer = a
			bad[i] = &changed
			if result := search(bad); result != porcupine.Illegal {
				t.Errorf("%s: search of the falsified history = %s, want %s\n%s", name, result, porcupine.Illegal, show(bad))
			}
			break
		}
	}
}

var falsifications = map[string]func(*op) (answer, bool){
	"a stale read": func(o *op) (answer, bool) {
		return answer{State: waiting}, o.Worker == "test" && o.Answer.Attempt > 0
	},
	"COMMITTED for a second report": func(o *op) (answer, bool) {
		return answer{Verdict: "COMMITTED", Reason: "NONE", State: completed}, o.Kind == complete &&
			o.Answer.Reason == "DUPLICATE_REPORT"
	},
	"COMMITTED, not replayed, for a repeat": func(o *op) (answer, bool) {
		a := o.Answer
		a.Replayed = false
		return a, o.Answer.Replayed
	},
	"COMMITTED for a superseded attempt": func(o *op) (answer, bool) {
		return answer{Verdict: "COMMITTED", Reason: "NONE", State: completed}, o.Kind == complete &&
			o.Answer.Reason == "SUPERSEDED"
	},
	"another cause than the recorded one": func(o *op) (answer, bool) {
		a := o.Answer
		a.Reason = "REVOKED"
		return a, o.Answer.Reason == "LEASE_EXPIRED"
	},
}
