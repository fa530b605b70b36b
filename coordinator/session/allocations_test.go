//go:build !race

package session

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	"github.com/lessor-dev/lessor/lease"
)

// A verdict needs one allocation, for its task token. The limit may only go down, because a frame
// may have hundreds of verdicts.
func TestAllocationsOfVerdicts(t *testing.T) {
	const items = 100
	tokens := convert.Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}
	now := lease.Now{Serving: 1, Wall: 1}
	answers := make([]lease.Answer, items)
	reports := make([]*lease.Report, items)
	task := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 1}, Tenant: "t", Workspace: "w", Spec: &lease.Spec{Queue: "q"},
		Lease: &lease.Lease{Attempt: 1},
	}
	for i := range items {
		answers[i], reports[i] = lease.Answer{ExpiresAt: 5, Holding: task.Holding()}, &lease.Report{}
	}
	o := newOutbox(nil)
	o.verdicts("1", 0, reports, answers, nil)
	makeFrame := o.waiting.answers[0].make
	const most = items + 20 // 20 for the frame as a whole
	n := testing.AllocsPerRun(20, func() {
		if m := makeFrame(now, tokens); len(m.GetVerdicts().GetVerdicts()) != items || m.GetVerdicts().GetVerdicts()[0].GetTaskToken() == "" {
			t.Fatalf("the frame is %v, want %d verdicts with task tokens", m, items)
		}
	})
	if n > most {
		t.Errorf("%v allocations for %d verdicts, want at most %d", n, items, most)
	}
}

// Every heartbeat asks for the slots of its worker. As long as it takes work, that allocates
// nothing.
func TestAllocationsOfOfferedSlots(t *testing.T) {
	ss := &Session{view: view{slots: 1}}
	ss.health.limits.Missed = 3
	n := testing.AllocsPerRun(100, func() {
		if ss.offeredSlots() != 1 {
			t.Fatal("a healthy worker offers no slots")
		}
	})
	if n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
