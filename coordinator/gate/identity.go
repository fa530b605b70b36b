package gate

import (
	"context"
	"crypto/x509"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
)

// Names for callers who show no credential.
const (
	DefaultTenant = "default" // tenant of every caller if no credentials are asked for
	anonymous     = "anonymous"
)

// Identity is who calls, and what the caller may do.
type Identity struct {
	auth.Identity
	certificate *x509.Certificate // names the caller; nil: only a token does, or no credentials are asked for
	withToken   bool              // the caller showed a token in addition to the certificate, and the token decides
}

// everyone is the identity of all callers if no credentials are asked for.
var everyone = Identity{Identity: auth.Identity{Tenant: DefaultTenant, Role: auth.Everybody, Subject: anonymous}}

// Caller returns whose quotas apply (X5).
func (who Identity) Caller() quota.Caller {
	return quota.Caller{Tenant: who.Tenant, Credential: who.Credential}
}

type identityKey struct{}

// withIdentity returns ctx with the identity that Identify finds.
func withIdentity(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// Identify returns who makes a call. It is the only source of that: the tenant never comes from a field of a request (S1). For a call that
// the gate has not let in it returns the zero Identity, which has no tenant and may do nothing.
func Identify(ctx context.Context) Identity {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who
}
