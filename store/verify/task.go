package verify

import (
	"cmp"
	"errors"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// checkTasks checks each task and the records that belong to it.
func (v *verifier) checkTasks() error {
	return v.eachTask(store.Spec, func(id lease.TaskID, key []byte) error {
		v.sum.Tasks++
		t, err := v.task(id)
		if err != nil {
			v.unread[id.Space]++
		}
		if corrupt, ok := errors.AsType[*store.CorruptError](err); ok && corrupt.Keyspace == store.Task &&
			!v.has(store.Task, key) {
			v.addFinding(store.Spec, key, "the state of its task is missing")
			return nil
		}
		if err != nil {
			return ignoreCorrupt(err)
		}
		v.checkTask(t, key)
		v.checkEntries(t, key)
		v.recount(t)
		return v.checkInRun(t, key)
	})
}

// checkTask checks a task and the records that belong to it, without its index entries and its
// ledger.
func (v *verifier) checkTask(t *lease.Task, key []byte) {
	v.checkState(t, key)
	v.checkWorkspace(t, key)
	v.checkLease(t, key)
	v.checkOutcome(t, key)
	v.checkHistory(t, key)
	v.checkBlobs(t, key)
}

// TaskProblem returns the first problem that Store would find with one task and the records that
// belong to it, without its index entries; empty if there is none. space is the workspace of the
// task, and epoch that of the store; 0: it is not known.
func TaskProblem(r store.Reader, t *lease.Task, space records.Space, epoch uint32) (problem string, err error) {
	v := &verifier{r: r, spaces: map[uint32]*records.Space{space.Number: &space}, sum: Summary{Epoch: epoch}}
	v.report = func(f Finding) { problem = cmp.Or(problem, f.Keyspace.String()+": "+f.Problem) }
	key := store.AppendTaskKey(nil, t.ID)
	v.checkTask(t, key)
	err = v.checkLedgersIn(key, store.PrefixEnd(key))
	return problem, err
}

func (v *verifier) checkState(t *lease.Task, key []byte) {
	require := func(ok bool, format string, args ...any) { v.require(ok, store.Task, key, format, args...) }
	final := t.Rest.Final()
	require(final || t.Rest == lease.Ready || t.Rest == lease.Scheduled, "it rests in state %v", t.Rest)
	require(final == (t.FinishedAt != 0), "it is %v and finished at %d", t.State(), t.FinishedAt)
	require(t.Lease == nil || t.Rest == lease.Ready, "it has a live lease, but its state without it is %v", t.Rest)
	require(!t.Parked || t.Rest == lease.Ready && t.Lease == nil && t.Spec.ConcurrencyKey != "",
		"it is parked, but it is %v with concurrency key %q",
		t.State(), t.Spec.ConcurrencyKey)
	require(t.Rest != lease.Scheduled || t.RunAt != 0 || t.RetryAt != 0, "it is SCHEDULED without a time")
	require(t.Round > 0, "it is in round 0")
}

// checkWorkspace checks the workspace of the task, which is the one that the id of the task names.
func (v *verifier) checkWorkspace(t *lease.Task, key []byte) {
	s := v.spaces[t.ID.Space]
	if s == nil {
		v.require(v.mayBeSpace(t.ID.Space), store.Task, key, "its workspace does not exist")
		return
	}
	v.require(s.Tenant == t.Tenant && s.Workspace == t.Workspace, store.Spec, key,
		"it says it is of tenant %q, workspace %q; its id is of %q, %q",
		t.Tenant, t.Workspace, s.Tenant, s.Workspace)
	// If a sequence number were used again, an old lease could act on a new task (A2).
	v.require(t.ID.Seq < s.NextSeq && t.Place < s.NextSeq, store.Space,
		store.AppendTenantKey(nil, s.Tenant, s.Workspace),
		"the next number is %d, but a task has number %d and place %d (A2)", s.NextSeq, t.ID.Seq, t.Place)
}

// checkLease checks the live lease and the last one (A1, A2). There is at most one live lease,
// because its key is the id of the task.
func (v *verifier) checkLease(t *lease.Task, key []byte) {
	v.require(t.Last.Attempt == t.Attempts, store.Task, key,
		"%d attempts have ended, and the last one of them is %d (A2)", t.Attempts, t.Last.Attempt)
	l := t.Lease
	if l == nil {
		return
	}
	v.sum.Leases++
	v.require(l.Attempt == t.Attempts+1, store.Lease, key, "attempt %d is live after %d have ended (A1, A2)",
		l.Attempt, t.Attempts)
	known := v.sum.Epoch > 0 // otherwise v.checkMeta has a finding
	v.require(l.Epoch > 0 && (l.Epoch <= v.sum.Epoch || !known), store.Lease, key,
		"it was granted in epoch %d, and the store is in %d (A2)", l.Epoch, v.sum.Epoch)
	v.require(l.ExpiresAt > 0, store.Lease, key, "it never expires (A3)")
}

// checkOutcome checks the report that ended the round (A5).
func (v *verifier) checkOutcome(t *lease.Task, key []byte) {
	require := func(ok bool, format string, args ...any) { v.require(ok, store.Task, key, format, args...) }
	require(t.Rest != lease.Completed || t.Outcome != nil, "it is COMPLETED without an outcome (A5)")
	if o := t.Outcome; o != nil {
		require(o.State == t.Rest && t.Lease == nil, "its outcome says %v, and it is %v (A5)", o.State, t.State())
		require(o.Attempt > 0 && o.Attempt <= t.Attempts, "its outcome is of attempt %d of %d (A5)",
			o.Attempt, t.Attempts)
	}
	v.checkOutput(t, key)
}

// checkOutput checks that the result exists if the task is completed. An empty result need not have
// a record.
func (v *verifier) checkOutput(t *lease.Task, key []byte) {
	completed, has := t.Rest == lease.Completed, v.has(store.Output, key)
	empty := t.Outcome != nil && t.Outcome.EmptyComplete()
	v.require(completed == has || completed && empty, store.Output, key,
		"the task is %v; there is an output: %t", t.State(), has)
}

// checkHistory checks the order of the events, and that each round has at most one outcome (A2, A5,
// T10).
func (v *verifier) checkHistory(t *lease.Task, key []byte) {
	require := func(ok bool, format string, args ...any) { v.require(ok, store.Task, key, format, args...) }
	require(len(t.History) <= lease.MaxHistory, "it keeps %d events (T10)", len(t.History))
	var seq uint64
	var granted uint32
	outcomes := 0
	for _, e := range t.Events() {
		require(e.Seq >= seq, "event %d follows event %d (T10)", e.Seq, seq)
		seq = e.Seq
		require(e.Attempt <= t.Attempt(), "event %d is of attempt %d of %d (A2)", e.Seq, e.Attempt, t.Attempt())
		switch {
		case e.Type == lease.EventGranted:
			require(e.Attempt > granted, "attempt %d was granted after attempt %d (A2)", e.Attempt, granted)
			granted = e.Attempt
		case e.Type == lease.EventRetried:
			outcomes = 0
		case endsRound(e):
			outcomes++
			require(outcomes == 1, "event %d is the second outcome of a round (A5)", e.Seq)
		}
	}
}

// endsRound reports whether an event is the outcome of a round.
func endsRound(e lease.Event) bool {
	switch e.Type {
	case lease.EventCompleted, lease.EventAdopted:
		return true
	case lease.EventFailed, lease.EventReleased:
		return e.State.Final()
	}
	return false
}

// checkBlobs checks that the checkpoint, the failure and the discarded results exist exactly if the
// task says so.
func (v *verifier) checkBlobs(t *lease.Task, key []byte) {
	v.require(t.HasCheckpoint() == v.has(store.Checkpoint, key), store.Checkpoint, key,
		"the task says that it has one: %t; one is stored: %t",
		t.HasCheckpoint(), v.has(store.Checkpoint, key))
	v.require(t.HasFailure() == v.has(store.Failure, key), store.Failure, key,
		"the task says that it has one: %t; one is stored: %t",
		t.HasFailure(), v.has(store.Failure, key))
	for i := range t.Discarded {
		kept := store.AppendAttemptKey(nil, t.ID, t.Discarded[i].Attempt)
		v.require(v.has(store.Discarded, kept), store.Discarded, kept,
			"the task keeps this result, but it does not exist (V15)")
	}
}

// checkEntries checks that the task is in all indexes in which it has to be.
func (v *verifier) checkEntries(t *lease.Task, key []byte) {
	if e, ok := records.Index(t); ok {
		v.require(v.has(e.Keyspace, e.Key()), store.Task, key,
			"it is %v, but missing from the index %v under %x", t.State(), e.Keyspace, e.Key())
	}
	for _, k := range records.WaitingTimers(t) {
		_, logged := v.logged[k]
		timer := k.Append(nil)
		v.require(logged || v.damagedLog || v.has(store.Timer, timer), store.Task, key,
			"it is %v, but missing from the indexes timer, under %x, and timerlog",
			t.State(), timer)
	}
	if host := records.MountedKey(t); host != nil {
		v.require(v.has(store.Mounted, host), store.Task, key,
			"it is mounted on %q, but missing from the index mounted", t.Spec.Trace.Host)
	}
	if name := t.Spec.IdempotencyKey; name != "" {
		id, _, found, err := v.byKey.Find(v.r, t.ID.Space, name)
		v.require(err != nil || found && id == t.ID || !found && v.damagedKeys, store.Task, key,
			"its idempotency key %q does not lead to it (T1)", name)
	}
}

// checkInRun checks that the task is in Run if it belongs to a run and is not one of the older
// tasks. In a store of an older format, as a backup may have, all tasks are.
func (v *verifier) checkInRun(t *lease.Task, key []byte) error {
	run := records.RunKey(t)
	if run == nil || v.has(store.Run, run) {
		return nil
	}
	if format, err := store.ReadFormat(v.r); err != nil || format < store.FirstWithRun {
		return ignoreCorrupt(err)
	}
	older, err := records.OlderTasks(v.r, t.ID.Space)
	v.require(err != nil || t.ID.Seq <= older, store.Task, key,
		"it is of run %q, but missing from the index run", t.Spec.RunID)
	return ignoreCorrupt(err)
}
