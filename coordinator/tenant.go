package coordinator

import (
	"context"

	"github.com/lessor-dev/lessor/lease"
)

// Names that stand in where the caller gives none.
const (
	DefaultTenant    = "default" // of every caller, as no credentials are configured
	DefaultWorkspace = "default" // where a request leaves workspace_id empty
	anonymous        = "anonymous"
)

// identity is who calls.
type identity struct {
	Tenant  string
	Subject string // for the history: who cancelled, retried, deleted
}

// identify tells who calls. It is the one place that does: the tenant never comes from a field of a request (S1). Without credentials,
// everyone who reaches the listener is the default tenant.
func identify(context.Context) identity {
	return identity{Tenant: DefaultTenant, Subject: anonymous}
}

// workspace reads a workspace_id.
func workspace(field, id string, l lease.Limits) (string, *lease.FieldError) {
	if id == "" {
		return DefaultWorkspace, nil
	}
	return id, lease.CheckID(field, id, l)
}
