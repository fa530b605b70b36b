package exhaustive

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// expected lists the outcomes that the scopes together must reach: the answers to each kind of
// message, how leases end other than by a report, and how tasks end. A task is FAILED when its
// failures are used up, and FAILED/HEARTBEAT_TIMEOUT when its losses are.
const expected = `
start     NONE ALREADY_REPORTED SUPERSEDED LEASE_EXPIRED TASK_CANCELLED CANCEL_TIMEOUT DISPATCH_UNACKED COORDINATOR_RECOVERED
heartbeat NONE ALREADY_REPORTED SUPERSEDED LEASE_EXPIRED TASK_CANCELLED CANCEL_TIMEOUT
ack       NONE ALREADY_REPORTED SUPERSEDED LEASE_EXPIRED TASK_CANCELLED CANCEL_TIMEOUT DISPATCH_UNACKED
complete  NONE replayed DUPLICATE_REPORT SUPERSEDED LEASE_EXPIRED TASK_CANCELLED CANCEL_TIMEOUT DISPATCH_UNACKED COORDINATOR_RECOVERED
fail      NONE replayed DUPLICATE_REPORT SUPERSEDED LEASE_EXPIRED TASK_CANCELLED CANCEL_TIMEOUT DISPATCH_UNACKED COORDINATOR_RECOVERED
release   NONE replayed DUPLICATE_REPORT SUPERSEDED LEASE_EXPIRED TASK_CANCELLED CANCEL_TIMEOUT DISPATCH_UNACKED
lease     LEASE_EXPIRED CANCEL_TIMEOUT DISPATCH_UNACKED COORDINATOR_RECOVERED
task      COMPLETED adopted FAILED FAILED/HEARTBEAT_TIMEOUT FAILED/CANCEL_TIMEOUT CANCELLED/TASK_CANCELLED
`

// outcome is a result of a move.
type outcome struct{ of, is string }

// reached counts moves by their outcomes.
type reached map[outcome]int

func (r reached) note(before, after *world) {
	for i := range before.memory.tasks {
		if was, is := before.memory.tasks[i], after.memory.tasks[i]; is.Rest != was.Rest && is.Rest.Final() {
			r[outcome{"task", ending(is)}]++
		}
	}
	if len(after.batch) <= len(before.batch) {
		return
	}
	for i := range after.batch[len(before.batch):] {
		if n := &after.batch[len(before.batch)+i]; !n.granted {
			r[n.outcome()]++
		}
	}
}

func ending(t *lease.Task) string {
	switch {
	case t.Outcome != nil && t.Outcome.Kind == lease.KindAdopt:
		return "adopted"
	case t.Reason == lease.NoReason:
		return t.Rest.String()
	}
	return t.Rest.String() + "/" + t.Reason.String()
}

func (n *pendingNews) outcome() outcome {
	switch {
	case n.ended:
		return outcome{"lease", n.answer.Reason.String()}
	case n.answer.Replayed:
		return outcome{n.kind.String(), "replayed"}
	}
	return outcome{n.kind.String(), n.answer.Reason.String()}
}

// check fails unless exactly the expected outcomes were reached.
func (r reached) check(t *testing.T) {
	want := map[outcome]bool{}
	for line := range strings.Lines(strings.TrimSpace(expected)) {
		words := strings.Fields(line)
		counts := make([]string, 0, len(words))
		for _, is := range words[1:] {
			o := outcome{words[0], is}
			want[o] = true
			counts = append(counts, fmt.Sprintf("%s %d", is, r[o]))
			if r[o] == 0 {
				t.Errorf("%s %s was not reached", o.of, o.is)
			}
		}
		t.Logf("%-9s %s", words[0], strings.Join(counts, ", "))
	}
	for o, n := range r {
		if !want[o] {
			t.Errorf("%s %s was reached %d times, and is not expected", o.of, o.is, n)
		}
	}
}
