package coordinator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// rejectBurst is how many REJECTED verdicts or refusals a caller gets without delay (package
// quota).
const rejectBurst = 1000

// X5: after too many REJECTED verdicts, which a correct worker never gets, further ones are
// delayed. COMMITTED verdicts, and verdicts for other tenants, are not delayed.
func TestRejectedReportsAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		ctx, other := r.OperatorContext(t, "acme"), r.OperatorContext(t, "other")
		if _, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		given, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
		if err != nil {
			t.Fatal(err)
		}
		start := func(ctx context.Context, taskID, leaseID string, want lessorv1.Verdict) (took time.Duration) {
			begin := time.Now()
			res, err := r.Workers.Start(ctx, &lessorv1.StartRequest{TaskId: taskID, LeaseId: leaseID})
			if err != nil || res.GetVerdict() != want {
				t.Fatalf("%v (%v), want %v", res, err, want)
			}
			return time.Since(begin)
		}
		for i := range rejectBurst + 5 {
			want := time.Duration(0)
			if i >= rejectBurst {
				want = time.Second / 100
			}
			if d := start(ctx, "unknown", "forged", lessorv1.Verdict_VERDICT_REJECTED); d != want {
				t.Fatalf("report %d took %v, want %v", i, d, want)
			}
		}
		a := given.GetAssignments()[0]
		if d := start(ctx, a.GetTask().GetTaskId(), a.GetLeaseId(), lessorv1.Verdict_VERDICT_COMMITTED); d != 0 {
			t.Errorf("a good report took %v, want no delay", d)
		}
		if d := start(other, "unknown", "forged", lessorv1.Verdict_VERDICT_REJECTED); d != 0 {
			t.Errorf("a rejected report of another tenant took %v, want no delay", d)
		}
	})
}

// X5: if a caller continues to call although its quota is used up, its refusals are delayed. Each
// refusal has the remaining wait. Calls of another tenant are not delayed.
func TestRefusalsByQuotasAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	cfg := coordinator.Config{
		Auth:   &gate.Auth{},
		Quotas: quota.Config{Tenants: map[string]quota.Limits{"loud": {Calls: quota.Rate{PerSecond: 1.0 / 60}}}},
	}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		loud, quiet := r.OperatorContext(t, "loud"), r.OperatorContext(t, "quiet")
		call := func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			_, err := r.Admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
			return time.Since(begin), err
		}
		if _, err := call(loud); err != nil {
			t.Fatal(err)
		}
		for i := range rejectBurst + 50 {
			took, err := call(loud)
			want := time.Duration(0)
			if i >= rejectBurst {
				want = time.Second / 100
			}
			left := time.Minute - time.Duration(max(i-rejectBurst+1, 0))*time.Second/100
			if wait := wiretest.WantQuotaError(t, err, quota.Calls, "tenant", "0.016666666666666666/s"); took != want || wait != left {
				t.Fatalf("refusal %d took %v with a wait of %v, want %v and %v", i, took, wait, want, left)
			}
		}
		if n := strings.Count(r.Log.String(), "quota used up"); n != 1 {
			t.Errorf("the log has %d lines about the refusals of less than a minute, want one", n)
		}
		// besides that at the start, before there was a token
		if n := strings.Count(r.Log.String(), `"level":"WARN"`); n != 1+1 {
			t.Errorf("the log has %d warnings, want no line of its own for each refused call", n)
		}
		if took, err := call(quiet); err != nil || took != 0 {
			t.Errorf("a call of another tenant took %v (%v), want no delay", took, err)
		}
	})
}
