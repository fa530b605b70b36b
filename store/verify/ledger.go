package verify

import (
	"bytes"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// taskLedger sums up the committed reports of one task in the ledger.
type taskLedger struct {
	id       lease.TaskID
	key      []byte // of the last report; nil if there is none
	last     uint32 // attempt of the last report
	outcomes uint32 // number of reports that ended a round
}

// checkLedgers checks the committed reports, task by task. The keys of the reports of one task are
// adjacent.
func (v *verifier) checkLedgers() error { return v.checkLedgersIn(nil, nil) }

// checkLedgersIn is checkLedgers for the keys in [from, to).
func (v *verifier) checkLedgersIn(from, to []byte) error {
	var current taskLedger
	err := v.eachIn(store.Ledger, from, to, func(key []byte) error {
		id, attempt, err := store.ParseAttemptKey(store.Ledger, key)
		if err != nil {
			return nil
		}
		if id != current.id {
			if err := v.checkLedger(current); err != nil {
				return err
			}
			current = taskLedger{id: id}
		}
		report, err := records.Committed(v.r, id, attempt)
		if err != nil {
			return ignoreCorrupt(err)
		}
		v.require(report.Attempt == attempt, store.Ledger, key, "it is of attempt %d", report.Attempt)
		current.key, current.last = bytes.Clone(key), attempt
		if report.State.Final() {
			current.outcomes++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.checkLedger(current)
}

// checkLedger compares the ledger of a task with the task. Each round has at most one report that
// ended it, and the task is in a later round (A5).
func (v *verifier) checkLedger(l taskLedger) error {
	if l.key == nil {
		return nil
	}
	t, err := v.task(l.id)
	switch {
	case err != nil:
		return ignoreCorrupt(err)
	case t == nil:
		_, kept := v.deleted[l.id]
		v.require(kept, store.Ledger, l.key, "its task does not exist, and no timer will end the ledger (A10)")
		return nil
	}
	v.require(l.last <= t.Attempts, store.Ledger, l.key, "it is of attempt %d, but the task had %d (A2)",
		l.last, t.Attempts)
	v.require(l.outcomes < t.Round, store.Ledger, l.key,
		"%d reports ended rounds, but the task is in round %d (A5)", l.outcomes, t.Round)
	return nil
}
