package main

import (
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The detail of an entry is for people. What cannot be read stays as it is.
func TestDetailOfAnAuditEntry(t *testing.T) {
	for _, test := range []struct{ action, detail, want string }{
		{"CreateToken", `role:ROLE_WORKER subject:"gpu-fleet" ttl:{seconds:86400}`, "role WORKER, subject gpu-fleet, ttl 24h0m0s"},
		{
			"BatchDeleteTasks", `filter:{queue:"mail" states:TASK_STATE_FAILED states:TASK_STATE_CANCELLED labels:{key:"team" value:"a b"}} force:true`,
			`filter (queue mail, states FAILED CANCELLED, labels team="a b"), force`,
		},
		{"UpdateQueue", `rate_limit:{per_second:2.5 burst:3} max_inflight:0`, "max inflight 0, rate limit (per second 2.5, burst 3)"},
		{"CancelTask", `reason:"wrong, all of it"`, `reason "wrong, all of it"`},
		{"CancelTask", `reason:"cut he`, `reason:"cut he`},
		{"CancelTask", `newer:1`, `newer:1`},
		{"Frobnicate", `a:1`, `a:1`},
		{"CancelTask", "", ""},
	} {
		if got := auditDetail(&lessorv1.AuditEvent{Action: test.action, Detail: test.detail}); got != test.want {
			t.Errorf("%s %s: got %q, want %q", test.action, test.detail, got, test.want)
		}
	}
}
