package httpapi

import (
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// H2: the HTTP status for every reason that a verdict can have.
func TestEveryReasonHasItsStatus(t *testing.T) {
	t.Attr("rules", "H2")
	want := map[lease.Reason]kind{
		lease.TaskCancelled: {409, "task_already_terminal"}, lease.AlreadyReported: {409, "task_already_terminal"},
		lease.DuplicateReport: {409, "task_already_terminal"}, lease.Superseded: {409, "attempt_mismatch"},
		lease.LeaseExpired: {410, "task_expired"}, lease.DispatchUnacked: {410, "task_expired"},
		lease.CoordinatorRecovered: {410, "task_expired"},
		lease.TaskGone:             {410, "task_expired"}, lease.CancelTimeout: {410, "task_expired"},
		lease.DeadlineExceeded: {410, "task_expired"},
		lease.Revoked:          {410, "task_expired"}, lease.ResultTooLarge: {413, "too_large"},
		lease.InvalidRequest: {400, "invalid_request"}, lease.UnknownTask: {400, "invalid_request"},
		lease.InvalidLease: {400, "invalid_request"},
	}
	for number := range lessorv1.Reason_name {
		reason := lease.Reason(number)
		v := reason.Verdict()
		if v == 0 || v == lease.VerdictCommitted {
			continue
		}
		p := refused(&lessorv1.CompleteResponse{
			Verdict: lessorv1.Verdict(v), Reason: lessorv1.Reason(number),
			TaskState: lessorv1.TaskState_TASK_STATE_COMPLETED, CurrentAttempt: 7,
			Detail: "artifacts[0].resource_id: is bad",
		}, 3)
		if (kind{p.status, p.body.Error}) != want[reason] {
			t.Errorf("%v is %d %s, want %v", reason, p.status, p.body.Error, want[reason])
		}
		if p.body.Verdict == nil || *p.body.Verdict != v.String() || p.body.Reason != reason.String() {
			t.Errorf("%v: the answer is %+v, want this verdict and reason", reason, p.body)
		}
		if named := p.status == 400 || p.status == 413; named != (p.body.Field == "artifacts[0].resourceId") {
			t.Errorf("%v: the field is %q, want artifacts[0].resourceId: %v", reason, p.body.Field, named)
		}
		if mismatch := p.body.Error == "attempt_mismatch"; mismatch != (p.body.ExpectedAttempt == 7 && p.body.ReceivedAttempt == 3) {
			t.Errorf("%v: the attempts are %d and %d, want 7 and 3: %v",
				reason, p.body.ExpectedAttempt, p.body.ReceivedAttempt, mismatch)
		}
		if terminal := p.body.Error == "task_already_terminal"; terminal != (p.body.State == "SUCCEEDED") {
			t.Errorf("%v: the state is %q, want SUCCEEDED: %v", reason, p.body.State, terminal)
		}
	}
	if refused(&lessorv1.CompleteResponse{Verdict: lessorv1.Verdict_VERDICT_COMMITTED}, 1) != nil {
		t.Error("COMMITTED is refused")
	}
}

// H2: the progress that a heartbeat sends in percent is shown as the same number.
func TestProgressIsShownAsItWasSent(t *testing.T) {
	t.Attr("rules", "H2")
	all := []float64{0.1, 7, 14.5, 28.999, 29, 33.3, 55, 57, 58, 99.99, 100}
	for tenths := range 1001 {
		all = append(all, float64(tenths)/10)
	}
	for _, told := range all {
		m := &heartbeatRequest{ProgressPct: &told}
		if shown := progressOf(m.progress()).ProgressPct; shown != told {
			t.Errorf("%v is shown as %v", told, shown)
		}
	}
}

// H2, S4: errors have the JSON names of fields, even if the protos have other names.
func TestErrorsHaveTheJSONNamesOfFields(t *testing.T) {
	t.Attr("rules", "H2 S4")
	for path, want := range map[string]string{
		"task.retry_policy.max_backoff": "retryPolicy.maxBackoffMs", "worker_id": "workerId", "progress.fraction": "progressPct",
		"artifacts[3].resource_id": "artifacts[3].resourceId", "queues[0]": "queues[0]", "task.cancel_grace": "cancelGracePeriodMs",
		`task.requirements.resources["gpu.vram_gb"]`: `requirements.resources["gpu.vram_gb"]`,
		"task": "task", "": "", "error.retry_after": "error.retryAfterMs", "task.affinity.ttl": "affinity.ttlMs",
	} {
		if got := jsonPath(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for text, want := range map[string]string{
		"is 1m30s; it must be at least 2m0s, twice heartbeat_interval (1m0s)": "is 1m30s; it must be at least 2m0s, twice heartbeatIntervalMs (1m0s)",
		`is "a_b\"c_d"; resource_refs[0] names "e_f"`:                         `is "a_b\"c_d"; resourceRefs[0] names "e_f"`,
	} {
		p := &problem{}
		if p.violated("task.worker_id", text); p.body.Message != "workerId: "+want {
			t.Errorf("%s is %s, want %s", text, p.body.Message, want)
		}
	}
}
