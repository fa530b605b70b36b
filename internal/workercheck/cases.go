package workercheck

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
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
	run           func(*rig) error
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
		name: "work", rules: "A3 K1 K4", expected: "takes tasks, renews their leases, reports each once, and is quiet then", run: work,
	},
	{
		name: "failure", rules: "T4 V16", expected: "reports a failure of its task once, with a category", fails: true, run: failure,
	},
	{
		name: "grant-lost", rules: "K5 S2", expected: "asks again with the same request id if the answer with work was lost", only: []way{calls, web}, run: grantLost,
	},
	{
		name: "verdict-lost", rules: "K5 V4", expected: "repeats a report whose answer was lost, unchanged", run: verdictLost,
	},
	{
		name: "no-verdict", rules: "K5", expected: "repeats a report that nobody heard, unchanged, and waits between tries", run: noVerdict,
	},
	{
		name: "item-error", rules: "K5 S3", expected: "repeats a report that got an error in place of a verdict, unchanged", only: []way{stream}, run: itemError,
	},
	{
		name: "rejected", rules: "K3", expected: "does not repeat a report that is REJECTED, and takes other work", run: rejected,
	},
	{
		name: "cancel", rules: "K6 T7", expected: "stops what was cancelled within the grace, and reports it as a failure CANCELLED", run: cancel,
	},
	{
		name: "cancel-early", rules: "K2 T7", expected: "does not begin what was cancelled before its start, and takes other work", starts: true, run: cancelEarly,
	},
	{
		name: "lease-lost", rules: "K2 K4", expected: "stops when its lease is lost, reports nothing, and takes other work", run: leaseLost,
	},
	{
		name: "result-late", rules: "K2", expected: "does not repeat a result that is CANCELLED, and takes other work", run: resultLate,
	},
	{
		name: "frozen", rules: "A3 K2", expected: "obeys when it wakes up after its lease has expired, and does the task anew", run: frozen,
	},
	{
		name: "network-down", rules: "K5 W8", expected: "goes on while the network is away for 1.5 s, and keeps its lease", run: networkDown,
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
		name: "dispatch-twice", rules: "W6 W7", expected: "executes a task once whose dispatch comes twice", only: []way{stream}, run: dispatchTwice,
	},
	{
		name: "newer", rules: "S4", expected: "ignores fields that it does not know", run: newer,
	},
	{
		name: "clock-ahead", rules: "A8", expected: "counts expires_in; the coordinator's clock may be 10 h ahead", run: clock(10 * time.Hour),
	},
	{
		name: "clock-behind", rules: "A8", expected: "counts expires_in; the coordinator's clock may be 10 h behind", run: clock(-10 * time.Hour),
	},
	{
		name: "drain", rules: "W10", expected: "finishes what it runs when an operator drains it, and takes no more", only: []way{stream}, run: drain,
	},
	{
		name: "term-idle", rules: "W10", expected: "ends after SIGTERM", run: termIdle,
	},
	{
		name: "term-busy", rules: "W10", expected: "finishes what it runs, or gives it back, after SIGTERM; takes no more, and ends", run: termBusy,
	},
	{
		name: "term-cut", rules: "W8 W10", expected: "drains after SIGTERM also on a new stream, if it loses the first one", only: []way{stream}, run: termCut,
	},
}

// several is how many quick tasks are done in a row.
const several = 10

func work(r *rig) error {
	r.launch()
	var tasks []string
	for range several {
		task, err := r.submit(r.cfg.Quick)
		if err != nil {
			return err
		}
		tasks = append(tasks, task)
	}
	for _, task := range tasks {
		if _, err := r.committedFirst(task); err != nil {
			return err
		}
	}
	long, err := r.submit(r.cfg.Long)
	if err != nil {
		return err
	}
	a, err := r.executing(long)
	if err != nil {
		return err
	}
	w, err := r.committedFirst(long)
	if err != nil {
		return err
	}
	if took := w.at.Sub(a.granted); took < MinLong {
		return wrong("the long task took %v; the payload for it must be one that takes %v or more", took.Round(10*time.Millisecond), MinLong)
	}
	if err := r.quiet(a, r.rec.toldOf(w), "its outcome was COMMITTED"); err != nil {
		return err
	}
	return r.once()
}

