package lease_test

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// watcher checks, on each change of a task, what must be true after any command: A1 to A5, T2, T10,
// and that no version of a task is ever modified. It does not know the rules that lead to the
// change.
type watcher struct {
	current map[lease.TaskID]frozen
	older   [64]frozen // some versions that have been replaced since
	next    int

	ended    map[leaseName]lease.Reason // A3, A4: the leases that have ended, with the cause
	outcomes map[roundOf]roundOutcome   // A5: the outcome of each round that has one

	// What the batch that is not committed yet has added to ended and outcomes.
	newEnded    []leaseName
	newOutcomes []roundOf
}

// leaseName identifies a lease.
type leaseName struct {
	task    lease.TaskID
	attempt uint32
	nonce   uint64
}

type roundOf struct {
	task  lease.TaskID
	round uint32
}

type roundOutcome struct {
	outcome lease.Committed
	state   lease.State
}

func newWatcher() *watcher {
	return &watcher{current: map[lease.TaskID]frozen{}, ended: map[leaseName]lease.Reason{}, outcomes: map[roundOf]roundOutcome{}}
}

// committed is called when the batch is durable. From then on a crash no longer removes what the
// batch has added.
func (w *watcher) committed() { w.newEnded, w.newOutcomes = w.newEnded[:0], w.newOutcomes[:0] }

// restart removes what the batch that a crash has lost had added, and replaces the current versions
// by those of the tasks on the disk.
func (w *watcher) restart(tasks map[lease.TaskID]*lease.Task) {
	for _, h := range w.newEnded {
		delete(w.ended, h)
	}
	for _, r := range w.newOutcomes {
		delete(w.outcomes, r)
	}
	w.committed()
	clear(w.current)
	for id, t := range tasks {
		w.current[id] = frozen{version: t}
	}
}

// forget drops all leases and outcomes. A restore calls it, because the leases and outcomes since
// the backup then never existed. The watcher does not know which of them are older than the backup,
// so it drops all.
func (w *watcher) forget() {
	clear(w.ended)
	clear(w.outcomes)
	w.committed()
}

// check checks one change before it is stored. If thorough is set, it also copies the new version,
// so that a later check can find out whether somebody modified the version. It would be too slow to
// copy each version.
func (w *watcher) check(c *lease.Change, thorough bool) error {
	id := taskOf(c)
	was := w.current[id]
	if c.Old != was.version {
		return fmt.Errorf("Change.Old is %p, want the newest version of the task, %p", c.Old, was.version)
	}
	if was.deep {
		if err := was.intact(); err != nil {
			return fmt.Errorf("the version in Change.Old was modified: %w", err)
		}
		w.older[w.next%len(w.older)] = was
		w.next++
	}
	if thorough {
		if err := w.older[(w.next*7)%len(w.older)].intact(); err != nil {
			return fmt.Errorf("an older version was modified: %w", err)
		}
	}
	if err := w.checkLease(c); err != nil {
		return err
	}
	if c.New == nil {
		delete(w.current, id)
		return nil
	}
	w.current[id] = frozen{version: c.New}
	if thorough {
		w.current[id] = freeze(c.New)
	}
	if thorough && c.Old != nil && !c.Row && !reflect.DeepEqual(row(c.Old), row(c.New)) {
		return fmt.Errorf("Change.Row is not set, but more than the lease changed")
	}
	if err := w.checkOutcome(c.New); err != nil {
		return err
	}
	if err := checkPlace(c.Old, c.New); err != nil {
		return err
	}
	return checkHistory(c.Old, c.New, thorough)
}

// checkLease checks A1 to A4.
func (w *watcher) checkLease(c *lease.Change) error {
	before, after := liveLease(c.Old), liveLease(c.New)
	id := taskOf(c)
	switch {
	case before != nil && after != nil && before.Attempt == after.Attempt:
		return checkRenewal(before, after)
	case before != nil:
		if err := w.leaseEnded(c, before); err != nil {
			return err
		}
	case c.Lost != nil:
		return fmt.Errorf("Change.Lost is set, but the task had no live lease")
	}
	if after == nil {
		return nil
	}
	name := leaseName{id, after.Attempt, after.Nonce}
	if cause, over := w.ended[name]; over {
		return fmt.Errorf("A4: a lease is live again that had ended with %v", cause)
	}
	if after.Attempt != c.Old.Attempt()+1 {
		return fmt.Errorf("A2: attempt %d follows attempt %d, want the next number", after.Attempt, c.Old.Attempt())
	}
	return nil
}

func liveLease(t *lease.Task) *lease.Lease {
	if t == nil {
		return nil
	}
	return t.Lease
}

// checkRenewal checks A1 and A3 for a lease that is live before and after the change.
func checkRenewal(before, after *lease.Lease) error {
	switch {
	case after.Nonce != before.Nonce:
		return fmt.Errorf("A1: two leases have attempt %d", after.Attempt)
	case after.ExpiresAt < before.ExpiresAt:
		return fmt.Errorf("A3: expires_at went back from %d to %d", before.ExpiresAt, after.ExpiresAt)
	case (after.AttemptBy == 0) != (before.AttemptBy == 0), after.AttemptBy != 0 && after.AttemptBy-before.AttemptBy != max(after.Stalled-before.Stalled, 0):
		return fmt.Errorf("A3, A8: attempt_timeout moved from %d to %d", before.AttemptBy, after.AttemptBy)
	}
	return nil
}

