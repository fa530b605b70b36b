package service_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// V15: the first late result of each lease is kept, and can be adopted, also after two starts with
// --recovery=invalidate.
func TestLateResultsOfOlderEpochsAreKept(t *testing.T) {
	t.Attr("rules", "V15")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var leases []*lessorv1.Assignment
		for _, recovery := range []engine.Recovery{engine.KeepLeases, engine.InvalidateLeases} {
			serveDir(t, dir, recovery, func(r *wiretest.Rig, _ *boltstore.Store) {
				if leases == nil {
					r.SubmitAll(t, 1)
				}
				leases = append(leases, r.Lease(t), leaseAfterExpiry(t, r))
			})
		}
		serveDir(t, dir, engine.InvalidateLeases, func(r *wiretest.Rig, _ *boltstore.Store) {
			wantKept(t, r, leases, leases...)
			id := leases[0].GetTask().GetTaskId()
			if _, err := r.Tasks.AdoptResult(t.Context(), &lessorv1.AdoptResultRequest{TaskId: id, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
			if task := r.Get(t, id); task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || string(task.GetOutput()) != outputOf(leases[0]) {
				t.Errorf("after the adoption the task is %v with the output %q, want it COMPLETED with that of attempt 1", task.GetState(), task.GetOutput())
			}
		})
	})
}

// V15: an attempt that a restore has lost may have the number of one since. Its result must not be
// taken for a result of that one, so what comes under a lease from before the restore is kept for
// the last attempt in the backup only. A later start with --recovery=invalidate makes no
// difference.
func TestLateResultsFromBeforeARestoreAreNotKept(t *testing.T) {
	t.Attr("rules", "V15")
	dir, backup, restored := t.TempDir(), filepath.Join(t.TempDir(), "backup.db"), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var leases []*lessorv1.Assignment
		serveDir(t, dir, engine.KeepLeases, func(r *wiretest.Rig, st *boltstore.Store) {
			r.SubmitAll(t, 1)
			leases = append(leases, r.Lease(t), leaseAfterExpiry(t, r))
			to, err := os.Create(backup)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Snapshot(to); err != nil {
				t.Fatal(err)
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			leases = append(leases, leaseAfterExpiry(t, r))
		})
		if err := boltstore.Restore(backup, restored, boltstore.Options{}, func(*boltstore.Store) error { return nil }); err != nil {
			t.Fatal(err)
		}
		last := leases[1]
		serveDir(t, restored, engine.RestoredStore, func(r *wiretest.Rig, _ *boltstore.Store) {
			wantKept(t, r, leases, last)
			again := r.Lease(t)
			if lost := leases[2]; again.GetAttempt() != lost.GetAttempt() {
				t.Fatalf("leased attempt %d, want %d as before the restore", again.GetAttempt(), lost.GetAttempt())
			}
			wantKept(t, r, leases, last)
			leases = append(leases, again)
		})
		serveDir(t, restored, engine.InvalidateLeases,
			func(r *wiretest.Rig, _ *boltstore.Store) { wantKept(t, r, leases, last, leases[3]) })
	})
}

// serveDir runs a part of a test against a coordinator with the store in a directory, in the bubble
// of the caller.
func serveDir(t *testing.T, dir string, recovery engine.Recovery, test func(*wiretest.Rig, *boltstore.Store)) {
	t.Helper()
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	r := wiretest.NewWith(t, st, coordinator.Config{Recovery: recovery})
	defer r.Close(t)
	test(r, st)
}

// leaseAfterExpiry leases the task again once its lease has expired.
func leaseAfterExpiry(t *testing.T, r *wiretest.Rig) *lessorv1.Assignment {
	t.Helper()
	time.Sleep(lease.DefaultHeartbeatTimeout)
	synctest.Wait()
	return r.Lease(t)
}

func outputOf(a *lessorv1.Assignment) string {
	return fmt.Sprintf("of attempt %d, %s", a.GetAttempt(), a.GetLeaseId())
}

// wantKept reports late results under all leases, and checks that each is CANCELLED with
// COORDINATOR_RECOVERED, and that the results of kept are all that the task keeps.
func wantKept(t *testing.T, r *wiretest.Rig, leases []*lessorv1.Assignment, kept ...*lessorv1.Assignment) {
	t.Helper()
	for _, a := range leases {
		if v := r.Complete(t, a, outputOf(a)); v.GetReason() != lessorv1.Reason_REASON_COORDINATOR_RECOVERED {
			t.Errorf("a late result of attempt %d is %v %v (%s), want CANCELLED COORDINATOR_RECOVERED",
				a.GetAttempt(), v.GetVerdict(), v.GetReason(), v.GetDetail())
		}
	}
	want := map[string]bool{}
	for _, a := range kept {
		want[outputOf(a)] = true
	}
	all := r.Get(t, leases[0].GetTask().GetTaskId()).GetDiscarded()
	for _, d := range all {
		if !want[string(d.GetOutput())] {
			t.Errorf("the result %q is kept for attempt %d, want it discarded", d.GetOutput(), d.GetAttempt())
		}
	}
	if len(all) != len(kept) {
		t.Errorf("%d results are kept, want %d", len(all), len(kept))
	}
}
