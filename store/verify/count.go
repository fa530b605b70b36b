package verify

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// recount adds a task to its queue.
func (v *verifier) recount(t *lease.Task) {
	key := string(store.AppendNameKey(nil, t.ID.Space, t.Spec.Queue))
	q := v.queues[key]
	if q == nil {
		q = &records.Queue{Space: t.ID.Space, Name: t.Spec.Queue}
		v.queues[key] = q
	}
	countedFrom := uint64(0)
	if s := v.spaces[t.ID.Space]; s != nil {
		countedFrom = s.CountedFrom
	}
	q.Add(t, countedFrom)
}

// checkCounters compares the counters of each queue with the recount. It also checks that the
// workspaces of the queues and of their settings exist.
func (v *verifier) checkCounters() error {
	err := records.Queues(readable{v.r}, func(q records.Queue) error {
		key := string(store.AppendNameKey(nil, q.Space, q.Name))
		is := records.Queue{}
		if recounted := v.queues[key]; recounted != nil {
			is = *recounted
		}
		delete(v.queues, key)
		v.require(v.mayBeSpace(q.Space), store.Queue, []byte(key), "its workspace does not exist")
		compare := func(what string, says, is uint64) {
			v.require(says >= is && says-is <= v.unread[q.Space], store.Queue, []byte(key),
				"it counts %d %s tasks, but has %d", says, what, is)
		}
		compare("READY", q.Ready, is.Ready)
		compare("SCHEDULED", q.Scheduled, is.Scheduled)
		compare("leased", q.Leased, is.Leased)
		compare("parked", q.Parked, is.Parked)
		if v.spaces[q.Space] == nil { // only that says how ended tasks are counted
			return nil
		}
		compare("COMPLETED", q.Completed, is.Completed)
		compare("FAILED", q.Failed, is.Failed)
		compare("CANCELLED", q.Cancelled, is.Cancelled)
		if records.OlderKnown(q.Older) {
			compare("older ended", q.Older, is.Older)
		}
		return nil
	})
	for key, q := range v.queues {
		v.require(v.has(store.Queue, []byte(key)), store.Queue, []byte(key),
			"tasks are in queue %q, which does not exist", q.Name)
	}
	if err != nil {
		return err
	}
	return v.each(store.Settings, func(key []byte) error {
		space, _, err := store.ParseNameKey(store.Settings, key)
		v.require(err != nil || v.mayBeSpace(space), store.Settings, key, "its workspace does not exist")
		return nil
	})
}