// committedFirst is committed for a task that must be COMPLETED in its first attempt.
func (r *rig) committedFirst(task string) (*word, error) {
	w, err := r.decided(task, func(a *attempt) bool { return a.number > 1 })
	switch {
	case err != nil:
		return nil, err
	case w == nil || w.attempt.number > 1:
		return nil, wrong("it lost its lease on %s: there is a second attempt", task)
	case w.kind != complete:
		return nil, wrong("it reported %v, and no success", w)
	}
	return w, nil
}

// once checks that no outcome was said twice.
func (r *rig) once() (err error) {
	r.rec.look(func() {
		for _, a := range r.rec.attempts {
			if n := len(a.outcomes()); n > 1 {
				err = wrong("it sent %d outcomes of %v; one was heard and answered", n, a)
			}
		}
	})
	return err
}

func failure(r *rig) error {
	r.launch()
	task, err := r.submit(*r.cfg.Failing, func(s *lessorv1.TaskSpec) { s.RetryPolicy.MaxAttempts = 1 })
	if err != nil {
		return err
	}
	w, err := r.committed(task)
	switch {
	case err != nil:
		return err
	case w.kind != fail:
		return wrong("it reported %v, and no failure", w)
	case w.category == "" || w.category == "UNSPECIFIED":
		return wrong("its failure has no category, so the coordinator cannot know whether another attempt may help")
	}
	if err := r.quiet(w.attempt, r.rec.toldOf(w), "its outcome was COMMITTED"); err != nil {
		return err
	}
	if err := r.once(); err != nil {
		return err
	}
	return r.worksOn()
}

// first returns what gives the first n outcomes a fate, and all else another.
func first(n int32, is fate) func(*word) fate {
	var seen atomic.Int32
	return func(w *word) fate {
		if w != nil && w.kind.outcome() && seen.Add(1) <= n {
			return is
		}
		return pass
	}
}

func grantLost(r *rig) error {
	var lost atomic.Bool
	r.set(faults{grant: func() fate {
		if lost.CompareAndSwap(false, true) {
			return lose
		}
		return pass
	}})
	r.launch()
	task, err := r.submit(r.cfg.Quick, living(time.Minute))
	if err != nil {
		return err
	}
	if _, err := r.committedFirst(task); err != nil {
		if f, ok := errors.AsType[finding](err); ok {
			return wrong("after the answer with its first task was lost: %s", f)
		}
		return err
	}
	return nil
}

func verdictLost(r *rig) error { return r.repeats(lose) }

func itemError(r *rig) error { return r.repeats(mask) }

// repeats checks that the worker repeats its report, unchanged, after the verdict had the fate, and is quiet then.
func (r *rig) repeats(after fate) error {
	r.set(faults{tell: first(1, after)})
	r.launch()
	task, err := r.submit(r.cfg.Quick, living(time.Minute))
	if err != nil {
		return err
	}
	w, err := r.committedFirst(task)
	if changed := r.unchanged(task); changed != nil {
		return changed
	}
	if f, ok := errors.AsType[finding](err); ok {
		return wrong("after a report that got no answer: %s", f)
	}
	if err != nil {
		return err
	}
	if err := r.quiet(w.attempt, time.Now(), "its outcome was COMMITTED"); err != nil {
		return err
	}
	return r.worksOn()
}

// unchanged checks that all outcomes that the worker said of an attempt of a task are the same.
func (r *rig) unchanged(task string) (err error) {
	r.rec.look(func() {
		for _, a := range r.rec.of(task) {
			all := a.outcomes()
			for _, o := range all {
				if o.kind != all[0].kind || o.content != all[0].content {
					err = wrong("it repeated its report of %v with other content", a)
				}
			}
		}
	})
	return err
}

// unheardFor is how long nobody hears reports.
const unheardFor = 1500 * time.Millisecond

