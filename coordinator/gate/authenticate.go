package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
)

// Auth says which credentials the coordinator requires.
type Auth struct {
	// Audience is the audience that tokens must have; empty: auth.DefaultAudience.
	Audience string
	// RequireCertificate refuses every caller without a client certificate, even if the caller has
	// a valid token.
	RequireCertificate bool
}

// Open reports whether the coordinator accepts calls without credentials.
func (g *Gate) Open() bool { return g.keyring == nil }

// authenticate returns who makes a call, given its bearer token ("" if none) and TLS connection
// (nil if none) (X1). A token takes precedence over the certificate. But if the certificate names a
// tenant, the token must belong to that tenant, and the certificate must be valid too. The error is
// an *auth.Error or refusal.ErrNoCertificate. The Identity returned with an error names the owner
// of the credential as far as that is certain.
func (g *Gate) authenticate(token string, conn *tls.ConnectionState) (Identity, error) {
	if g.Open() {
		return everyone, nil
	}
	certified, err := g.certified(conn)
	named := certified.Tenant != ""
	switch {
	case err != nil:
		return certified, err
	case token != "":
	case !named:
		return Identity{}, &auth.Error{Problem: auth.Missing}
	default:
		return certified, nil
	}
	who, err := g.keyring.Verify(token, time.Now())
	switch {
	case err != nil && tasktoken.LooksLikeToken(token):
		err = &auth.Error{Problem: auth.Misplaced}
	case err == nil && named && certified.Tenant != who.Tenant:
		err = &auth.Error{Problem: auth.Conflict}
	}
	if !named {
		return Identity{Identity: who}, err
	}
	return Identity{Identity: who, certificate: certified.certificate, withToken: true}, err
}

// certified returns the holder that the client certificate of a connection names. It returns the
// zero Identity if the certificate names no holder or if there is no certificate.
func (g *Gate) certified(conn *tls.ConnectionState) (Identity, error) {
	if conn == nil || len(conn.VerifiedChains) == 0 {
		if g.rules.RequireCertificate {
			return Identity{}, refusal.ErrNoCertificate
		}
		return Identity{}, nil
	}
	leaf := conn.VerifiedChains[0][0]
	who, err := g.keyring.Certified(leaf, time.Now())
	return Identity{Identity: who, certificate: leaf}, err
}

// recheck checks the credential of an identity again, and returns the time at which the credential
// ends (X3).
func (g *Gate) recheck(who Identity) (time.Time, error) {
	if who.certificate == nil {
		return g.keyring.Recheck(who.Identity, time.Now())
	}
	again, err := g.keyring.Certified(who.certificate, time.Now())
	if err != nil || !who.withToken {
		return again.Until, err
	}
	until, err := g.keyring.Recheck(who.Identity, time.Now())
	if again.Until.Before(until) {
		until = again.Until
	}
	return until, err
}

// caller authenticates a call or an HTTP request. If the credential is valid, its connection is not
// closed to make room for others.
func (g *Gate) caller(ctx context.Context) (Identity, error) {
	token, err := bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return Identity{}, err
	}
	who, err := g.authenticate(token, preauth.TLSState(ctx))
	if err == nil {
		preauth.CredentialShown(ctx)
	}
	return who, err
}

// CertificateEnded reports whether the client certificate of the connection of a call names
// somebody, and has expired or was revoked; see preauth.Gate.
func (g *Gate) CertificateEnded(ctx context.Context) bool {
	if g.Open() {
		return false
	}
	_, err := g.certified(preauth.TLSState(ctx))
	bad, ok := errors.AsType[*auth.Error](err)
	return ok && (bad.Problem == auth.Expired || bad.Problem == auth.Revoked)
}

// checkedKey is the context key of the identity that CheckCredential has found. The gate checks the
// identity again when the call's message has been read.
type checkedKey struct{}

// ownerKey is the context key of whether CheckCredential knows the owner of a credential that is
// not valid.
type ownerKey struct{}

// CheckCredential checks the credential of a call before its message is read, and puts the identity
// of a valid one into the context; see preauth.Gate.
func (g *Gate) CheckCredential(ctx context.Context) (context.Context, error) {
	who, err := g.caller(ctx)
	if err != nil {
		return context.WithValue(ctx, ownerKey{}, who.Tenant != ""), err
	}
	return context.WithValue(ctx, checkedKey{}, who), nil
}

// TenantOf returns the tenant of a call over gRPC that is not admitted yet, or "" if
// CheckCredential has not found its credential valid. Handlers take the tenant from Identify.
func TenantOf(ctx context.Context) string {
	who, _ := ctx.Value(checkedKey{}).(Identity)
	return who.Tenant
}

// bearer returns the token in the authorization headers, or "" if there are none. More than one
// header is an error, because it would be ambiguous.
func bearer(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	scheme, token, found := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !found || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", &auth.Error{Problem: auth.Malformed}
	}
	return token, nil
}

// Credentials returns the token of a call, or "" if it has none, and whether the caller has a
// verified client certificate.
func Credentials(ctx context.Context) (token string, certified bool) {
	token, _ = bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	conn := preauth.TLSState(ctx)
	return token, conn != nil && len(conn.VerifiedChains) > 0
}
