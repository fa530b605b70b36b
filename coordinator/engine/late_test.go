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

// V15, A5, A6: the first late result of a lease survives a crash. An operator can adopt it once; the task is then COMPLETED. The late report itself
// stays CANCELLED.
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
			r.Fatalf("kept: %+v", kept)
		}
		task, err := r.Adopt(r.Context(), lease.Adopt{Tenant: home.Tenant, Task: id, By: "ops"})
		if err != nil || task.State() != lease.Completed {
			r.Fatalf("adopt: %v, %v", task, err)
		}
		r.kill()
		r.want(r.say(lease.KindComplete, g), lease.VerdictCancelled, lease.LeaseExpired)
		var state *lease.StateError
		if _, err := r.Adopt(r.Context(), lease.Adopt{Tenant: home.Tenant, Task: id}); !errors.As(err, &state) {
			r.Errorf("adopt again: %v", err)
		}
		if more := r.lease(1, 0); len(more) != 0 {
			r.Error("an adopted task was granted")
		}
	})
}

// V15: of many late results that come in one batch, two in each call, the newest MaxDiscarded are kept.
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
				r.Errorf("attempt %d: kept %+v", attempt, kept)
			}
		}
		if kept := r.version(id).Discarded; len(kept) != lease.MaxDiscarded || kept[0].Attempt != n-lease.MaxDiscarded+1 {
			r.Errorf("the task tells of %d kept results", len(kept))
		}
	})
}

// V15: there is one late result too many, so the first is dropped. Its report is repeated in the same batch and kept again as the newest: what the
// task lists must also be in the store.
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
				r.Errorf("the task tells of a result of attempt %d, which is not there", d.Attempt)
			}
		}
		if d := r.version(id).Discarded; d[len(d)-1].Attempt != 1 {
			r.Errorf("the newest result is of attempt %d, want 1", d[len(d)-1].Attempt)
		}
	})
}

// T10, V1: a malformed report is in the history under the worker that holds the lease, not under the name that the report gives.
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
			r.Errorf("the history ends with %+v", last)
		}
	})
}

// T10: a report that is refused again and again is in the history once.
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