func noVerdict(r *rig) error {
	var began atomic.Pointer[time.Time]
	r.set(faults{hear: func(w *word) fate {
		if !w.kind.outcome() {
			return pass
		}
		began.CompareAndSwap(nil, &w.at)
		if w.at.Sub(*began.Load()) < unheardFor {
			return refuse
		}
		return pass
	}})
	r.launch()
	task, err := r.submit(r.cfg.Quick, living(time.Minute))
	if err != nil {
		return err
	}
	w, err := r.committedFirst(task)
	if err != nil {
		return err
	}
	if err := r.unchanged(task); err != nil {
		return err
	}
	var tries int
	r.rec.look(func() { tries = len(w.attempt.outcomes()) - 1 })
	if most := int(unheardFor.Seconds() * maxTries); tries > most {
		return wrong("it tried %d times within %v; it must wait between tries", tries, unheardFor)
	}
	return r.worksOn()
}

func rejected(r *rig) error {
	r.set(faults{hear: first(1, spoil)})
	r.launch()
	task, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	var a *attempt
	if err := r.await("it reported no outcome that could be REJECTED", func() bool {
		for _, of := range r.rec.of(task) {
			if len(of.outcomes()) > 0 && of.outcomes()[0].verdict == lessorv1.Verdict_VERDICT_REJECTED {
				a = of
			}
		}
		return a != nil
	}); err != nil {
		return err
	}
	return r.notAgain(a, "was REJECTED")
}

// notAgain checks that the first outcome of an attempt, which was refused, is not repeated, and that the worker takes other work.
func (r *rig) notAgain(a *attempt, was string) error {
	if err := r.pause(settle); err != nil {
		return err
	}
	again := false
	r.rec.look(func() {
		all := a.outcomes()
		again = slices.ContainsFunc(all[1:], func(w *word) bool { return w.kind == all[0].kind && w.content == all[0].content })
	})
	if again {
		return wrong("it repeated its report of %v, which %s", a, was)
	}
	return r.worksOn()
}

// cancelGrace is less than what is left of the long task. A worker may also finish within it (K6, T7).
const cancelGrace = MinLong - 1500*time.Millisecond

func cancel(r *rig) error {
	r.launch()
	task, err := r.submit(r.cfg.Long, func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(cancelGrace) })
	if err != nil {
		return err
	}
	if _, err := r.executing(task); err != nil {
		return err
	}
	if err := r.cancelTask(task); err != nil {
		return err
	}
	w, err := r.decided(task, func(a *attempt) bool { return !a.lost.IsZero() })
	switch {
	case err != nil:
		return err
	case w == nil:
		return wrong("it did not stop within the cancel grace of %v", cancelGrace)
	case w.kind == fail && w.category != "CANCELLED":
		return wrong("it reported %v; the category of what a cancel has stopped is CANCELLED", w)
	}
	return r.worksOn()
}

