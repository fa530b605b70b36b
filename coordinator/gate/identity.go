package gate

import (
	"context"
	"crypto/x509"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
)

// Names that stand in where the caller gives none.
const (
	DefaultTenant = "default" // of every caller, where no credentials are asked for
	anonymous     = "anonymous"
)

// Identity is who calls, and what the caller may do.
type Identity struct {
	auth.Identity
	certificate *x509.Certificate // that says who the caller is; nil: a token alone does, or no credentials are asked for
	beside      bool              // the caller came in by a token, with the certificate beside it
}

// everyone is who calls where no credentials are asked for.
var everyone = Identity{Identity: auth.Identity{Tenant: DefaultTenant, Role: auth.Everybody, Subject: anonymous}}

// Caller is whose quotas count (X5).
func (who Identity) Caller() quota.Caller {
	return quota.Caller{Tenant: who.Tenant, Credential: who.Credential}
}

type identityKey struct{}

// as is ctx of a call by who.
func as(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// Identify tells who calls. It is the one place that does: the tenant never comes from a field of a request (S1). A call that nobody has let
// in is of no tenant and may do nothing.
func Identify(ctx context.Context) Identity {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who
}
