package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// outcomes lists every possible outcome of each command: the verdicts on reports of workers, and
// what other commands do or why they are refused. The simulation fails if an outcome occurs that is
// not listed, or if a listed one does not occur often enough.
var outcomes = map[string]string{
	"start":     always + open + cancelled,
	"heartbeat": always + open + cancelled,
	"ack":       always + open + cancelled,
	"complete":  always + closes + "REJECTED/RESULT_TOO_LARGE, " + cancelled,
	"fail":      always + closes + cancelled,
	"release":   always + closes + cancelled,

	"submit":       "created, existing, exists, bad field",
	"grant":        "granted, no such task, not ready, paused, max_inflight, rate limit, key held",
	"unpark":       "back in line, no effect",
	"loseresource": "given up, no effect",
	"requeue":      "taken back, cancelled, no effect",
	"cancel":       "asked, asked again, cancelled, not found, wrong state",
	"retry":        "retried, not found, wrong state, bad field",
	"delete":       "deleted, deleted by force, not found, wrong state",
	"adopt":        "adopted, not found, wrong state",
	"expire":       "no effect, READY, LEASE_EXPIRED, DISPATCH_UNACKED, CANCEL_TIMEOUT, DEADLINE_EXCEEDED, START_TIMEOUT, RESOURCE_GONE, removed",
	"stall":        "extended, no effect",
}

const (
	always = "COMMITTED/NONE, REJECTED/INVALID_REQUEST, REJECTED/UNKNOWN_TASK, REJECTED/INVALID_LEASE, "
	// open is for the reports that a worker may repeat while the lease is live; closes is for those
	// that end the lease (V4, V5).
	open      = "CANCELLED/ALREADY_REPORTED, "
	closes    = "COMMITTED/NONE replayed, REJECTED/DUPLICATE_REPORT, "
	cancelled = "CANCELLED/COORDINATOR_RECOVERED, CANCELLED/TASK_GONE, CANCELLED/SUPERSEDED, CANCELLED/LEASE_EXPIRED, " +
		"CANCELLED/DISPATCH_UNACKED, CANCELLED/TASK_CANCELLED, CANCELLED/CANCEL_TIMEOUT, CANCELLED/DEADLINE_EXCEEDED, CANCELLED/REVOKED"
)

// These outcomes are not listed, because the code cannot reach them:
//
//   - DUPLICATE_REPORT and a replay for start, heartbeat and ack; ALREADY_REPORTED for reports: V5
//     has a separate answer for each, V4 is for reports.
//   - RESULT_TOO_LARGE for all but complete: nothing else carries an output.
//   - HEARTBEAT_TIMEOUT, START_TIMEOUT, DISPATCH_UNAVAILABLE, RESOURCE_GONE and REPORTED as the
//     reason of a verdict: the first four are why tasks end. REPORTED is why a lease ends, and then
//     V4 and V5 answer its holder.
//   - A grant that fails because the attempt numbers are used up: that takes two million grants of
//     one task.

// outcome is a command and the name of its outcome in the table outcomes.
type outcome struct{ command, name string }

// coverage counts how often each outcome occurred while at least one lease was live.
type coverage struct {
	seen         map[outcome]int64
	longestDrain lease.Instant // the longest time from the end of the faults until all tasks had ended
}

func newCoverage() *coverage { return &coverage{seen: map[outcome]int64{}} }

func (c *coverage) add(other *coverage) {
	for o, n := range other.seen {
		c.seen[o] += n
	}
	c.longestDrain = max(c.longestDrain, other.longestDrain)
}

// check fails unless each outcome of the table occurred at least minimum times, and no other
// outcome occurred.
func (c *coverage) check(t *testing.T, minimum int64) {
	t.Helper()
	reachable := map[outcome]bool{}
	for command, list := range outcomes {
		for name := range strings.SplitSeq(strings.TrimSuffix(list, ", "), ", ") {
			reachable[outcome{command, name}] = true
		}
	}
	rarest := outcome{}
	for o := range reachable {
		if n := c.seen[o]; n < minimum {
			t.Errorf("the outcome of %s was %q %d times, want at least %d", o.command, o.name, n, minimum)
		}
		if rarest == (outcome{}) || c.seen[o] < c.seen[rarest] {
			rarest = o
		}
	}
	for o, n := range c.seen {
		if !reachable[o] {
			t.Errorf("the outcome of %s was %q %d times, which the table outcomes does not list", o.command, o.name, n)
		}
	}
	t.Logf("%d outcomes, the rarest %d times (%s: %s); the slowest drain took %v",
		len(reachable), c.seen[rarest], rarest.command, rarest.name, c.longestDrain.Sub(0))
	if testing.Verbose() {
		t.Log(c.table())
	}
}

func (c *coverage) table() string {
	var lines []string
	for o, n := range c.seen {
		lines = append(lines, fmt.Sprintf("%-10s %-36s %10d", o.command, o.name, n))
	}
	slices.Sort(lines)
	return "\n" + strings.Join(lines, "\n")
}

// answerNames has the names of all pairs of verdict and reason, so that answerName does not
// allocate.
var answerNames = func() (names [lease.VerdictRejected + 1][lease.ResourceGone + 1]string) {
	for v := range names {
		for r := range names[v] {
			names[v][r] = lease.Verdict(v).String() + "/" + lease.Reason(r).String()
		}
	}
	return names
}()

func answerName(a lease.Answer) string {
	if a.Replayed {
		return "COMMITTED/NONE replayed"
	}
	return answerNames[a.Verdict][a.Reason]
}
