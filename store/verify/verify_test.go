package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
	"github.com/lessor-dev/lessor/store/verify"
)

const (
	space   = 7
	nextSeq = 100
)

func id(seq uint64) lease.TaskID { return lease.TaskID{Space: space, Seq: seq} }

func key(seq uint64) []byte { return store.AppendTaskKey(nil, id(seq)) }

// The sequences of the tasks of the sound store.
const (
	waiting = iota + 1
	leased
	done
	parked
	delayed
	retried
	failed
	lostLease
	backedOff
	deleted
)

// task returns a READY task; changes modifies it to make the other tasks.
func task(seq uint64) *lease.Task {
	return &lease.Task{
		ID: id(seq), Tenant: "acme", Workspace: "main", Round: 1, Rest: lease.Ready, Place: seq, CreatedAt: 1,
		Spec: &lease.Spec{Queue: "q", Type: "t", StartTimeout: 5, Retention: 7, Payload: []byte("payload")},
	}
}

// changes returns the last change of each task of the sound store. Old is nil for a task that has
// not changed since its submit.
func changes() []*lease.Change {
	w := task(waiting)
	w.Spec.IdempotencyKey, w.Spec.RunID, w.Spec.Trace = "name", "r", &lease.Trace{Host: "h"}

	l := task(leased)
	l.Attempts, l.Failures, l.ErrorCategory, l.CheckpointBits = 2, 1, lease.UserCode, 4
	l.Last = lease.Ended{Attempt: 2, Cause: lease.Reported}
	l.History = []lease.Event{
		{Seq: 20, Type: lease.EventGranted, Attempt: 1},
		{Seq: 21, Type: lease.EventFailed, Attempt: 1, State: lease.Ready},
	}
	l.Discarded = []lease.Discarded{{Attempt: 1}}
	l.Lease = &lease.Lease{
		Epoch: 3, Attempt: 3, ExpiresAt: 9,
		Events: []lease.Event{{Seq: 22, Type: lease.EventGranted, Attempt: 3}},
	}

	d := task(done)
	d.Rest, d.FinishedAt, d.Attempts, d.Last.Attempt = lease.Completed, 5, 1, 1
	d.Outcome = &lease.Committed{Attempt: 1, Kind: lease.KindComplete, State: lease.Completed}
	d.History = []lease.Event{
		{Seq: 30, Type: lease.EventGranted, Attempt: 1},
		{Seq: 31, Type: lease.EventCompleted, Attempt: 1, State: lease.Completed},
	}

	p := task(parked)
	p.Spec.ConcurrencyKey, p.Parked = "k", true

	s := task(delayed)
	s.Rest, s.RunAt, s.Place = lease.Scheduled, 100, 0

	r := task(retried)
	r.Round, r.Attempts, r.Last.Attempt = 3, 2, 2
	r.History = []lease.Event{
		{Seq: 40, Type: lease.EventGranted, Attempt: 1},
		{Seq: 41, Type: lease.EventFailed, Attempt: 1, State: lease.Failed},
		{Seq: 42, Type: lease.EventRetried},
		{Seq: 43, Type: lease.EventGranted, Attempt: 2},
		{Seq: 44, Type: lease.EventFailed, Attempt: 2, State: lease.Failed},
		{Seq: 45, Type: lease.EventRetried},
	}

	f := task(failed)
	f.Rest, f.FinishedAt = lease.Failed, 5

	again := task(lostLease)
	again.Attempts, again.Losses, again.Last = 1, 1, lease.Ended{Attempt: 1, Cause: lease.LeaseExpired}

	back := task(backedOff)
	back.Rest, back.RetryAt, back.Attempts, back.Failures, back.Last.Attempt = lease.Scheduled, 100, 1, 1, 1

	gone := task(deleted)
	gone.Attempts = 1

	report := func(attempt uint32) lease.Committed {
		return lease.Committed{Attempt: attempt, Kind: lease.KindFail, State: lease.Failed}
	}
	return []*lease.Change{
		{New: w},
		{
			Old: task(leased), New: l, Failure: &lease.Failure{Message: "boom"}, Checkpoint: []byte("half"),
			Kept:   []lease.Kept{{Attempt: 1, Result: &lease.Result{}}},
			Ledger: []lease.Committed{{Attempt: 1, Kind: lease.KindFail, State: lease.Ready}},
		},
		{Old: task(done), New: d, Result: &lease.Result{Output: []byte("out")}},
		{New: p},
		{New: s},
		{Old: task(retried), New: r, Ledger: []lease.Committed{report(1), report(2)}},
		{Old: task(failed), New: f},
		{Old: task(lostLease), New: again},
		{Old: task(backedOff), New: back},
		{Old: gone, ForgetAt: 1000, Ledger: []lease.Committed{report(1)}},
	}
}

