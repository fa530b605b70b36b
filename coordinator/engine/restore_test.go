package engine

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// A11, A2: after a restore, a lease that was open in the backup is ended without counting as a
// loss. Leases granted after the backup get COORDINATOR_RECOVERED, whether or not the restored
// store has their task. Fencing tokens still rise.
func TestRestoreFromABackup(t *testing.T) {
	t.Attr("rules", "A11 A2")
	run(t, func(r *rig) {
		r.submit(many(2)...)
		open := r.lease(1, 0)[0]
		backup := r.backup()
		r.want(r.say(lease.KindComplete, open), lease.VerdictCommitted, lease.None)
		known := r.lease(1, 0)[0]
		r.submit(work())
		unknown := r.lease(1, 0)[0]

		r.restore(backup)
		for range 2 {
			for _, g := range []Granted{open, known, unknown} {
				r.want(r.say(lease.KindStart, g), lease.VerdictCancelled, lease.CoordinatorRecovered)
				r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.CoordinatorRecovered)
			}
			r.submit(work())
		}
		last := max(open.Token, known.Token, unknown.Token)
		again := r.lease(10, 0)
		if len(again) != 4 {
			r.Fatalf("leased %d tasks, want the two of the backup and the two new ones", len(again))
		}
		for _, g := range again {
			if g.Token <= last || g.Task.Losses != 0 {
				r.Errorf("task %v has token %d and %d losses, want a token above %d and no loss",
					g.Task.ID, g.Token, g.Task.Losses, last)
			}
			r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
			if kept := len(r.version(g.Task.ID).Discarded); kept > 0 && g.Task.ID != open.Task.ID {
				r.Errorf("V15: task %v keeps %d late results of another task, which had the same id before the restore; want none", g.Task.ID, kept)
			}
		}
	})
}

// A11: after a restore, a task that was granted after the backup is granted again with the same
// attempt number. Feedback of the earlier holder must not be taken for that of the new one.
func TestFeedbackFromBeforeARestoreIsNotTaken(t *testing.T) {
	t.Attr("rules", "A11")
	run(t, func(r *rig) {
		r.submit(work())
		backup := r.backup()
		lost := r.lease(1, 0)[0]
		r.restore(backup)
		g := r.lease(1, 0)[0]
		if g.Task.ID != lost.Task.ID || g.Task.Attempt() != lost.Task.Attempt() {
			r.Fatalf("leased attempt %d of task %v, want attempt %d of %v as before the restore",
				g.Task.Attempt(), g.Task.ID, lost.Task.Attempt(), lost.Task.ID)
		}
		for _, by := range []Granted{lost, g} {
			r.feed(home.Tenant, feedUnder(by, Feed{Stage: by.LeaseID}))
			synctest.Wait()
			if f := r.LiveFeedback(g.Task.ID); (f != nil) != (by.LeaseID == g.LeaseID) {
				r.Errorf("after feedback under lease %s the live feedback is %+v; want it only under the live lease, %s", by.LeaseID, f, g.LeaseID)
			}
		}
	})
}

// A11, S5: after a restore, no task gets an id and no event gets a sequence that was given out
// between the backup and the restore. This holds in a workspace of the backup and in one that the
// restore lost, and also if the same backup is restored several times within a second. So nobody
// who still knows such an id finds another task under it, and a watch that continues after such an
// event is refused.
func TestRestoreGivesOutNoIDOrSequenceTwice(t *testing.T) {
	t.Attr("rules", "A11 S5")
	synctest.Test(t, func(t *testing.T) {
		// the clock of a bubble begins in 2000, and the epochs of restores count from 2024
		time.Sleep(25 * 366 * 24 * time.Hour)
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		other := Space{Tenant: home.Tenant, Workspace: "of the lost future"}
		kept := r.submit(work())[0]
		backup := r.backup()
		given, newest := map[lease.TaskID]bool{}, map[Space]uint64{}
		future := func() {
			for _, space := range []Space{home, other} {
				specs := many(3)
				for _, s := range specs {
					if err := s.Fill(lease.DefaultLimits()); err != nil {
						r.Fatal(err)
					}
				}
				made, _, err := r.Submit(r.Context(), space, specs, make([]lease.Digest, len(specs)))
				if err != nil {
					r.Fatal(err)
				}
				for _, m := range made {
					if given[m.Task.ID] {
						r.Errorf("task %v has the id of a task that a restore lost", m.Task.ID)
					}
					given[m.Task.ID] = true
				}
				all := r.sequences(space)
				if seq := newest[space]; seq != 0 && !all.Lost(seq) {
					r.Errorf("%v: Lost(%d) is false, want true: the restore lost this sequence", space, seq)
				}
				first, last := made[0].Task.Events()[0].Seq, made[2].Task.LastSeq()
				if all.Lost(first) || all.Lost(last) || all.Last() < last || first <= newest[space] {
					r.Errorf("%v: the new events have the sequences %d to %d; want them above %d, not lost, and at most the last of %+v", space, first, last, newest[space], all)
				}
				newest[space] = all.Last()
			}
		}
		for range 3 {
			future()
			r.restore(backup)
		}
		future()
		r.kill()
		if all := r.sequences(home); all.Lost(kept.LastSeq()) || !all.Lost(kept.LastSeq()+1) {
			r.Errorf("after a crash the sequences are %+v, want those after %d lost", all, kept.LastSeq())
		}
		r.shutDown()
	})
}

func (r *rig) sequences(s Space) Sequences {
	r.Helper()
	n, ok := r.SpaceNumber(s)
	if !ok {
		r.Fatalf("no space %v", s)
	}
	all, err := r.Sequences(r.Context(), s.Tenant, n)
	if err != nil {
		r.Fatal(err)
	}
	return all
}

func (r *rig) backup() []byte {
	r.Helper()
	var b bytes.Buffer
	if _, err := r.st.(*memstore.Store).Snapshot(&b); err != nil {
		r.Fatal(err)
	}
	return b.Bytes()
}

// restore starts anew from a backup, in a new epoch.
func (r *rig) restore(backup []byte) {
	r.Helper()
	r.shutDown()
	st, err := memstore.Restore(bytes.NewReader(backup))
	if err != nil {
		r.Fatal(err)
	}
	r.st = st
	r.start(Config{Recovery: RestoredStore})
}
