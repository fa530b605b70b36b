package gate

import (
	"cmp"
	"context"
	"crypto/x509"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
)

// Names for callers who show no credential.
const (
	DefaultTenant = auth.DefaultTenant // tenant of every caller if no credentials are required
	anonymous     = "anonymous"
)

// Identity is who calls, and what the caller may do.
type Identity struct {
	auth.Identity
	// certificate names the caller; nil: only a token names the caller, or no credentials are
	// required.
	certificate *x509.Certificate
	// withToken: the caller has a token in addition to the certificate. The token decides who the
	// caller is.
	withToken bool
	heldUnder string // for a caller with a task token: the credential in it, see TaskToken
}

// HoldsUnder returns the credential for the task tokens that the caller gets; empty: none.
func (who Identity) HoldsUnder() string { return cmp.Or(who.Credential, who.heldUnder) }

// everyone is the identity of all callers if no credentials are required.
var everyone = Identity{Identity: auth.Identity{Tenant: DefaultTenant, Role: auth.Everybody, Subject: anonymous}}

// Caller returns the tenant and the credential whose quotas apply (X5).
func (who Identity) Caller() quota.Caller {
	return quota.Caller{Tenant: who.Tenant, Credential: who.Credential}
}

type identityKey struct{}

// withIdentity returns a copy of ctx that carries the identity for Identify.
func withIdentity(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// Identify returns who makes a call. Handlers take the tenant only from Identify, never from a
// field of a request (S1). For a call that the gate has not admitted, Identify returns the zero
// Identity, which has no tenant and may do nothing.
func Identify(ctx context.Context) Identity {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who
}
