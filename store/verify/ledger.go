package verify

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// account sums up the committed reports of one task in the ledger.
type account struct {
	id       lease.TaskID
	key      []byte // of the last report; nil if there is none
	last     uint32 // attempt of the last report
	outcomes uint32 // number of reports that ended a round
}

// ledgers checks the committed reports, task by task. The keys of the reports of one task are adjacent.
func (v *verifier) ledgers() error {
	var open account
	err := v.each(store.Ledger, func(key []byte) error {
		id, attempt, err := store.ParseAttemptKey(store.Ledger, key)
		if err != nil {
			return nil
		}
		if id != open.id {
			if err := v.balance(open); err != nil {
				return err
			}
			open = account{id: id}
		}
		report, err := records.Committed(v.r, id, attempt)
		if err != nil {
			return passed(err)
		}
		v.unless(report.Attempt == attempt, store.Ledger, key, "it is of attempt %d", report.Attempt)
		open.key, open.last = append([]byte{}, key...), attempt
		if report.State.Final() {
			open.outcomes++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.balance(open)
}

// balance compares the ledger of a task with the task. Each round has at most one report that ended it, and the task is in a later round (A5).
func (v *verifier) balance(a account) error {
	if a.key == nil {
		return nil
	}
	t, err := v.task(a.id)
	switch {
	case err != nil:
		return passed(err)
	case t == nil:
		_, kept := v.deleted[a.id]
		v.unless(kept, store.Ledger, a.key, "its task does not exist, and no timer will end the ledger (A10)")
		return nil
	}
	v.unless(a.last <= t.Attempts, store.Ledger, a.key, "it is of attempt %d, but the task had %d (A2)", a.last, t.Attempts)
	v.unless(a.outcomes < t.Round, store.Ledger, a.key, "%d reports ended rounds, but the task is in round %d (A5)", a.outcomes, t.Round)
	return nil
}
