package main

import (
	"fmt"
	"io"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// queueGetCmd is lessor queue get.
type queueGetCmd struct {
	remote `embed:""`
	Name   string `arg:"" help:"Queue to show."`
}

// Help is shown below the flags.
func (queueGetCmd) Help() string {
	return `Example:
  lessor queue get mail --json | jq .queue.ready`
}

func (c queueGetCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		answer, err := cl.admin.GetQueue(a.ctx, &lessorv1.GetQueueRequest{WorkspaceId: c.Workspace, Name: c.Name})
		if err != nil {
			return withID(c.Name, err)
		}
		if a.json {
			return printJSON(a.out, answer)
		}
		return printQueue(a.out, answer.GetQueue())
	})
}

// printQueue shows the state of a queue, then its settings.
func printQueue(w io.Writer, q *lessorv1.Queue) error {
	d := newDetails(w)
	d.add("queue", q.GetName())
	d.add("workspace", q.GetWorkspaceId())
	d.add("created", clock(q.GetCreatedAt()))
	d.add("ready", readyText(q))
	if oldest := words.Oldest(q); oldest != "" {
		d.add("oldest", "READY for "+oldest+", "+q.GetOldestReadyTaskId())
	}
	if age := blockerText(q); age != "" {
		d.add("blocker", "leased for "+age+", "+q.GetOldestBlockerTaskId())
	}
	d.add("scheduled", fmt.Sprint(q.GetScheduled()))
	d.add("leased", fmt.Sprint(q.GetLeased()))
	d.add("ended", endedText(q))
	d.add("workers", fmt.Sprint(q.GetTakers()))
	d.addSettings(q)
	return d.flush()
}

func readyText(q *lessorv1.Queue) string {
	text := fmt.Sprint(q.GetReady())
	if n := q.GetBlocked(); n > 0 {
		text += fmt.Sprintf(", %d of them blocked by their concurrency key", n)
	}
	return text
}

// endedText says how many tasks have ended and are there; "" if none are.
func endedText(q *lessorv1.Queue) string {
	var states []string
	for _, of := range []struct {
		tasks uint64
		state string
	}{{q.GetCompleted(), "COMPLETED"}, {q.GetFailed(), "FAILED"}, {q.GetCancelled(), "CANCELLED"}} {
		if of.tasks > 0 {
			states = append(states, fmt.Sprintf("%d %s", of.tasks, of.state))
		}
	}
	return strings.Join(states, ", ")
}

func (d details) addSettings(q *lessorv1.Queue) {
	if q.GetPaused() {
		since := "yes"
		if at := clock(q.GetPausedAt()); at != "" {
			since = "since " + at
		}
		d.add("paused", since+": no tasks are granted")
	}
	if n := q.GetMaxInflight(); n > 0 {
		d.add("max inflight", fmt.Sprint(n))
	}
	if r := q.GetRateLimit(); r != nil {
		d.add("rate", words.Rate(r.GetPerSecond()))
		if r.GetBurst() > 0 {
			d.add("burst", fmt.Sprint(r.GetBurst()))
		}
	}
	addEach(d, "weight", "%s=%v", q.GetFairnessWeights())
	d.add("retry policy", policyText(q.GetRetryPolicy()))
}

// policyText returns what a policy sets, with the names of the fields.
func policyText(p *lessorv1.RetryPolicy) string {
	var set []string
	add := func(name string, value any, isSet bool) {
		if isSet {
			set = append(set, fmt.Sprintf("%s %v", name, value))
		}
	}
	add("max_attempts", p.GetMaxAttempts(), p.GetMaxAttempts() != 0)
	add("max_losses", p.GetMaxLosses(), p.GetMaxLosses() != 0)
	add("initial_backoff", p.GetInitialBackoff().AsDuration(), p.GetInitialBackoff() != nil)
	add("backoff_multiplier", p.GetBackoffMultiplier(), p.GetBackoffMultiplier() != 0)
	add("max_backoff", p.GetMaxBackoff().AsDuration(), p.GetMaxBackoff() != nil)
	for _, category := range p.GetNonRetryableCategories() {
		add("never after", words.Name(category), true)
	}
	return strings.Join(set, ", ")
}
