package main

import (
	"strings"
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

// A row says who called, with which credential and from where, what it was about, and how often it
// was refused.
func TestRowOfAnAuditEntry(t *testing.T) {
	row := strings.Join(auditCells(&lessorv1.AuditEvent{
		Subject: "ann", Action: "CancelTask", Outcome: "E.AUTH.FORBIDDEN", Object: "t1", WorkspaceId: "ws",
		Role: "viewer", CredentialId: "k1", Peer: "192.0.2.7",
		Detail: `reason:"old"`, Times: 3, Tasks: 1,
	})[1:], "|")
	if want := "ann|CancelTask|E.AUTH.FORBIDDEN|t1|ws|viewer|k1|192.0.2.7|1 task; 3 times; reason old"; row != want {
		t.Errorf("got %s, want %s", row, want)
	}
}
