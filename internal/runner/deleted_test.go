package runner

import (
	"testing"
	"testing/synctest"
)

// RestoreDeleted has those lines submitted again whose tasks are gone, and only those. With
// keepOrder they are printed in their place, also by a process that resumes the run later.
func TestDeletedLinesAreSubmittedAgain(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		for _, deleted := range [][]int{nil, {2, 4}, {1, 2, 3, 4, 5}} {
			synctest.Test(t, func(t *testing.T) {
				fake, dir := newFakeCoordinator(), t.TempDir()
				r := startRun(t, fake, dir, 5, keepOrder)
				for line := range 5 {
					fake.end(line+1, completed)
				}
				r.finish("<a><b><c><d><e>")
				for _, line := range deleted {
					fake.remove(line)
				}
				r = startRunAfter(t, fake, dir, 5, keepOrder, func(job *Job) {
					if lines, err := job.RestoreDeleted(t.Context(), fake); lines != int64(len(deleted)) || err != nil {
						t.Errorf("%d lines are submitted again, %v; want %v", lines, err, deleted)
					}
				})
				fake.mu.Lock()
				if open := fake.open(); open != len(deleted) {
					t.Errorf("%d lines are open, want %v", open, deleted)
				}
				fake.mu.Unlock()
				synctest.Wait()
				for i := range deleted {
					fake.end(6+len(deleted)-1-i, completed)
					synctest.Wait()
				}
				<-r.done
				if keepOrder {
					r.finish("<a><b><c><d><e>")
				} else if err := r.job.Close(); err != nil {
					t.Error(err)
				}
				if r.err != nil || !r.summary.OK() {
					t.Errorf("deleted %v: summary %v, error %v, want all lines done", deleted, r.summary, r.err)
				}
				if keepOrder {
					startRun(t, fake, dir, 5, keepOrder).finish("<a><b><c><d><e>")
				}
			})
		}
	}
}

// A stopped run prints a line that was submitted again before those after it, and with it in
// between, none of these.
func TestStoppedRunKeepsTheOrderOfLinesSubmittedAgain(t *testing.T) {
	for ended, want := range map[bool]string{false: "<a>", true: "<a><b><c>"} {
		synctest.Test(t, func(t *testing.T) {
			fake, dir := newFakeCoordinator(), t.TempDir()
			r := startRun(t, fake, dir, 3, true)
			for line := range 3 {
				fake.end(line+1, completed)
			}
			r.finish("<a><b><c>")
			fake.remove(2)
			r = startRunAfter(t, fake, dir, 3, true, func(job *Job) {
				if _, err := job.RestoreDeleted(t.Context(), fake); err != nil {
					t.Error(err)
				}
			})
			if ended {
				fake.mu.Lock()
				fake.watches = nil // its end is not seen before the run is stopped
				fake.mu.Unlock()
				fake.end(4, completed)
			}
			r.cancel(errKilled)
			r.finish(want)
		})
	}
}

// The lines of an interrupted submit are not taken for deleted: Run submits all lines.
func TestInterruptedSubmitHasNoDeletedLines(t *testing.T) {
	job := mustOpen(t, t.TempDir(), "a\nb\n", testOptions, false)
	if lines, err := job.RestoreDeleted(t.Context(), newFakeCoordinator()); lines != 0 || err != nil || job.there != nil {
		t.Errorf("%d lines are gone, %v; want none", lines, err)
	}
}