// leaseEnded records the end of a lease with its cause, for checkLease (A4) and checkOutcome (A3).
// It checks that Change.Lost and Change.LostCause name the lease and the cause, because the caller
// sends them to the holder. They must be empty if the holder ended the lease itself: by a report,
// or by a first Start after a cancel (T7).
func (w *watcher) leaseEnded(c *lease.Change, l *lease.Lease) error {
	cause := c.LostCause
	if c.New != nil && c.New.Last.Attempt == l.Attempt {
		cause = c.New.Last.Cause
	}
	endedByHolder := cause == lease.Reported || cause == lease.TaskCancelled
	told := c.Lost != nil && c.Lost.Attempt == l.Attempt && c.LostCause == cause
	if told == endedByHolder {
		return fmt.Errorf("the lease of attempt %d ended %v; Change.Lost names it with this cause: %v, want %v",
			l.Attempt, cause, told, !endedByHolder)
	}
	name := leaseName{taskOf(c), l.Attempt, l.Nonce}
	w.ended[name] = cause
	w.newEnded = append(w.newEnded, name)
	return nil
}

// checkOutcome checks that a round keeps its first outcome (A5), and that the cause of the lease
// that ended last stays the same (A3).
func (w *watcher) checkOutcome(t *lease.Task) error {
	last := leaseName{t.ID, t.Last.Attempt, t.Last.Nonce}
	if cause, known := w.ended[last]; known && cause != t.Last.Cause {
		return fmt.Errorf("A3: the cause with which the last lease ended changed from %v to %v", cause, t.Last.Cause)
	}
	key := roundOf{t.ID, t.Round}
	first, had := w.outcomes[key]
	switch {
	case t.Outcome == nil && had:
		return fmt.Errorf("A5: the outcome of round %d is gone", t.Round)
	case t.Outcome == nil:
		return nil
	case !t.State().Final():
		return fmt.Errorf("A5: the task has an outcome and is %v, want a final state", t.State())
	case had && first != roundOutcome{*t.Outcome, t.State()}:
		return fmt.Errorf("A5: the outcome of round %d changed from %+v to %+v",
			t.Round, first, roundOutcome{*t.Outcome, t.State()})
	case !had:
		w.newOutcomes = append(w.newOutcomes, key)
	}
	w.outcomes[key] = roundOutcome{*t.Outcome, t.State()}
	return nil
}

// checkPlace checks T2: a task keeps its place in line through all attempts of a round, and a new
// round has a place behind the old one.
func checkPlace(before, after *lease.Task) error {
	switch {
	case after.State() == lease.Ready && after.Place == 0:
		return fmt.Errorf("T2: a READY task has no place in line")
	case before == nil || before.Place == 0:
		return nil
	case before.Round == after.Round && after.Place != before.Place:
		return fmt.Errorf("T2: the place changed from %d to %d within a round, want it unchanged", before.Place, after.Place)
	case before.Round != after.Round && after.Place <= before.Place:
		return fmt.Errorf("T2: a new round begins at place %d, want it behind the old place, %d", after.Place, before.Place)
	}
	return nil
}

// checkHistory checks T10: the history is bounded, no event is lost without being counted, and the
// events are in the order of their sequences.
func checkHistory(before, after *lease.Task, thorough bool) error {
	if kept := eventCount(after) - int(after.Dropped); kept > lease.MaxHistory {
		return fmt.Errorf("T10: the history has %d events, want at most %d", kept, lease.MaxHistory)
	}
	if before != nil && eventCount(after) < eventCount(before) {
		return fmt.Errorf("T10: the task had %d events, those dropped included, and now has %d",
			eventCount(before), eventCount(after))
	}
	if !thorough {
		return nil
	}
	events := after.Events()
	if !slices.IsSortedFunc(events, func(a, b lease.Event) int { return int(int64(a.Seq) - int64(b.Seq)) }) {
		return fmt.Errorf("T10: the events are out of order")
	}
	if after.LastSeq() != max(events[len(events)-1].Seq, after.ID.Seq) {
		return fmt.Errorf("T10: the last sequence is %d, want %d", after.LastSeq(), max(events[len(events)-1].Seq, after.ID.Seq))
	}
	return nil
}

// eventCount returns how many events the task has had, those that were dropped included.
func eventCount(t *lease.Task) int {
	n := int(t.Dropped) + len(t.History)
	if t.Lease != nil {
		n += len(t.Lease.Events)
	}
	return n
}

// row returns a copy of the task without its lease and its history.
func row(t *lease.Task) lease.Task {
	c := *t
	c.Lease, c.History = nil, nil
	return c
}

// frozen is a version of a task. If deep is set, it also has a copy of the version's content, made
// when the rules returned the version.
type frozen struct {
	version *lease.Task
	deep    bool
	task    lease.Task
	history []lease.Event
	lease   *lease.Lease
	events  []lease.Event
}

func freeze(t *lease.Task) frozen {
	f := frozen{version: t, deep: true, task: row(t), history: slices.Clone(t.History)}
	if t.Cancel != nil {
		c := *t.Cancel
		f.task.Cancel = &c
	}
	if t.Outcome != nil {
		o := *t.Outcome
		f.task.Outcome = &o
	}
	if t.Lease != nil {
		l := *t.Lease
		f.lease, f.events, l.Events = &l, slices.Clone(l.Events), nil
	}
	return f
}

// intact returns an error that says what was modified since freeze. If there is no copy to compare
// with, it returns nil.
func (f frozen) intact() error {
	t := f.version
	switch {
	case !f.deep:
		return nil
	case !reflect.DeepEqual(row(t), f.task):
		return fmt.Errorf("%+v became %+v", f.task, row(t))
	case !slices.Equal(t.History, f.history):
		return fmt.Errorf("its history changed")
	case f.lease == nil:
		return nil
	}
	l := *t.Lease
	l.Events = nil
	if !reflect.DeepEqual(l, *f.lease) || !slices.Equal(t.Lease.Events, f.events) {
		return fmt.Errorf("its lease changed")
	}
	return nil
}