// sound returns a store without a fault, with records of every keyspace that is in use.
func sound(t *testing.T) *memstore.Store {
	t.Helper()
	timers := map[bool][]store.TimerKey{}
	return commit(t, memstore.New(), func(b *store.Batch) {
		for _, c := range changes() {
			if c.Old != nil {
				records.Put(b, &lease.Change{New: c.Old})
			}
			c.Row = true
			records.Put(b, c)
			for _, k := range records.WaitingTimers(c.New) {
				timers[inLog(k)] = append(timers[inLog(k)], k)
			}
		}
		for _, k := range timers[false] {
			records.PutTimer(b, k)
		}
		records.PutInTimerLog(b, 8, timers[true])
		records.PutIdentity(b, records.Identity{Epoch: 3, Key: []byte("secret")})
		records.PutClock(b, 8)
		records.PutSpace(b, records.Space{Tenant: "acme", Workspace: "main", Number: space, NextSeq: nextSeq})
		records.PutQueue(b, records.Queue{
			Space: space, Name: "q", Ready: 4, Scheduled: 2, Leased: 1, Parked: 1,
			Completed: 1, Failed: 1,
		})
		records.PutSettings(b, space, "q", &lease.Settings{Paused: true})
		records.PutFeedback(b, id(leased), &lease.Feedback{Attempt: 1})
		records.PutSigningKey(b, records.SigningKey{Tenant: "acme", ID: "k", Secret: []byte("secret")})
		records.PutToken(b, records.Token{Tenant: "acme", ID: "t", Key: "k"})
		records.PutAudit(b, &records.Audit{
			Tenant: "acme", At: 1, Subject: "ann", Action: "CancelTask",
			Outcome: records.OutcomeOK,
		})
		store.Current().Stamp(b)
	})
}

// inLog reports whether a timer of the sound store is in TimerLog only.
func inLog(k store.TimerKey) bool { return k.Task.Seq == delayed || k.Task.Seq == waiting }

func commit(t *testing.T, s *memstore.Store, change func(*store.Batch)) *memstore.Store {
	t.Helper()
	var b store.Batch
	change(&b)
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return s
}

