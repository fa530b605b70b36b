//go:build !race

package coordinator

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// What is made of an item of a frame only gets less: a frame has hundreds, and each is made once for every attempt.
func TestAllocationsOfAFrame(t *testing.T) {
	const items = 100
	tokens := taskTokens{tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}
	now := lease.Now{Serving: 1, Wall: 1}
	st := memstore.New()
	e := &edge{store: st, engine: clockOnly{}, taskTokens: tokens}
	g := granted(t, st)
	all := make([]engine.Granted, items)
	answers := make([]lease.Answer, items)
	reports := make([]*lease.Report, items)
	said := make([]*lessorv1.Report, items)
	for i := range items {
		said[i] = &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{TaskId: "t", LeaseId: "l", ReportId: "r"}}}
		all[i], answers[i], reports[i] = *g, lease.Answer{ExpiresAt: 5, Holding: g.Task.Holding()}, &lease.Report{}
	}
	out := newOutbox(nil, tokens)
	out.verdicts("1", 0, reports, make([]string, items), answers, nil)
	verdicts := out.waiting.answers[0].make
	for _, tt := range []struct {
		what string
		make func()
		most float64 // for an item
	}{
		{"report", func() { // nothing of its own
			if r := parseReports(said, lease.DefaultLimits()); len(r) != items || r[items-1].Result == nil {
				t.Fatal(r)
			}
		}, 0},
		{"assignment", func() { // its id, which the task's begins, and a token
			if m, err := e.dispatchOf(all); err != nil || len(m.GetDispatch().GetAssignments()) != items {
				t.Fatalf("%v (%v)", m, err)
			}
		}, 2},
		{"verdict", func() { // a token
			if m := verdicts(now); len(m.GetVerdicts().GetVerdicts()) != items || m.GetVerdicts().GetVerdicts()[0].GetTaskToken() == "" {
				t.Fatal(m)
			}
		}, 1},
		{"frame", func() { // nothing more but a buffer, which comes back
			b, err := encode(&lessorv1.SessionResponse{Payload: verdicts(now).GetPayload()})
			if err != nil {
				t.Fatal(err)
			}
			b.Free()
		}, 1},
	} {
		const frame = 20 // what is not made for each item
		if n := testing.AllocsPerRun(20, tt.make); n > tt.most*items+frame {
			t.Errorf("%v allocations for %d items (%s), at most %v were expected", n, items, tt.what, tt.most*items+frame)
		}
	}
}
