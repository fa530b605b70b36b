package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// backup is a copy of what is committed, as a store of its own.
func (r *rig) backup() *memstore.Store {
	r.Helper()
	var file bytes.Buffer
	if _, err := r.st.Snapshot(&file); err != nil {
		r.Fatal(err)
	}
	st, err := memstore.Restore(&file)
	if err != nil {
		r.Fatal(err)
	}
	return st
}

// A11: after a restore every lease of the backup has ended, without a loss, and so has every lease of the lost future, whether or not its task
// is known. Fencing tokens go on rising.
func TestRestoreEndsTheLeasesOfTheLostFuture(t *testing.T) {
	t.Attr("rules", "A2 A11")
	run(t, func(r *rig) {
		before := r.submit(work(), work())
		open := r.lease(1, 0)
		backup := r.backup()
		time.Sleep(time.Minute)
		future := r.lease(1, 0)
		r.submit(work())
		unknown := r.lease(1, 0)
		r.end()
		r.st = backup
		r.start(Config{Recovery: RestoredStore})
		for _, g := range []Granted{open[0], future[0], unknown[0]} {
			r.want(r.say(lease.KindHeartbeat, g), lease.VerdictCancelled, lease.CoordinatorRecovered)
			r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.CoordinatorRecovered)
		}
		again := r.lease(3, 0)
		if len(again) != 2 {
			r.Fatalf("%d tasks after the restore, want the 2 of the backup", len(again))
		}
		for i, g := range again {
			if g.Task.ID != before[i].ID || g.Task.Losses != 0 || g.Token <= future[0].Token || g.Token >= 1<<53 {
				r.Errorf("granted %v with %d losses and token %d, after token %d", g.Task.ID, g.Task.Losses, g.Token, future[0].Token)
			}
			r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
		}
	})
}