// findings returns the findings of verify.Store, as text.
func findings(t *testing.T, s store.Store) (all []string) {
	t.Helper()
	err := s.View(func(r store.Reader) error {
		_, err := verify.Store(r, func(f verify.Finding) { all = append(all, fmt.Sprintf("%v %x: %s", f.Keyspace, f.Key, f.Problem)) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// verify has no findings in a sound store or an empty one, and counts the records, tasks and
// leases.
func TestSoundStoreHasNoFindings(t *testing.T) {
	s := sound(t)
	if all := findings(t, s); all != nil {
		t.Errorf("findings in a sound store: %q, want none", all)
	}
	var sum verify.Summary
	err := s.View(func(r store.Reader) (err error) {
		sum, err = verify.Store(r, func(verify.Finding) {})
		return err
	})
	if want := (verify.Summary{Epoch: 3, Records: sum.Records, Tasks: 9, Leases: 1}); err != nil || sum != want || sum.Records < 30 {
		t.Errorf("summary %+v, %v; want %+v and at least 30 records", sum, err, want)
	}
	if all := findings(t, memstore.New()); all != nil {
		t.Errorf("findings in an empty store: %q, want none", all)
	}
}

// record is a record of the sound store.
type record struct {
	ks         store.Keyspace
	key, value []byte
}

// allRecords returns all records of a store.
func allRecords(t *testing.T, s store.Store) (list []record) {
	t.Helper()
	err := s.View(func(r store.Reader) error {
		for ks := range store.Keyspace(store.NumKeyspaces) {
			err := r.Scan(ks, nil, nil, func(key, value []byte) bool {
				list = append(list, record{ks, bytes.Clone(key), bytes.Clone(value)})
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// unreferenced reports whether no other record implies that this one exists. If such a record is
// lost, only the sums of the store change.
func unreferenced(r record) bool {
	switch r.ks {
	case store.Settings, store.Feedback, store.Ledger, store.SigningKey, store.Token, store.Audit:
		return true
	case store.Meta:
		return string(r.key) == store.MetaFormat
	case store.Task:
		// without it, the task is as it was submitted: its index entries are the same, and no
		// report names an attempt
		return bytes.Equal(r.key, key(lostLease))
	}
	return false
}

// If any one record is lost, verify has a finding, unless the record is unreferenced.
func TestLostRecordIsFound(t *testing.T) {
	for _, lost := range allRecords(t, sound(t)) {
		s := commit(t, sound(t), func(b *store.Batch) { b.Delete(lost.ks, lost.key) })
		if found := findings(t, s); found == nil && !unreferenced(lost) {
			t.Errorf("record %v %x was deleted, and there is no finding", lost.ks, lost.key)
		}
	}
}

// A spec of a format before 5 does not hold the state of its task: such a task has a record in Task
// from its submit on. If that record is missing, verify must not treat the task as one that has
// never changed.
func TestOldSpecWithoutStateIsFound(t *testing.T) {
	s := commit(t, sound(t), func(b *store.Batch) {
		for _, r := range allRecords(t, sound(t)) {
			if r.ks == store.Spec && bytes.Equal(r.key, key(waiting)) {
				b.PutSealed(store.Spec, r.key, 4, r.value[store.SealSize:])
			}
		}
	})
	want := fmt.Sprintf("spec %x: the state of its task is missing", key(waiting))
	if found := findings(t, s); !slices.Contains(found, want) {
		t.Errorf("the findings are %q, want %q among them", found, want)
	}
}

// If any byte of a value is changed, verify finds that record damaged. If a copy of a record lies
// under another key, verify has a finding.
func TestBrokenRecordIsFound(t *testing.T) {
	for _, broken := range allRecords(t, sound(t)) {
		for i := range broken.value {
			value := bytes.Clone(broken.value)
			value[i] ^= 1
			s := commit(t, sound(t), func(b *store.Batch) { b.Put(broken.ks, broken.key, value) })
			if found := findings(t, s); len(found) == 0 || !strings.HasPrefix(found[0], fmt.Sprintf("%v %x: ", broken.ks, broken.key)) {
				t.Fatalf("byte %d of the value of %v %x was changed; the findings are %q, want one of this record first", i, broken.ks, broken.key, found)
			}
		}
		for i := range broken.key {
			wrong := bytes.Clone(broken.key)
			wrong[i] ^= 1
			s := commit(t, sound(t), func(b *store.Batch) { b.Put(broken.ks, wrong, broken.value) })
			if found := findings(t, s); len(found) == 0 && !isLedgerTimer(broken.ks, wrong) {
				t.Errorf("a copy of record %v %x lies under key %x, and there is no finding", broken.ks, broken.key, wrong)
			}
		}
		s := commit(t, sound(t), func(b *store.Batch) { b.Put(broken.ks, broken.key[:1], broken.value) })
		if found := findings(t, s); len(found) == 0 {
			t.Errorf("a copy of record %v %x lies under the first byte of its key, and there is no finding",
				broken.ks, broken.key)
		}
	}
}

// If one record is damaged, all findings are about that record: nothing follows for records that
// depend on what it says.
func TestDamagedRecordHasNoOtherFindings(t *testing.T) {
	for _, broken := range allRecords(t, sound(t)) {
		if len(broken.value) == 0 {
			continue
		}
		value := bytes.Clone(broken.value)
		value[len(value)-1] ^= 1
		s := commit(t, sound(t), func(b *store.Batch) { b.Put(broken.ks, broken.key, value) })
		for _, f := range findings(t, s) {
			if !strings.HasPrefix(f, fmt.Sprintf("%v %x: ", broken.ks, broken.key)) {
				t.Errorf("record %v %x is damaged; there is the finding %q, want none of another record",
					broken.ks, broken.key, f)
			}
		}
	}
}

// In a store that is older than format 8, only the tasks behind the older ones have to be in Run;
// before its upgrade, none.
func TestOlderTasksNeedNotBeInRun(t *testing.T) {
	older := func(last uint64) func(*store.Batch) {
		return func(b *store.Batch) {
			b.Delete(store.Run, records.RunKey(&lease.Task{ID: id(waiting), Spec: &lease.Spec{RunID: "r"}}))
			b.Put(store.Run, store.AppendGroupKey(nil, store.OlderTasks, id(last)), nil)
		}
	}
	missing := fmt.Sprintf(`task %x: it is of run "r", but missing from the index run`, key(waiting))
	beyond := fmt.Sprintf("run %x: the older tasks end at task %v, which has never existed",
		store.AppendGroupKey(nil, store.OlderTasks, id(nextSeq)), id(nextSeq))
	for last, want := range map[uint64][]string{waiting: nil, waiting + 1: nil, waiting - 1: {missing}, nextSeq: {beyond}} {
		if found := findings(t, commit(t, sound(t), older(last))); !slices.Equal(found, want) {
			t.Errorf("older tasks up to %d, and task %d not in Run: the findings are %q, want %q", last, waiting, found, want)
		}
	}
	before := func(b *store.Batch) {
		older(waiting)(b)
		b.Delete(store.Run, store.AppendGroupKey(nil, store.OlderTasks, id(waiting)))
		store.Current()[:store.FirstWithRun-2].Stamp(b)
	}
	if found := findings(t, commit(t, sound(t), before)); found != nil {
		t.Errorf("in the format before, without Run: the findings are %q, want none", found)
	}
}

// A damaged record does not keep verify from finding what is wrong with others.
func TestDamagedRecordHidesNoOthers(t *testing.T) {
	damaged := func(ks store.Keyspace, key []byte) func(*store.Batch) {
		return func(b *store.Batch) { b.PutSealed(ks, key, 255, nil) }
	}
	workspace := records.Space{Tenant: "acme", Workspace: "main", Number: space, NextSeq: nextSeq}
	queue := records.Queue{Space: space, Name: "q", Ready: 4, Scheduled: 2, Leased: 1, Parked: 1}
	for what, tt := range map[string]struct {
		damage, change func(*store.Batch)
		want           string
	}{
		"a number given out again, behind a damaged workspace": {
			damaged(store.Space, store.AppendTenantKey(nil, "aaa", "main")),
			func(b *store.Batch) { s := workspace; s.NextSeq = delayed; records.PutSpace(b, s) },
			fmt.Sprintf("the next number is %d", delayed),
		},
		"a count, behind a damaged queue": {
			damaged(store.Queue, store.AppendNameKey(nil, space, "a")),
			func(b *store.Batch) { q := queue; q.Ready = 5; records.PutQueue(b, q) },
			"it counts 5 READY tasks, but has 4",
		},
		"a count that a damaged task does not explain": {
			damaged(store.Spec, key(waiting)),
			func(b *store.Batch) { q := queue; q.Ready = 5; records.PutQueue(b, q) },
			"it counts 5 READY tasks, but has 3",
		},
		"a count that is too low": {
			damaged(store.Spec, key(waiting)),
			func(b *store.Batch) { q := queue; q.Ready = 2; records.PutQueue(b, q) },
			"it counts 2 READY tasks, but has 3",
		},
		"a task of no queue": {
			damaged(store.Queue, store.AppendNameKey(nil, space, "a")),
			func(b *store.Batch) { b.Delete(store.Queue, store.AppendNameKey(nil, space, "q")) },
			`tasks are in queue "q", which does not exist`,
		},
	} {
		found := strings.Join(findings(t, commit(t, commit(t, sound(t), tt.damage), tt.change)), "\n")
		if !strings.Contains(found, tt.want) {
			t.Errorf("%s: the findings are %q, want one that contains %q", what, found, tt.want)
		}
	}
}

// T9: ended tasks from before format 10 are counted apart from the others, whatever their state. If
// the record of their workspace is damaged, nobody knows which these are.
func TestOlderEndedTasks(t *testing.T) {
	workspace := records.Space{Tenant: "acme", Workspace: "main", Number: space, NextSeq: nextSeq, CountedFrom: done + 1}
	queue := records.Queue{Space: space, Name: "q", Ready: 4, Scheduled: 2, Leased: 1, Parked: 1}
	for _, tt := range []struct{ completed, failed, cancelled, older uint64 }{{0, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 0, 1}, {0, 1, 0, 2}, {0, 1, 0, 1<<63 + 3}} {
		q := queue
		q.Completed, q.Failed, q.Cancelled, q.Older = tt.completed, tt.failed, tt.cancelled, tt.older
		older := commit(t, sound(t), func(b *store.Batch) { records.PutQueue(b, q); records.PutSpace(b, workspace) })
		right := tt.completed == 0 && tt.failed == 1 && (tt.older == 1 || !records.OlderKnown(tt.older))
		if found := findings(t, older); (len(found) == 0) != right {
			t.Errorf("%+v: the findings are %q, want some: %v", tt, found, !right)
		}
		damaged := commit(t, older, func(b *store.Batch) { b.PutSealed(store.Space, store.AppendTenantKey(nil, "acme", "main"), 255, nil) })
		if found := findings(t, damaged); len(found) != 1 {
			t.Errorf("%+v, beside a damaged workspace: the findings are %q, want the workspace", tt, found)
		}
	}
}

// isLedgerTimer reports whether a key can be that of the timer that ends the ledger of a deleted
// task (A10). No other record shows whether a deleted task really left that timer; only the sums of
// the store do.
func isLedgerTimer(ks store.Keyspace, key []byte) bool {
	k, err := store.ParseTimerKey(key)
	return ks == store.Timer && err == nil && k.Clock == store.ServingClock && k.Task.Space == space && k.Task.Seq < nextSeq
}

// rewrite returns a function that replaces one task of the sound store by another version. The
// index entries of the sound version stay.
func rewrite(seq uint64, change func(*lease.Change)) func(*store.Batch) {
	return func(b *store.Batch) {
		for _, c := range changes() {
			if c.New == nil || c.New.ID.Seq != seq {
				continue
			}
			c.Row = true
			change(c)
			records.Put(b, c)
		}
	}
}

// A1, A2, A5: verify finds tasks whose records can be read, but contradict a rule or each other.
func TestContradictionsAreFound(t *testing.T) {
	t.Attr("rules", "A1 A2 A5")
	for name, tt := range map[string]struct {
		task   uint64
		change func(*lease.Change)
		want   string
	}{
		"A1":                          {leased, func(c *lease.Change) { c.New.Lease.Attempt = 2 }, "attempt 2 is live after 2 have ended"},
		"A1, in a final state":        {leased, func(c *lease.Change) { c.New.Rest, c.New.FinishedAt = lease.Failed, 1 }, "it has a live lease, but its state without it is FAILED"},
		"A2, the epoch":               {leased, func(c *lease.Change) { c.New.Lease.Epoch = 4 }, "granted in epoch 4"},
		"A2, no epoch":                {leased, func(c *lease.Change) { c.New.Lease.Epoch = 0 }, "granted in epoch 0"},
		"A2, attempts do not rise":    {leased, func(c *lease.Change) { c.New.History[0].Attempt, c.New.Lease.Events[0].Attempt = 2, 2 }, "attempt 2 was granted after attempt 2"},
		"A2, no such attempt":         {leased, func(c *lease.Change) { c.New.History[1].Attempt = 9 }, "event 21 is of attempt 9 of 3"},
		"A2, the last attempt":        {done, func(c *lease.Change) { c.New.Last.Attempt = 3 }, "1 attempts have ended, and the last one of them is 3"},
		"A2, the ledger":              {retried, func(c *lease.Change) { c.New.Attempts, c.New.Last.Attempt = 0, 0 }, "it is of attempt 2, but the task had 0"},
		"A2, numbers given out again": {waiting, func(c *lease.Change) { c.New.Place = 100 }, "the next number is 100"},
		"A3":                          {leased, func(c *lease.Change) { c.New.Lease.ExpiresAt = 0 }, "it never expires"},
		"A5, a lease and an outcome":  {leased, func(c *lease.Change) { c.New.Outcome = &lease.Committed{Attempt: 1} }, "its outcome says"},
		"A5, no outcome":              {done, func(c *lease.Change) { c.New.Outcome = nil }, "COMPLETED without an outcome"},
		"A5, another state":           {done, func(c *lease.Change) { c.New.Outcome.State = lease.Failed }, "its outcome says FAILED"},
		"A5, no such attempt":         {done, func(c *lease.Change) { c.New.Outcome.Attempt = 2 }, "its outcome is of attempt 2 of 1"},
		"A5, a state with a lease": {leased, func(c *lease.Change) {
			c.New.Outcome = &lease.Committed{Attempt: 1, State: lease.Ready}
		}, "its outcome says READY, and it is LEASED"},
		"A5, attempt 0": {done, func(c *lease.Change) { c.New.Outcome.Attempt = 0 }, "its outcome is of attempt 0 of 1"},
		"A5, two in the history": {done, func(c *lease.Change) {
			c.New.History = append(c.New.History, lease.Event{Seq: 32, Type: lease.EventAdopted, Attempt: 1})
		}, "event 32 is the second outcome"},
		"A5, two in the ledger": {retried, func(c *lease.Change) { c.New.Round = 2 }, "2 reports ended rounds, but the task is in round 2"},
		"T10, too many events": {leased, func(c *lease.Change) {
			c.New.History = make([]lease.Event, lease.MaxHistory+1)
		}, "it keeps 101 events"},
		"T10, the order": {leased, func(c *lease.Change) { c.New.History[0].Seq = 50 }, "event 21 follows event 50"},
		"T11":            {parked, func(c *lease.Change) { c.New.Spec.ConcurrencyKey = "" }, "it is parked, but it is READY"},
		"T11, with a lease": {parked, func(c *lease.Change) {
			c.New.Lease = &lease.Lease{Epoch: 3, Attempt: 1, ExpiresAt: 9}
		}, "it is parked, but it is LEASED"},
		"T11, not READY": {parked, func(c *lease.Change) { c.New.Rest, c.New.RunAt = lease.Scheduled, 9 }, "it is parked, but it is SCHEDULED"},
		"T1": {delayed, func(c *lease.Change) {
			c.New.Spec.IdempotencyKey = "name" // which then leads to this task
		}, `its idempotency key "name" does not lead to it`},
		"a state":                {waiting, func(c *lease.Change) { c.New.Rest = lease.Leased }, "it rests in state LEASED"},
		"an end":                 {waiting, func(c *lease.Change) { c.New.FinishedAt = 4 }, "finished at 4"},
		"no time":                {delayed, func(c *lease.Change) { c.New.RunAt = 0 }, "SCHEDULED without a time"},
		"round 0":                {waiting, func(c *lease.Change) { c.New.Round = 0 }, "round 0"},
		"an older version":       {waiting, func(c *lease.Change) { c.New.Place = 50 }, "is READY and has no such entry"},
		"a tenant":               {waiting, func(c *lease.Change) { c.New.Tenant = "other" }, `it says it is of tenant "other"`},
		"a workspace":            {waiting, func(c *lease.Change) { c.New.Workspace = "other" }, `workspace "other"; its id is of`},
		"a queue":                {waiting, func(c *lease.Change) { c.New.Spec.Queue = "r" }, `tasks are in queue "r"`},
		"the count of READY":     {delayed, func(c *lease.Change) { c.New.Rest, c.New.RunAt = lease.Ready, 0 }, "it counts 4 READY tasks, but has 5"},
		"the count of SCHEDULED": {delayed, func(c *lease.Change) { c.New.Rest, c.New.RunAt = lease.Ready, 0 }, "it counts 2 SCHEDULED tasks, but has 1"},
		"the count of leased": {waiting, func(c *lease.Change) {
			c.New.Lease = &lease.Lease{Epoch: 3, Attempt: 1, ExpiresAt: 9}
		}, "it counts 1 leased tasks, but has 2"},
		"the count of COMPLETED": {done, func(c *lease.Change) { c.New.Rest = lease.Cancelled }, "it counts 1 COMPLETED tasks, but has 0"},
		"the count of CANCELLED": {done, func(c *lease.Change) { c.New.Rest = lease.Cancelled }, "it counts 0 CANCELLED tasks, but has 1"},
		"the count of FAILED":    {failed, func(c *lease.Change) { c.New.Rest = lease.Ready }, "it counts 1 FAILED tasks, but has 0"},
		"the count of parked":    {parked, func(c *lease.Change) { c.New.Parked = false }, "it counts 1 parked tasks, but has 0"},
		"a checkpoint":           {leased, func(c *lease.Change) { c.New.CheckpointBits = 0 }, "the task says that it has one: false; one is stored: true"},
		"a kept result":          {leased, func(c *lease.Change) { c.New.Discarded = nil }, "no task keeps this result"},
		"an output":              {failed, func(c *lease.Change) { c.Result = &lease.Result{} }, "the task is FAILED; there is an output: true"},
	} {
		found := strings.Join(findings(t, commit(t, sound(t), rewrite(tt.task, tt.change))), "\n")
		if !strings.Contains(found, tt.want) {
			t.Errorf("%s: the findings are %q, want one that contains %q", name, found, tt.want)
		}
	}
}

// verify finds records that contradict others, without a change of any task.
func TestStrayRecordsAreFound(t *testing.T) {
	copyOf := func(ks store.Keyspace, from, to []byte) func(*store.Batch) {
		return func(b *store.Batch) {
			for _, r := range allRecords(t, sound(t)) {
				if r.ks == ks && bytes.Equal(r.key, from) {
					b.PutSealed(ks, to, r.value[0], r.value[store.SealSize:])
				}
			}
		}
	}
	timer := func(seq uint64) []byte { return store.ServingTimer(77, id(seq)).Append(nil) }
	workspace := records.Space{Tenant: "acme", Workspace: "main", Number: space, NextSeq: nextSeq}
	for what, tt := range map[string]struct {
		change func(*store.Batch)
		want   string
	}{
		"A2, a number given out again": {
			func(b *store.Batch) { s := workspace; s.NextSeq = delayed; records.PutSpace(b, s) },
			fmt.Sprintf("the next number is %d, but a task has number %d and place 0 (A2)", delayed, delayed),
		},
		"A2, two workspaces with one number": {
			func(b *store.Batch) { s := workspace; s.Workspace = "second"; records.PutSpace(b, s) },
			fmt.Sprintf("its number %d also belongs to another workspace", space),
		},
		"A5, a report of another attempt": {
			copyOf(store.Ledger, store.AppendAttemptKey(nil, id(retried), 1),
				store.AppendAttemptKey(nil, id(retried), 3)), "it is of attempt 1",
		},
		"A10, a ledger that nothing ends": {
			func(b *store.Batch) { b.Delete(store.Timer, store.ServingTimer(1000, id(deleted)).Append(nil)) },
			"its task does not exist, and no timer will end the ledger (A10)",
		},
		"T1, a key of an older format and of no task": {
			func(b *store.Batch) {
				storetest.PutOlderKey(b, space, "other", waiting, make([]byte, len(lease.Digest{})))
			}, `key "other" leads to task`,
		},
		"T1, no entry of a key": {
			func(b *store.Batch) { records.DeleteFromKeyLog(b, id(waiting)) }, `its idempotency key "name" does not lead to it`,
		},
		"T2, a task that nothing makes READY": {
			func(b *store.Batch) { records.DeleteTimer(b, store.ServingTimer(100, id(backedOff))) },
			"it is SCHEDULED, but missing from the indexes timer",
		},
		"T2, a task that nothing makes READY any more": {
			func(b *store.Batch) { records.DeleteFromTimerLog(b, 8) }, "it is SCHEDULED, but missing from the indexes timer",
		},
		"a timer that the task does not have": {
			func(b *store.Batch) { b.Put(store.Timer, timer(waiting), nil) },
			fmt.Sprintf("task %v is READY and has no such entry", id(waiting)),
		},
		"a timer of a task that never was": {
			func(b *store.Batch) { b.Put(store.Timer, timer(nextSeq), nil) }, fmt.Sprintf("task %v does not exist", id(nextSeq)),
		},
		"a task without its workspace": {
			func(b *store.Batch) { b.Delete(store.Space, store.AppendTenantKey(nil, "acme", "main")) },
			fmt.Sprintf("task %x: its workspace does not exist", key(waiting)),
		},
		"a queue without its workspace": {
			func(b *store.Batch) { records.PutQueue(b, records.Queue{Space: space + 1, Name: "q"}) },
			fmt.Sprintf("queue %x: its workspace does not exist", store.AppendNameKey(nil, space+1, "q")),
		},
		"settings without their workspace": {
			func(b *store.Batch) { records.PutSettings(b, space+1, "q", &lease.Settings{Paused: true}) },
			fmt.Sprintf("settings %x: its workspace does not exist", store.AppendNameKey(nil, space+1, "q")),
		},
		"the identity": {
			func(b *store.Batch) { b.Delete(store.Meta, []byte(store.MetaIdentity)) },
			"there are workspaces, but no key that signs their leases",
		},
		"epoch 0": {func(b *store.Batch) { records.PutIdentity(b, records.Identity{Key: []byte("secret")}) }, "the epoch is 0"},
	} {
		found := strings.Join(findings(t, commit(t, sound(t), tt.change)), "\n")
		if !strings.Contains(found, tt.want) {
			t.Errorf("%s: the findings are %q, want one that contains %q", what, found, tt.want)
		}
	}
}

// A task may keep as many events as T10 allows.
func TestFullHistoryIsSound(t *testing.T) {
	s := commit(t, sound(t), rewrite(failed, func(c *lease.Change) {
		for n := range uint64(lease.MaxHistory) {
			c.New.History = append(c.New.History, lease.Event{Seq: failed + n})
		}
	}))
	if found := findings(t, s); found != nil {
		t.Errorf("the findings are %q, want none", found)
	}
}

// unreadable is a reader one of whose calls of Scan fails.
type unreadable struct {
	store.Reader
	sound int // number of calls until that one
}

var errUnreadable = errors.New("the disk has a fault")

func (u *unreadable) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	if u.sound--; u.sound == -1 {
		return errUnreadable
	}
	return u.Reader.Scan(ks, from, to, fn)
}

// If reading fails at any time, verify returns the error: a store that was not read to its end must
// not pass for a sound one.
func TestReadErrorIsReturned(t *testing.T) {
	err := sound(t).View(func(r store.Reader) error {
		for calls := 0; ; calls++ {
			u := &unreadable{Reader: r, sound: calls}
			_, err := verify.Store(u, func(verify.Finding) {})
			switch {
			case u.sound >= 0: // no call has failed
				return err
			case !errors.Is(err, errUnreadable):
				t.Errorf("after %d calls of Scan, the next one fails: verify.Store = %v, want that error", calls, err)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// If the report that completed a task had no result, the task may have a record in Output, as
// earlier versions wrote it, or none.
func TestEmptyCompleteNeedsNoOutput(t *testing.T) {
	empty := (&lease.Report{Kind: lease.KindComplete, Result: &lease.Result{}}).Digest()
	s := commit(t, sound(t), rewrite(done, func(c *lease.Change) { c.New.Outcome.Digest, c.Result = empty, nil }))
	if found := findings(t, s); found != nil {
		t.Errorf("with a record in Output the findings are %q, want none", found)
	}
	commit(t, s, func(b *store.Batch) { b.Delete(store.Output, key(done)) })
	if found := findings(t, s); found != nil {
		t.Errorf("without a record in Output the findings are %q, want none", found)
	}
}

// Finding.Task returns the task in the key of a finding, if the keys of its keyspace begin with a
// task.
func TestFindingNamesItsTask(t *testing.T) {
	f := verify.Finding{Keyspace: store.Ledger, Key: store.AppendAttemptKey(nil, id(5), 2)}
	if got, ok := f.Task(); !ok || got != id(5) {
		t.Errorf("the task of a finding in Ledger is %v, %t; want %v, true", got, ok, id(5))
	}
	f.Keyspace = store.Timer
	if _, ok := f.Task(); ok {
		t.Error("a finding in Timer names a task, but the key of a timer does not begin with one")
	}
}
