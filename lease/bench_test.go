package lease_test

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// oneTaskView is a lease.View that holds one task in a field. It takes no time to look up, so that
// the benchmarks measure only the rules.
type oneTaskView struct {
	memory
	task *lease.Task
	seq  uint64
}

func (s *oneTaskView) Task(lease.TaskID) *lease.Task            { return s.task }
func (s *oneTaskView) Queue(uint32, string) (q lease.Queue)     { return q }
func (s *oneTaskView) Holders(uint32, string) (h lease.Holders) { return h }
func (s *oneTaskView) NextSeq(uint32) uint64                    { s.seq++; return s.seq }

// life holds one task and the commands that take it from its submit to its complete.
type life struct {
	rules lease.Rules
	view  oneTaskView
	now   lease.Now
	spec  *lease.Spec

	// Slices that all steps reuse, like a caller that avoids allocations.
	reports []*lease.Report
	memory  lease.Memory
}

func newLife() *life {
	l := &life{reports: make([]*lease.Report, 1), spec: &lease.Spec{Queue: "q", Type: "t", Payload: make([]byte, 256)}}
	l.rules = lease.Rules{
		Authority: lease.NewAuthority(1, []byte("secret")), Limits: lease.DefaultLimits(), AckWithin: lease.DefaultAckWithin,
		Entropy: func() uint64 { return 1 },
	}
	_ = l.spec.Fill(l.rules.Limits)
	return l
}

// commands returns the commands of a life in their order. make returns a new command each time,
// with the lease id of the task as it is then.
func (l *life) commands() []struct {
	name string
	make func() lease.Command
} {
	report := func(kind lease.Kind) func() lease.Command {
		return func() lease.Command {
			t := l.view.task
			r := &lease.Report{Kind: kind, TaskID: t.ID.String(), LeaseID: l.rules.Authority.Issue(t.Tenant, lease.Ticket{
				Epoch: t.Lease.Epoch, Task: t.ID, Attempt: t.Lease.Attempt, Nonce: t.Lease.Nonce,
			})}
			if kind == lease.KindComplete {
				r.Result = &lease.Result{Output: make([]byte, 16)}
			}
			return lease.Judge{Tenant: t.Tenant, Reports: append(l.reports[:0], r)}
		}
	}
	return []struct {
		name string
		make func() lease.Command
	}{
		{"submit", func() lease.Command {
			return lease.Submit{
				Space: 1, Tenant: "acme", Workspace: "default", Specs: []*lease.Spec{l.spec},
				Digests: make([]lease.Digest, 1),
			}
		}},
		{"grant", func() lease.Command { return lease.Grant{Task: l.view.task.ID, Worker: "w", Session: "s"} }},
		{"ack", report(lease.KindAck)},
		{"start", report(lease.KindStart)},
		{"heartbeat", report(lease.KindHeartbeat)},
		{"complete", report(lease.KindComplete)},
	}
}

func (l *life) step(tb testing.TB, c lease.Command) {
	out := l.rules.StepOn(l.memory, l.now, &l.view, c)
	if out.Err != nil || len(out.Changes) != 1 {
		tb.Fatalf("%T: error %v and %d changes, want no error and 1 change", c, out.Err, len(out.Changes))
	}
	l.view.task = out.Changes[0].New
	l.memory = lease.Memory{Changes: out.Changes, Answers: out.Answers}
}

// BenchmarkStep measures each command of a task's life. The time for making the command, and so for
// its lease id, is included.
func BenchmarkStep(b *testing.B) {
	l := newLife()
	for _, c := range l.commands() {
		before := l.view.task
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.view.task = before
				l.step(b, c.make())
			}
		})
	}
}
