package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// V15, A5, A6: the first late result of a lease survives a crash. An operator can adopt it once;
// the task is then COMPLETED. The late report itself stays CANCELLED.
func TestLateResultIsKeptAndAdopted(t *testing.T) {
	t.Attr("rules", "V15 A5 A6")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		g := r.lease(1, 0)[0]
		r.say(lease.KindStart, g)
		time.Sleep(lease.DefaultHeartbeatTimeout)
		r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.LeaseExpired)
		r.kill()
		if kept := r.lateResult(id, 1); kept == nil || string(kept.Output) != "done" {
			r.Fatalf("after a crash the late result is %+v, want the output %q", kept, "done")
		}
		task, err := r.Adopt(r.Context(), lease.Adopt{Tenant: home.Tenant, Task: id, By: "ops"})
		if err != nil || task.State() != lease.Completed {
			r.Fatalf("Adopt = %v, %v; want a COMPLETED task", task, err)
		}
		r.kill()
		r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.LeaseExpired)
		var state *lease.StateError
		if _, err := r.Adopt(r.Context(), lease.Adopt{Tenant: home.Tenant, Task: id}); !errors.As(err, &state) {
			r.Errorf("a second Adopt: %v, want a StateError", err)
		}
		if more := r.lease(1, 0); len(more) != 0 {
			r.Error("the adopted task was granted again")
		}
	})
}

// V15: if many late results arrive in one batch, two in each call, the newest MaxDiscarded are
// kept.
func TestNewestLateResultsAreKept(t *testing.T) {
	t.Attr("rules", "V15")
	run(t, func(r *rig) {
		spec := work()
		spec.Retry.MaxLosses = 100
		id := r.submit(spec)[0].ID
		const n = lease.MaxDiscarded + 3
		reports := make([]*lease.Report, n)
		for i := range n {
			g := r.lease(1, time.Hour)[0]
			r.say(lease.KindStart, g)
			time.Sleep(lease.DefaultHeartbeatTimeout)
			reports[i] = &lease.Report{
				Kind: lease.KindComplete, TaskID: id.String(), LeaseID: g.LeaseID, Result: &lease.Result{Output: []byte{byte(i)}},
			}
		}
		r.inOneBatch(func() { // two reports in a step, and all steps in one batch
			for pair := range slices.Chunk(reports, 2) {
				go func() {
					if _, err := r.Judge(r.Context(), home.Tenant, pair); err != nil {
						r.Error(err)
					}
				}()
				synctest.Wait()
			}
		})
		r.kill()
		for attempt := uint32(1); attempt <= n; attempt++ {
			kept := r.lateResult(id, attempt)
			if want := attempt > n-lease.MaxDiscarded; (kept != nil) != want || kept != nil && kept.Output[0] != byte(attempt-1) {
				r.Errorf("the late result of attempt %d is %+v; want it kept: %v", attempt, kept, want)
			}
		}
		if kept := r.version(id).Discarded; len(kept) != lease.MaxDiscarded || kept[0].Attempt != n-lease.MaxDiscarded+1 {
			r.Errorf("the task lists %d kept results, want the newest %d", len(kept), lease.MaxDiscarded)
		}
	})
}

// V15: one late result more than MaxDiscarded arrives, so the first is dropped. The first report is
// repeated in the same batch, so its result is kept again as the newest. The store must have all
// results that the task lists.
func TestRepeatedLateResultIsKeptAgain(t *testing.T) {
	t.Attr("rules", "V15")
	run(t, func(r *rig) {
		spec := work()
		spec.Retry.MaxLosses = 100
		id := r.submit(spec)[0].ID
		var reports []*lease.Report
		for range lease.MaxDiscarded + 1 {
			g := r.lease(1, time.Hour)[0]
			r.say(lease.KindStart, g)
			time.Sleep(lease.DefaultHeartbeatTimeout)
			reports = append(reports, &lease.Report{Kind: lease.KindComplete, TaskID: id.String(), LeaseID: g.LeaseID})
		}
		if _, err := r.Judge(r.Context(), home.Tenant, append(reports, reports[0])); err != nil {
			r.Fatal(err)
		}
		r.restart(Config{}) // also verifies the store
		for _, d := range r.version(id).Discarded {
			if r.lateResult(id, d.Attempt) == nil {
				r.Errorf("the task lists a late result of attempt %d, which the store does not have", d.Attempt)
			}
		}
		if d := r.version(id).Discarded; d[len(d)-1].Attempt != 1 {
			r.Errorf("the newest late result is of attempt %d, want 1", d[len(d)-1].Attempt)
		}
	})
}

// T10, V1: the history records a malformed report under the worker that holds the lease, not under
// the name in the report.
func TestMalformedReportIsRecorded(t *testing.T) {
	t.Attr("rules", "T10 V1")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		g := r.lease(1, 0)[0]
		answers, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{{
			Kind: lease.KindComplete, TaskID: id.String(), LeaseID: g.LeaseID, Worker: strings.Repeat("w", 1000),
			Invalid: &lease.FieldError{Field: "worker_id", Problem: "is too long"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		r.want(answers[0], lease.VerdictRejected, lease.InvalidRequest)
		events := r.version(id).Events()
		last := events[len(events)-1]
		if last.Type != lease.EventRefused || last.Reason != lease.InvalidRequest || last.Actor != "w" {
			r.Errorf("the last event is %+v, want REFUSED with INVALID_REQUEST by worker w", last)
		}
	})
}

// T10: a report that is refused many times is in the history once.
func TestRepeatedRefusalIsRecordedOnce(t *testing.T) {
	t.Attr("rules", "T10")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		g := r.lease(1, 0)[0]
		time.Sleep(lease.DefaultHeartbeatTimeout)
		for range 50 {
			r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.LeaseExpired)
		}
		refused := 0
		for _, e := range r.version(id).Events() {
			if e.Type == lease.EventRefused {
				refused++
			}
		}
		if refused != 1 {
			r.Errorf("%d refusals in the history, want 1", refused)
		}
	})
}
