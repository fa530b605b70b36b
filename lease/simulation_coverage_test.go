package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// outcomes are all that can come of each command: the verdicts on what a worker says, and what other commands do or why they are refused.
// A simulation fails if it has missed one of them, or met another.
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
	// open is for what can be repeated as long as the lease lives, closes for reports, of which the first one counts (V4, V5).
	open      = "CANCELLED/ALREADY_REPORTED, "
	closes    = "COMMITTED/NONE replayed, REJECTED/DUPLICATE_REPORT, "
	cancelled = "CANCELLED/COORDINATOR_RECOVERED, CANCELLED/TASK_GONE, CANCELLED/SUPERSEDED, CANCELLED/LEASE_EXPIRED, " +
		"CANCELLED/DISPATCH_UNACKED, CANCELLED/TASK_CANCELLED, CANCELLED/CANCEL_TIMEOUT, CANCELLED/DEADLINE_EXCEEDED, CANCELLED/REVOKED"
)

// Out of reach, by the code:
//
//   - DUPLICATE_REPORT and a replay for start, heartbeat and ack, ALREADY_REPORTED for reports: V5 gives each its own answer, V4 is for reports.
//   - RESULT_TOO_LARGE for all but complete: nothing else carries an output.
//   - HEARTBEAT_TIMEOUT, START_TIMEOUT, DISPATCH_UNAVAILABLE, RESOURCE_GONE and REPORTED as the reason of a verdict: they end tasks, or leases whose holder
//     has said so itself and is answered by V4 and V5.
//   - A grant refused for want of attempt numbers: that takes two million grants of one task.

type outcome struct{ command, is string }

// coverage counts outcomes in a system that is not empty.
type coverage struct {
	seen     map[outcome]int64
	draining lease.Instant // the longest that it took to drain
}

func newCoverage() *coverage { return &coverage{seen: map[outcome]int64{}} }

func (c *coverage) add(other *coverage) {
	for o, n := range other.seen {
		c.seen[o] += n
	}
	c.draining = max(c.draining, other.draining)
}

// check wants each outcome at least so many times, and no other.
func (c *coverage) check(t *testing.T, least int64) {
	t.Helper()
	reachable := map[outcome]bool{}
	for command, list := range outcomes {
		for is := range strings.SplitSeq(strings.TrimSuffix(list, ", "), ", ") {
			reachable[outcome{command, is}] = true
		}
	}
	rarest := outcome{}
	for o := range reachable {
		if n := c.seen[o]; n < least {
			t.Errorf("%s met with %q %d times, want %d", o.command, o.is, n, least)
		}
		if rarest == (outcome{}) || c.seen[o] < c.seen[rarest] {
			rarest = o
		}
	}
	for o, n := range c.seen {
		if !reachable[o] {
			t.Errorf("%s met with %q, which the table does not have, %d times", o.command, o.is, n)
		}
	}
	t.Logf("%d outcomes, the rarest %d times (%s: %s); drained within %v", len(reachable), c.seen[rarest], rarest.command, rarest.is, c.draining.Sub(0))
	if testing.Verbose() {
		t.Log(c.table())
	}
}

func (c *coverage) table() string {
	var lines []string
	for o, n := range c.seen {
		lines = append(lines, fmt.Sprintf("%-10s %-36s %10d", o.command, o.is, n))
	}
	slices.Sort(lines)
	return "\n" + strings.Join(lines, "\n")
}

// verdicts are the names of answers, made once.
var verdicts = func() (names [lease.VerdictRejected + 1][lease.ResourceGone + 1]string) {
	for v := range names {
		for r := range names[v] {
			names[v][r] = lease.Verdict(v).String() + "/" + lease.Reason(r).String()
		}
	}
	return names
}()

func nameOf(a lease.Answer) string {
	if a.Replayed {
		return "COMMITTED/NONE replayed"
	}
	return verdicts[a.Verdict][a.Reason]
}
