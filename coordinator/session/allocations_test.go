//go:build !race

package session

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	"github.com/lessor-dev/lessor/lease"
)

// How often a verdict is allocated. The bound may only go down: a frame may have hundreds of verdicts.
func TestAllocationsOfVerdicts(t *testing.T) {
	const items = 100
	tokens := convert.Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}
	now := lease.Now{Serving: 1, Wall: 1}
	answers := make([]lease.Answer, items)
	reports := make([]*lease.Report, items)
	task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: 1}, Tenant: "t", Workspace: "w", Spec: &lease.Spec{Queue: "q"}, Lease: &lease.Lease{Attempt: 1}}
	for i := range items {
		answers[i], reports[i] = lease.Answer{ExpiresAt: 5, Holding: task.Holding()}, &lease.Report{}
	}
	out := newOutbox(nil, tokens)
	out.verdicts("1", 0, reports, make([]string, items), answers, nil)
	verdicts := out.waiting.answers[0].make
	for _, tt := range []struct {
		what string
		make func()
		most float64 // for each item
	}{
		{"verdict", func() { // a token
			if m := verdicts(now); len(m.GetVerdicts().GetVerdicts()) != items || m.GetVerdicts().GetVerdicts()[0].GetTaskToken() == "" {
				t.Fatal(m)
			}
		}, 1},
	} {
		const frame = 20 // allocations for the frame as a whole
		if n := testing.AllocsPerRun(20, tt.make); n > tt.most*items+frame {
			t.Errorf("%v allocations for %d items (%s), at most %v were expected", n, items, tt.what, tt.most*items+frame)
		}
	}
}
