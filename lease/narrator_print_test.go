package lease_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

func (n *narrator) printf(format string, args ...any) { fmt.Fprintf(&n.out, format+"\n", args...) }

// printAnswer prints a verdict and everything else in the answer to a worker.
func (n *narrator) printAnswer(a lease.Answer) {
	parts := []string{strings.TrimSuffix(fmt.Sprintf("%v %v", a.Verdict, a.Reason), " NONE")}
	add := func(told bool, format string, args ...any) {
		if told {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(a.State != 0, "task is %v", a.State)
	add(a.ExpiresAt != 0, "expires in %v", a.ExpiresAt.Sub(n.now.Serving))
	add(a.RetryAt != 0, "retry in %v", time.Duration(a.RetryAt-n.now.Wall))
	add(a.CurrentAttempt != 0, "current attempt is %d", a.CurrentAttempt)
	add(a.ShouldCancel && a.CancelBy == 0, "should cancel")
	add(a.CancelBy != 0, "should cancel within %v", a.CancelBy.Sub(n.now.Serving))
	add(a.CancelReason != "", "cancel reason %q", a.CancelReason)
	add(a.Replayed, "replayed")
	detail := ""
	if a.Detail != "" {
		detail = " (" + a.Detail + ")"
	}
	n.printf("%s%s", strings.Join(parts, ", "), detail)
}

func (n *narrator) printRefusal(err error) {
	text := err.Error()
	for name, id := range n.tasks {
		text = strings.ReplaceAll(text, id.String(), name)
	}
	n.printf("refused: %s", text)
}

// printChange prints how a step changed a task, and what the caller has to send to the holder.
func (n *narrator) printChange(c *lease.Change) {
	name := n.name(taskOf(c))
	switch {
	case c.New == nil:
		n.printf("  %s: %v, now gone", name, c.Old.State())
	case !c.Old.Parked && c.New.Parked:
		n.printf("  %s: parked", name)
	case c.Old.Parked && !c.New.Parked && c.New.State() == lease.Ready:
		n.printf("  %s: back in line", name)
	case c.Old.State() != c.New.State():
		n.printf("  %s: %v, now %v%s%s", name, c.Old.State(), c.New.State(), why(c.New), n.wait(c.New))
	}
	if c.Lost != nil {
		n.printf("  %s lost attempt %d: %v", c.Lost.Worker, c.Lost.Attempt, c.LostCause)
	}
	if f := c.Failure; f != nil && c.Lost != nil { // not from a report of the holder
		n.printf("  %s: error %v: %s", name, f.Category, f.Message)
	}
	if c.Checkpoint != nil {
		n.printf("  %s: checkpoint %q", name, c.Checkpoint)
	}
	for _, k := range c.Kept {
		n.printf("  %s: result %q of attempt %d is kept", name, k.Result.Output, k.Attempt)
	}
	if c.Result != nil && c.New.Outcome.Kind == lease.KindAdopt {
		n.printf("  %s: result is %q", name, c.Result.Output)
	}
	if c.CancelAsked {
		n.printf("  %s is told to stop", c.New.Lease.Worker)
	}
}

func why(t *lease.Task) string {
	if t.Reason == lease.NoReason {
		return ""
	}
	return " (" + t.Reason.String() + ")"
}

// wait returns for how long the task stays SCHEDULED, in words; empty if it is not.
func (n *narrator) wait(t *lease.Task) string {
	switch {
	case t.RetryAt != 0:
		return fmt.Sprintf(" for %v", t.RetryAt.Sub(n.now.Serving))
	case t.RunAt != 0:
		return fmt.Sprintf(" for %v", time.Duration(t.RunAt-n.now.Wall))
	}
	return ""
}

// show prints the state of a task, its lease, budgets, kept results and outcome.
func (n *narrator) show(w words) {
	t := n.store.Task(n.task(w))
	if t == nil {
		n.printf("%s is gone", w.names[0])
		return
	}
	n.printf("%s is %v%s%s", w.names[0], t.State(), why(t), n.wait(t))
	if l := t.Lease; l != nil {
		n.printf("  held by %s%s, expires in %v", l.Worker, stream(l), t.ExpiresAt(n.now).Sub(n.now.Serving))
	}
	n.printf("  round %d, attempt %d, failures %d, losses %d, releases %d, unacknowledged %d",
		t.Round, t.Attempt(), t.Failures, t.Losses, t.Releases, t.Unacked)
	for _, d := range t.Discarded {
		n.printf("  kept: the result of attempt %d by %q, %d bytes, %v", d.Attempt, d.Worker, d.Size, d.Reason)
	}
	if t.Outcome != nil {
		n.printf("  outcome: the %v of attempt %d", t.Outcome.Kind, t.Outcome.Attempt)
	}
}

func stream(l *lease.Lease) string {
	if l.Session == "" {
		return ""
	}
	return " on " + l.Session
}

// history prints the events of a task.
func (n *narrator) history(w words) {
	t := n.store.Task(n.task(w))
	if t.Dropped != 0 {
		n.printf("%d dropped", t.Dropped)
	}
	for _, e := range t.Events() {
		line := fmt.Sprintf("%v %v, %v", time.Duration(e.At-lease.WallOf(firstDay)), eventNames[e.Type], e.State)
		if e.Attempt != 0 {
			line += fmt.Sprintf(", attempt %d", e.Attempt)
		}
		if e.Actor != "" {
			line += ", " + e.Actor
		}
		if e.Reason != lease.NoReason {
			line += ", " + e.Reason.String()
		}
		if e.Kind != 0 {
			line += ", " + e.Kind.String()
		}
		if e.Detail != "" {
			line += ": " + e.Detail
		}
		n.printf("%s", line)
	}
}

// explain prints why a task is in its state: the findings, the story of the lease that ended last,
// and the refused reports.
func (n *narrator) explain(w words) {
	x := lease.Explain(n.now, n.store, n.store.Task(n.task(w)))
	for _, f := range x.Findings {
		line := findingNames[f.Code] + since(f.Since, ", since ") + since(f.Until, ", until ") + ": " + f.Message
		if f.Remedy != "" {
			line += "; remedy: " + f.Remedy
		}
		n.printf("%s", line)
	}
	if x.Story != "" {
		n.printf("  last lease: %s", x.Story)
	}
	if x.Detail != "" {
		n.printf("  detail: %s", x.Detail)
	}
	for _, r := range x.Refusals {
		n.printf("  refused: the %v of attempt %d, %v, late by %v", r.Kind, r.Attempt, r.Reason, r.LateBy)
	}
}

// since returns a word and the time since the start of the transcript; empty if the time is not
// known.
func since(at lease.Wall, word string) string {
	if at == 0 {
		return ""
	}
	return fmt.Sprint(word, time.Duration(at-lease.WallOf(firstDay)))
}

var findingNames = map[lease.FindingCode]string{
	lease.FoundLeased: "leased", lease.FoundUnacknowledged: "unacknowledged", lease.FoundCancelling: "cancelling",
	lease.FoundRunAt:   "run_at",
	lease.FoundBackoff: "backoff", lease.FoundQueuePaused: "queue paused", lease.FoundMaxInflight: "max_inflight",
	lease.FoundRateLimit:      "rate limit",
	lease.FoundConcurrencyKey: "concurrency key", lease.FoundCompleted: "completed", lease.FoundFailed: "failed",
	lease.FoundCancelled: "cancelled",
	lease.FoundTimeLimit: "time limit", lease.FoundLateResult: "late result",
}

var blockNames = map[lease.Block]string{
	lease.BlockedByPause: ": the queue is paused", lease.BlockedByInflight: ": max_inflight", lease.BlockedByRate: ": rate limit",
	lease.BlockedByKey: ": concurrency key",
}

var eventNames = map[lease.EventType]string{
	lease.EventSubmitted: "submitted", lease.EventGranted: "granted", lease.EventAcknowledged: "acknowledged",
	lease.EventStarted: "started", lease.EventCompleted: "completed", lease.EventFailed: "failed",
	lease.EventReleased:   "released",
	lease.EventLeaseEnded: "lease ended", lease.EventCancelRequested: "cancel requested", lease.EventRetried: "retried",
	lease.EventReady: "ready", lease.EventEnded: "ended",
	lease.EventRefused: "refused", lease.EventAdopted: "adopted",
}

// compareTokens prints the fencing tokens of two attempts, each given as epoch.attempt, and whether
// the first is below the second: "compare 1.3 2.1".
func (n *narrator) compareTokens(w words) {
	var tokens [2]uint64
	for i, name := range w.names {
		epoch, attempt, _ := strings.Cut(name, ".")
		tokens[i] = lease.FencingToken(uint32(n.atoi(epoch)), uint32(n.atoi(attempt)))
	}
	relation := "not below"
	if tokens[0] < tokens[1] {
		relation = "below"
	}
	n.printf("token %d is %s %d", tokens[0], relation, tokens[1])
}
