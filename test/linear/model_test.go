//go:build faults

package linear

import "github.com/anishathalye/porcupine"

// Limits in the specs that the clients submit.
const (
	maxAttempts = 3 // T5: failures
	maxUnacked  = 6 // W5
)

// States of the model. waiting is READY or SCHEDULED, which differ only by time.
const (
	waiting    = "WAITING"
	leased     = "LEASED"
	running    = "RUNNING"
	cancelling = "CANCELLING"
	completed  = "COMPLETED"
	failed     = "FAILED"
	cancelled  = "CANCELLED"
)

// task is the whole state of one task in the sequential model. It is a comparable value.
type task struct {
	exists   bool
	state    string
	attempt  uint32 // of the newest grant
	token    uint64
	started  bool   // the live lease was started
	acked    bool   // the live lease was acknowledged, by a Start or Heartbeat
	cause    string // why the newest lease ended without a report
	failures int
	unacked  int
	output   string
	// The COMMITTED report of each lease, by attempt, with the state in its answer.
	reports [maxGrants]report
}

// maxGrants is more than the calls of one history can lead to.
const maxGrants = 48

type report struct{ content, state string }

var model = porcupine.Model{
	Init: func() any { return task{} },
	Step: func(state, input, output any) (bool, any) {
		t, o := state.(task), input.(*op)
		want, legal := t.apply(o)
		return legal && (o.open() || want == output.(answer)), t
	},
}

// apply does what the operation asks, and returns the answer that the contract requires. legal is
// false if the operation cannot happen in this state.
func (t *task) apply(o *op) (a answer, legal bool) {
	switch o.Kind {
	case submit:
		return t.submit(), true
	case granted:
		return answer{}, t.grant(o)
	case ended:
		return answer{}, t.end(o)
	case get:
		return answer{State: t.state, Attempt: t.attempt, Output: t.output}, t.exists
	case cancel:
		return t.cancel(), t.exists
	case retry:
		return t.retry(), t.exists
	default:
		return t.say(o), t.exists && o.Attempt <= t.attempt
	}
}

// submit is idempotent on the key (T1).
func (t *task) submit() answer {
	created := !t.exists
	if created {
		t.exists, t.state = true, waiting
	}
	return answer{Created: created}
}

// grant needs a task that waits. It raises the attempt by one, and the fencing token (A1, A2).
func (t *task) grant(o *op) bool {
	if t.state != waiting || o.Attempt != t.attempt+1 || o.Token != 0 && o.Token <= t.token {
		return false
	}
	t.state, t.attempt, t.token = leased, o.Attempt, max(t.token, o.Token)
	t.started, t.acked, t.cause = false, false, ""
	return true
}

func (t *task) live() bool { return t.state == leased || t.state == running || t.state == cancelling }

// end ends a live lease for good (A4).
func (t *task) end(o *op) bool {
	if !t.live() || o.Attempt != t.attempt {
		return false
	}
	t.cause = o.Content
	switch {
	case t.cause == "CANCEL_TIMEOUT": // T7
		t.state = failed
	case t.state == cancelling: // T7: no loss is counted
		t.state = cancelled
	case t.cause == "LEASE_EXPIRED" && !t.acked: // W5
		t.state = waiting
		if t.unacked++; t.unacked == maxUnacked {
			t.state = failed
		}
	default:
		t.state = waiting
	}
	if t.acked {
		t.unacked = 0
	}
	return true
}

// say judges a call about a lease, in the order of the table of verdicts.
func (t *task) say(o *op) answer {
	outcome := o.Kind != start && o.Kind != heartbeat
	done := t.reports[o.Attempt]
	switch {
	case done != (report{}) && outcome && done.content == o.key(): // V4
		return answer{Verdict: "COMMITTED", Reason: "NONE", State: done.state, Replayed: true}
	case done != (report{}) && outcome: // V5
		return answer{Verdict: "REJECTED", Reason: "DUPLICATE_REPORT", State: t.state}
	case done != (report{}): // V5
		return answer{Verdict: "CANCELLED", Reason: "ALREADY_REPORTED", State: t.state}
	case o.Attempt < t.attempt: // V9
		return answer{Verdict: "CANCELLED", Reason: "SUPERSEDED", State: t.state, Superseding: t.attempt, ShouldCancel: !outcome}
	case !t.live(): // V10
		return answer{Verdict: "CANCELLED", Reason: t.cause, State: t.state, ShouldCancel: !outcome}
	case outcome: // V12, V16
		t.report(o)
		return answer{Verdict: "COMMITTED", Reason: "NONE", State: t.state}
	case o.Kind == start && t.state == cancelling && !t.started: // T7
		t.state, t.cause = cancelled, "TASK_CANCELLED"
		return answer{Verdict: "CANCELLED", Reason: t.cause, State: t.state, ShouldCancel: true}
	default: // V12, V18
		t.renew(o)
		return answer{Verdict: "COMMITTED", Reason: "NONE", State: t.state, ShouldCancel: t.state == cancelling}
	}
}

// key is the same for two reports that are the same (V13).
func (o *op) key() string { return string(o.Kind) + " " + o.Content }

// renew handles a Start or Heartbeat under a live lease. Only a Start makes the task RUNNING (V19).
func (t *task) renew(o *op) {
	t.acked = true
	if o.Kind == start {
		t.started = true
		if t.state == leased {
			t.state = running
		}
	}
}

func (t *task) report(o *op) {
	stopped := t.state == cancelling
	switch {
	case o.Kind == complete:
		t.state, t.output = completed, o.Content
	case o.Kind == fail && !stopped:
		t.countFailure(o)
	case stopped: // T7: neither Fail nor Release is followed by another attempt
		t.state = cancelled
	default:
		t.state = waiting
	}
	t.unacked = 0
	t.reports[o.Attempt] = report{content: o.key(), state: t.state}
}

// countFailure counts a failure, and decides whether it is retried (T4, T5).
func (t *task) countFailure(o *op) {
	t.failures++
	t.state = waiting
	if t.failures >= maxAttempts || o.Content == final {
		t.state = failed
	}
}

// cancel ends a task at once if nobody holds it; a repeated cancel gets the same answer (T7).
func (t *task) cancel() answer {
	switch {
	case t.live():
		t.state = cancelling
	case t.state == waiting:
		t.state = cancelled
	case t.state == completed || t.state == failed:
		return answer{Refused: "FailedPrecondition"}
	}
	return answer{State: t.state}
}

// retry opens a new round of a task that ended without a result: the budgets begin anew, the
// attempts go on (T9).
func (t *task) retry() answer {
	if t.state != failed && t.state != cancelled {
		return answer{Refused: "FailedPrecondition"}
	}
	t.state, t.failures, t.unacked = waiting, 0, 0
	return answer{State: t.state}
}
