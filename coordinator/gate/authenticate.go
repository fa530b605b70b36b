package gate

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/porch"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// Auth says what the coordinator asks of its callers.
type Auth struct {
	// Audience is what tokens must be for; empty: auth.DefaultAudience.
	Audience string
	// RequireCertificate refuses callers that have shown no client certificate, whatever token they have.
	RequireCertificate bool
}

// authenticator tells who calls, by what the caller shows.
type authenticator struct {
	keyring  *auth.Keyring // nil: everyone may come in
	rules    Auth
	attempts porch.Attempts
	owner    string // tenant that may have what is every tenant's
}

// Open reports whether no credentials are asked for.
func (a *authenticator) Open() bool { return a.keyring == nil }

// authenticate tells who calls, by a bearer token, which may be empty, and a TLS connection, which may be nil (X1). A token speaks before the
// certificate, but only for the tenant of the certificate, if that names one; and a certificate that names its holder must be good, token or not. The
// error is an *auth.Error or refusal.ErrNoCertificate; beside it stands whose credential it was, as far as that is certain.
func (a *authenticator) authenticate(token string, conn *tls.ConnectionState) (Identity, error) {
	if a.Open() {
		return everyone, nil
	}
	certified, err := a.certified(conn)
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
	who, err := a.keyring.Verify(token, time.Now())
	if err == nil && named && certified.Tenant != who.Tenant {
		err = &auth.Error{Problem: auth.Conflict}
	}
	if !named {
		return Identity{Identity: who}, err
	}
	return Identity{Identity: who, certificate: certified.certificate, beside: true}, err
}

// certified tells who the certificate of a connection speaks for; the zero Identity where it speaks for nobody.
func (a *authenticator) certified(conn *tls.ConnectionState) (Identity, error) {
	if conn == nil || len(conn.VerifiedChains) == 0 {
		if a.rules.RequireCertificate {
			return Identity{}, refusal.ErrNoCertificate
		}
		return Identity{}, nil
	}
	leaf := conn.VerifiedChains[0][0]
	who, err := a.keyring.Certified(leaf, time.Now())
	return Identity{Identity: who, certificate: leaf}, err
}

// recheck looks again at who was let in, and tells until when the credential is good (X3).
func (a *authenticator) recheck(who Identity) (time.Time, error) {
	if who.certificate == nil {
		return a.keyring.Recheck(who.Identity, time.Now())
	}
	again, err := a.keyring.Certified(who.certificate, time.Now())
	if err != nil || !who.beside {
		return again.Until, err
	}
	until, err := a.keyring.Recheck(who.Identity, time.Now())
	if again.Until.Before(until) {
		until = again.Until
	}
	return until, err
}

// caller authenticates a gRPC call.
func (a *authenticator) caller(ctx context.Context) (Identity, error) {
	token, err := bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		return Identity{}, err
	}
	return a.authenticate(token, connection(ctx))
}

// shownKey is of the identity that a call has shown before its message was read. Whether it is still good is looked at when the message is there.
type shownKey struct{}

// Shown keeps who has shown a good credential before the message of the call was read; see porch.Gate.
func (a *authenticator) Shown(ctx context.Context) (context.Context, error) {
	if a.Open() {
		return ctx, nil
	}
	who, err := a.caller(ctx)
	if err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, shownKey{}, who), nil
}

// bearer takes the token out of the authorization headers; empty where there is none. Two of them could be read as either.
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

// connection is the TLS connection of a call; nil where there is none.
func connection(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return &info.State
		}
	}
	return nil
}

// Credentials is what a call has shown: the token, empty where there is none, and whether there is a client certificate.
func Credentials(ctx context.Context) (token string, certified bool) {
	token, _ = bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	conn := connection(ctx)
	return token, conn != nil && len(conn.VerifiedChains) > 0
}
