package convert

import (
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// maxWait is how long a unary request for work may wait.
const maxWait = time.Minute

// ParseLease reads a unary request for work.
func ParseLease(m *lessorv1.LeaseRequest, tenant string, l lease.Limits) (engine.LeaseRequest, *lease.FieldError) {
	f := Fields{Limits: l}
	r := engine.LeaseRequest{
		Wants: engine.Wants{
			Worker: f.Required("worker_id", m.GetWorkerId()),
			Space:  engine.Space{Tenant: tenant, Workspace: f.Workspace("workspace_id", m.GetWorkspaceId())},
			Queues: f.Queues("queues", m.GetQueues()),
		},
		Max:     f.Items("max_tasks", m.GetMaxTasks(), 1),
		Wait:    min(f.Span("wait", m.GetWait(), NoLimit), maxWait),
		Request: f.ID("request_id", m.GetRequestId()),
	}
	ParseCapabilities(&f, "capabilities", m.GetCapabilities(), &r.Wants)
	r.Capabilities.Packages = f.PackageIDs("packages", m.GetPackages())
	return r, f.Err
}