func cancelEarly(r *rig) error {
	var early atomic.Pointer[attempt]
	var failed error
	r.set(faults{hear: func(w *word) fate {
		if w.kind == start && early.CompareAndSwap(nil, w.attempt) {
			failed = r.cancelTask(w.attempt.task)
		}
		return pass
	}})
	r.launch()
	if _, err := r.submit(r.cfg.Long); err != nil {
		return err
	}
	var a *attempt
	if err := r.await("it reported no start", func() bool {
		a = early.Load()
		return a != nil && !a.lost.IsZero()
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if err := r.quiet(a, r.rec.gone(a), "it was told not to begin"); err != nil {
		return err
	}
	return r.worksOn()
}

func leaseLost(r *rig) error {
	r.launch()
	task, err := r.submit(r.cfg.Long)
	if err != nil {
		return err
	}
	a, err := r.executing(task)
	if err != nil {
		return err
	}
	if err := r.remove(task); err != nil {
		return err
	}
	if err := r.await("it did not ask about its lease, which was lost", func() bool { return !a.lost.IsZero() }); err != nil {
		return err
	}
	if err := r.pause(MinLong); err != nil {
		return err
	}
	if err := r.quiet(a, r.rec.gone(a), "it was told that its lease is lost"); err != nil {
		return err
	}
	return r.worksOn()
}

func resultLate(r *rig) error {
	var removed atomic.Pointer[attempt]
	var failed error
	r.set(faults{hear: func(w *word) fate {
		if w.kind.outcome() && removed.CompareAndSwap(nil, w.attempt) {
			failed = r.remove(w.attempt.task)
		}
		return pass
	}})
	r.launch()
	if _, err := r.submit(r.cfg.Quick); err != nil {
		return err
	}
	var a *attempt
	if err := r.await("it reported no outcome", func() bool {
		if a = removed.Load(); a == nil {
			return false
		}
		all := a.outcomes()
		return len(all) > 0 && all[0].verdict == lessorv1.Verdict_VERDICT_CANCELLED
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return r.notAgain(a, "was CANCELLED")
}

func frozen(r *rig) error {
	r.launch()
	task, err := r.submit(r.cfg.Long)
	if err != nil {
		return err
	}
	a, err := r.executing(task)
	if err != nil {
		return err
	}
	r.worker.signal(syscall.SIGSTOP)
	err = r.pause(ttl + time.Second)
	r.worker.signal(syscall.SIGCONT)
	if err != nil {
		return err
	}
	w, err := r.committed(task)
	if err != nil {
		return err
	}
	if w.attempt == a {
		return wrong("its lease did not expire while its process group was stopped: something outside of that renewed it")
	}
	if w.kind != complete {
		return wrong("it reported %v of the next attempt, and no success", w)
	}
	var again bool
	r.rec.look(func() { // what had no verdict may be said again
		all := a.outcomes()
		again = len(all) > 1 && all[0].verdict != lessorv1.Verdict_VERDICT_UNSPECIFIED && all[1].at.After(all[0].told)
	})
	if again {
		return wrong("it repeated its report of %v, whose lease was lost", a)
	}
	return nil
}

// interrupted runs a long task, does something to the worker's line meanwhile, and checks that the task is done in its first attempt, and that the worker
// goes on then.
func (r *rig) interrupted(by func() error) error {
	r.launch()
	task, err := r.submit(r.cfg.Long, living(r.cfg.patience()))
	if err != nil {
		return err
	}
	if _, err := r.executing(task); err != nil {
		return err
	}
	if err := by(); err != nil {
		return err
	}
	if _, err := r.committedFirst(task); err != nil {
		return err
	}
	return r.worksOn()
}

// awayFor is how long the network or the coordinator is away.
const awayFor = 1500 * time.Millisecond

// maxTries is how many connections or reports the worker may try in a second while nobody takes them.
const maxTries = 20

func networkDown(r *rig) error { return r.interrupted(r.downFor(awayFor, nil)) }

// downFor takes the line down for a while, in which between is called.
func (r *rig) downFor(d time.Duration, between func() error) func() error {
	return func() error {
		r.rec.note("(the network is down)")
		r.grpc.down()
		r.http.down()
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		err := r.pause(d)
		tries := r.grpc.up() + r.http.up()
		r.rec.note("(the network is up)")
		if most := int(d.Seconds() * maxTries); err == nil && tries > most {
			return wrong("it tried to connect %d times within %v", tries, d)
		}
		return err
	}
}

func stopped(r *rig) error {
	return r.interrupted(func() error {
		r.rec.note("(the coordinator stops)")
		if err := r.shutdown(); err != nil {
			return err
		}
		if err := r.pause(beat / 5); err != nil { // what it said last is still on its way
			return err
		}
		r.grpc.down() // a process that has ended listens no more
		r.http.down()
		if err := r.pause(awayFor / 2); err != nil {
			return err
		}
		defer func() { r.grpc.up(); r.http.up() }()
		return r.restart()
	})
}

func crashed(r *rig) error {
	return r.interrupted(r.downFor(awayFor/2, func() error {
		if err := r.shutdown(); err != nil { // nobody sees how
			return err
		}
		return r.restart()
	}))
}

func away(r *rig) error {
	const late = 3 * time.Second
	r.rec.note("(the network is down)")
	r.grpc.down()
	r.http.down()
	r.launch()
	if err := r.pause(late); err != nil {
		return err
	}
	if how := r.worker.ended(); how != "" {
		return wrong("it has ended (%s) instead of waiting for the coordinator", how)
	}
	tries := r.grpc.up() + r.http.up()
	r.rec.note("(the network is up)")
	if tries > int(late.Seconds()*maxTries) {
		return wrong("it tried to connect %d times within %v", tries, late)
	}
	return r.worksOn()
}

func busy(r *rig) error {
	const wait = 3 * time.Second
	until := atomic.Pointer[time.Time]{}
	r.set(faults{busy: func() time.Duration {
		now := time.Now()
		at := now.Add(wait)
		if !until.CompareAndSwap(nil, &at) {
			at = *until.Load()
		}
		if left := at.Sub(now); left > crossing {
			return left.Round(time.Second / 10)
		}
		return 0
	}})
	r.launch()
	if err := r.await("it did not ask for work", func() bool { return len(r.rec.asked) > 0 }); err != nil {
		return err
	}
	if err := r.pause(wait - 2*crossing); err != nil {
		return err
	}
	var again time.Duration // after the first
	r.rec.look(func() {
		for _, at := range r.rec.asked {
			if after := at.Sub(r.rec.asked[0]); again == 0 && after > crossing { // several threads may ask at first, each for itself
				again = after
			}
		}
	})
	if again > 0 {
		return wrong("it asked for work again after %v, and was told (Retry-After, RetryInfo, retry_after) to wait for %v", again.Round(10*time.Millisecond), wait)
	}
	return r.worksOn()
}

func dispatchTwice(r *rig) error {
	r.set(faults{twice: true})
	r.launch()
	if err := r.worksOn(); err != nil {
		return err
	}
	if err := r.pause(settle); err != nil {
		return err
	}
	return r.once()
}

func newer(r *rig) error {
	r.set(faults{distort: &distortion{newer: true}})
	return r.plain()
}

// plain checks that the worker does a long and a quick task in one attempt each.
func (r *rig) plain() error { return r.interrupted(func() error { return nil }) }

func clock(ahead time.Duration) func(*rig) error {
	return func(r *rig) error {
		r.set(faults{distort: &distortion{clock: ahead}})
		r.launch()
		task, err := r.submit(r.cfg.Long)
		if err != nil {
			return err
		}
		if _, err := r.committedFirst(task); err != nil {
			return err
		}
		return r.worksOn()
	}
}

func drain(r *rig) error {
	r.launch()
	task, err := r.submit(r.cfg.Long)
	if err != nil {
		return err
	}
	if _, err := r.executing(task); err != nil {
		return err
	}
	r.rec.note("(drain the worker)")
	list, err := r.workers.ListWorkers(r.ctx, &lessorv1.ListWorkersRequest{})
	if err != nil {
		return err
	}
	for _, w := range list.GetWorkers() {
		if _, err := r.workers.DrainWorker(r.ctx, &lessorv1.DrainWorkerRequest{WorkerId: w.GetWorkerId(), Reason: "checked"}); err != nil {
			return err
		}
	}
	next, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	if _, err := r.committedFirst(task); err != nil {
		return err
	}
	if err := r.pause(settle); err != nil {
		return err
	}
	return r.untouched(next, "it was drained")
}

// untouched checks that a task still waits.
func (r *rig) untouched(task, since string) error {
	t, err := r.state(task)
	if err != nil {
		return err
	}
	if t.GetState() != lessorv1.TaskState_TASK_STATE_READY {
		return wrong("it took a task after %s; the task is %s", since, strings.TrimPrefix(t.GetState().String(), "TASK_STATE_"))
	}
	return nil
}

func termIdle(r *rig) error {
	r.launch()
	if err := r.worksOn(); err != nil {
		return err
	}
	r.worker.signal(syscall.SIGTERM)
	return r.exits()
}

func termBusy(r *rig) error { return r.termWhile(func() {}) }

func termCut(r *rig) error { return r.termWhile(r.cut) }

// termWhile sends SIGTERM to the worker while it executes a task, and then does something.
func (r *rig) termWhile(then func()) error {
	r.launch()
	task, err := r.submit(r.cfg.Long, living(time.Minute))
	if err != nil {
		return err
	}
	if _, err := r.executing(task); err != nil {
		return err
	}
	r.worker.signal(syscall.SIGTERM)
	if err := r.pause(crossing); err != nil {
		return err
	}
	then()
	next, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	if err := r.exits(); err != nil {
		return err
	}
	if err := r.untouched(next, "SIGTERM"); err != nil {
		return err
	}
	t, err := r.state(task)
	if err != nil {
		return err
	}
	switch t.GetState() {
	case lessorv1.TaskState_TASK_STATE_LEASED, lessorv1.TaskState_TASK_STATE_RUNNING:
		return wrong("it ended (%v) without a word about %s, which nobody else can have before the lease runs out", r.worker.state, task)
	}
	return nil
}
