package workercheck

import (
	"slices"
	"time"
)

// testCase is something that happens to a worker, and what it must do then.
type testCase struct {
	name     string
	rules    string // of docs/rules.md
	expected string
	// only are the ways of speaking to which the case applies; empty: all.
	only []way
	// fails: it needs a task that fails. starts: it needs a worker that reports its starts.
	fails, starts bool
	// silent: sessions send heartbeats as seldom as in production, so that none acknowledges a
	// dispatch in passing.
	silent bool
	run    func(*rig) error
}

// sessionBeat is how often a session must send a heartbeat.
func (t *testCase) sessionBeat() time.Duration {
	if t.silent {
		return 10 * time.Second
	}
	return time.Second
}

// leftOut returns why the case does not apply to the worker; empty: it does.
func (t *testCase) leftOut(c *check) string {
	if len(t.only) > 0 && !slices.Contains(t.only, c.way) {
		return "the worker speaks by " + string(c.way)
	}
	if t.fails && c.cfg.Failing == nil {
		return "needs the payload of a task that fails"
	}
	if t.starts && !c.starts {
		return "the worker reports no starts"
	}
	return ""
}

// cases are all cases. The first one shows that the worker can be checked at all.
var cases = []testCase{
	{
		name: "work", rules: "A3 K1 K4",
		expected: "takes tasks, renews their leases, reports each once, and is quiet then", run: work,
	},
	{
		name: "failure", rules: "T4 V16", expected: "reports a failure of its task once, with a category",
		fails: true, run: failure,
	},
	{
		name: "waited", rules: "A3", expected: "keeps the lease of a task for which it had waited longer than the lease lives", run: waited,
	},
	{
		name: "idle", rules: "W9", expected: "sends the heartbeats of its session also while it has no task", only: []way{stream}, run: idle,
	},
	{
		name:     "grant-lost",
		rules:    "K5 S2",
		expected: "asks again with the same request id if the answer with work was lost",
		only:     []way{calls, web},
		run:      grantLost,
	},
	{
		name:     "verdict-lost",
		rules:    "K5 V4",
		expected: "repeats a report whose answer was lost, unchanged",
		run:      verdictLost,
	},
	{
		name: "no-verdict", rules: "K5",
		expected: "repeats a report that nobody heard, unchanged, and waits between tries", run: noVerdict,
	},
	{
		name:     "item-error",
		rules:    "K5 S3",
		expected: "repeats a report that got an error in place of a verdict, unchanged",
		only:     []way{stream},
		run:      itemError,
	},
	{
		name: "rejected", rules: "K3", expected: "does not repeat a report that is REJECTED, and takes other work", run: rejected,
	},
	{
		name: "cancel", rules: "K6 T7", expected: "stops what was cancelled within the grace, and reports it as a failure CANCELLED", run: cancel,
	},
	{
		name: "cancel-unheard", rules: "K2 K6", run: cancelUnheard,
		expected: "stops within the grace also while it hears nothing, and obeys when it hears that the grace is over",
	},
	{
		name:     "cancel-early",
		rules:    "K2 T7",
		expected: "does not begin what was cancelled before its start, or stops it if it had begun, and takes other work",
		starts:   true,
		run:      cancelEarly,
	},
	{
		name: "lease-lost", rules: "K2 K4",
		expected: "stops when its lease is lost, reports nothing, and takes other work", run: leaseLost,
	},
	{
		name: "result-late", rules: "K2",
		expected: "does not repeat a result that is CANCELLED, and takes other work", run: resultLate,
	},
	{
		name: "frozen", rules: "A3 K2", expected: "obeys when it wakes up after its lease has expired, and does the task anew", run: frozen,
	},
	{
		name: "network-down", rules: "K5 W8",
		expected: "goes on while the network is away for 1.5 s, and keeps its lease", run: networkDown,
	},
	{
		name: "stop", rules: "A9 W8", expected: "keeps its lease over a graceful stop and restart of the coordinator", run: stopped,
	},
	{
		name: "crash", rules: "A9 W8", expected: "keeps its lease over a crash and restart of the coordinator", run: crashed,
	},
	{
		name: "away", rules: "K5 W1", expected: "waits for a coordinator that is not there yet, and does not knock all the time", run: away,
	},
	{
		name: "busy", rules: "S4 K5", expected: "comes back when the coordinator said, not before", run: busy,
	},
	{
		name: "ack", rules: "W5", expected: "acknowledges a dispatch at once, and not by a heartbeat that is due much later",
		only: []way{stream}, silent: true, run: acks,
	},
	{
		name: "unheard", rules: "W5", expected: "begins no attempt after the first one before the coordinator has heard of it",
		only: []way{stream}, fails: true, run: unheard,
	},
	{
		name: "dispatch-again", rules: "W5 W8", expected: "executes a task once whose dispatch comes again after a restart of the coordinator",
		only: []way{stream}, run: dispatchAgain,
	},
	{
		name: "dispatch-twice", rules: "W6 W7", expected: "executes a task once whose dispatch comes twice",
		only: []way{stream}, run: dispatchTwice,
	},
	{
		name: "newer", rules: "S4", expected: "ignores fields that it does not know", run: newer,
	},
	{
		name: "clock-ahead", rules: "A8",
		expected: "counts expires_in; the coordinator's clock may be 10 h ahead", run: clock(10 * time.Hour),
	},
	{
		name: "clock-behind", rules: "A8",
		expected: "counts expires_in; the coordinator's clock may be 10 h behind", run: clock(-10 * time.Hour),
	},
	{
		name: "forgotten", rules: "K3 W8", run: forgotten,
		expected: "begins anew with a coordinator that knows nothing of it, as one with another store",
	},
	{
		name: "displaced", rules: "W8", expected: "begins a new session if another stream has taken the place of its own",
		only: []way{stream}, run: displaced,
	},
	{
		name: "kicked", rules: "K2", expected: "stops what it runs when it is kicked and its leases have ended, and takes work when it is back",
		only: []way{stream}, run: kicked,
	},
	{
		name: "drain", rules: "W10", run: drain, only: []way{stream},
		expected: "finishes what it runs when an operator drains it, takes no more, and leaves",
	},
	{
		name: "term-idle", rules: "W10", expected: "ends after SIGTERM", run: termIdle,
	},
	{
		name: "term-busy", rules: "W10",
		expected: "finishes what it runs, or gives it back, after SIGTERM; takes no more, and ends", run: termBusy,
	},
	{
		name:     "term-cut",
		rules:    "W8 W10",
		expected: "drains after SIGTERM also on a new stream, if it loses the first one",
		only:     []way{stream},
		run:      termCut,
	},
}
