package verify

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// account is what the ledger has of one task.
type account struct {
	id       lease.TaskID
	key      []byte // of the last report
	last     uint32 // attempt
	outcomes uint32
}

// ledgers looks at the committed reports, task by task: the keys bring them together.
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

// balance compares what the ledger has of a task with the task: it ended each round but the present one by a report at most (A5).
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
