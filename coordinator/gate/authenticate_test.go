package gate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// certifiedConn returns the state of a connection whose client has a verified certificate with
// these URIs, valid for an hour.
func certifiedConn(t *testing.T, names ...string) *tls.ConnectionState {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	for _, name := range names {
		uri, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
}

// newKeyedGate returns a gate with a store of its own, and a token of an operator of acme.
func newKeyedGate(t *testing.T, rules Auth) (g *Gate, token string) {
	t.Helper()
	st := memstore.New()
	keep := func(_ context.Context, _, _ string, put func(*store.Batch)) error {
		var b store.Batch
		put(&b)
		return st.Commit(context.Background(), &b)
	}
	keyring, err := auth.Open(st, "", keep, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err = keyring.Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Operator, Subject: "ann"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &Gate{keyring: keyring, rules: rules, attempts: preauth.NewAttempts(), refused: newRefused()}, token
}

// X1: a certificate identifies its holder by exactly one URI of the documented form. If a token of
// the same tenant comes with it, the token's identity is used.
func TestCertificates(t *testing.T) {
	t.Attr("rules", "X1")
	optional, token := newKeyedGate(t, Auth{})
	required, same := newKeyedGate(t, Auth{RequireCertificate: true})
	unverified := certifiedConn(t, "lessor://acme/worker/w")
	unverified.VerifiedChains = nil
	for name, tt := range map[string]struct {
		g       *Gate
		token   string
		conn    *tls.ConnectionState
		who     string // tenant, role and subject
		problem auth.Problem
	}{
		"a name":                       {optional, "", certifiedConn(t, "lessor://acme/worker/gpu/7"), "acme worker gpu/7", ""},
		"beside other names":           {optional, "", certifiedConn(t, "spiffe://x/y", "lessor://acme/viewer/v"), "acme viewer v", ""},
		"no name":                      {optional, "", certifiedConn(t), "", auth.Missing},
		"two names":                    {optional, "", certifiedConn(t, "lessor://acme/worker/w", "lessor://evil/operator/w"), "", auth.Malformed},
		"no such role":                 {optional, "", certifiedConn(t, "lessor://acme/king/w"), "", auth.Malformed},
		"no role":                      {optional, "", certifiedConn(t, "lessor://acme/w"), "", auth.Malformed},
		"no subject":                   {optional, "", certifiedConn(t, "lessor://acme/worker/"), "", auth.Malformed},
		"a query":                      {optional, "", certifiedConn(t, "lessor://acme/worker/w?x"), "", auth.Malformed},
		"a user":                       {optional, "", certifiedConn(t, "lessor://x@acme/worker/w"), "", auth.Malformed},
		"a port":                       {optional, "", certifiedConn(t, "lessor://acme:80/worker/w"), "", auth.Malformed},
		"an empty port":                {optional, "", certifiedConn(t, "lessor://acme:/worker/w"), "", auth.Malformed},
		"not verified":                 {optional, "", unverified, "", auth.Missing},
		"nothing":                      {optional, "", nil, "", auth.Missing},
		"a token without TLS":          {optional, token, nil, "acme operator ann", ""},
		"a token and no name":          {optional, token, certifiedConn(t), "acme operator ann", ""},
		"a token of the same tenant":   {optional, token, certifiedConn(t, "lessor://acme/worker/w"), "acme operator ann", ""},
		"a token of another tenant":    {optional, token, certifiedConn(t, "lessor://evil/worker/w"), "", auth.Conflict},
		"a token and two names":        {optional, token, certifiedConn(t, "lessor://acme/worker/w", "lessor://evil/operator/w"), "", auth.Malformed},
		"a bad token and a good name":  {optional, "x", certifiedConn(t, "lessor://acme/worker/w"), "", auth.Malformed},
		"a task token":                 {optional, "lst_x", nil, "", auth.Misplaced},
		"a task token and a good name": {optional, "lst_x", certifiedConn(t, "lessor://acme/worker/w"), "", auth.Misplaced},
		"required, and not there":      {required, same, nil, "", "certificate"},
		"required, and not verified":   {required, same, unverified, "", "certificate"},
		"required, without a token":    {required, "", certifiedConn(t, "lessor://acme/worker/w"), "acme worker w", ""},
		"required, with a token":       {required, same, certifiedConn(t), "acme operator ann", ""},
		"required, and nothing at all": {required, "", nil, "", "certificate"},
	} {
		who, err := tt.g.authenticate(tt.token, tt.conn)
		got := ""
		if err == nil {
			got = who.Tenant + " " + who.Role.String() + " " + who.Subject
		}
		var problem auth.Problem
		if bad := (*auth.Error)(nil); errors.As(err, &bad) {
			problem = bad.Problem
		} else if refusal.CodeOf(refusal.Status(err)) == refusal.CodeCertificate {
			problem = "certificate"
		}
		if got != tt.who || problem != tt.problem {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, tt.who, tt.problem)
		}
	}
}

// X3, X2: a certificate is valid until it expires, or until its own tenant revokes it; another
// tenant cannot revoke it. After that, the certificate is refused even if a valid token comes with
// it.
func TestCertificatesEnd(t *testing.T) {
	t.Attr("rules", "X3 X2")
	g, token := newKeyedGate(t, Auth{RequireCertificate: true})
	stranger, _, err := g.keyring.Create(t.Context(), auth.Request{Tenant: "evil", Role: auth.Operator, Subject: "eve"},
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	conn := certifiedConn(t, "lessor://acme/worker/w")
	ends := conn.PeerCertificates[0].NotAfter
	who, err := g.authenticate("", conn)
	if err != nil || !who.Until.Equal(ends) {
		t.Fatalf("the identity is %+v (%v), want one until %v", who, err, ends)
	}
	beside, err := g.authenticate(token, conn)
	if until, err2 := g.recheck(beside); err != nil || err2 != nil || !until.Equal(ends) || beside.Role != auth.Operator {
		t.Fatalf("the identity with a token is %+v until %v (%v), want an operator until %v",
			beside, until, errors.Join(err, err2), ends)
	}
	plain, err := g.authenticate(token, certifiedConn(t)) // it names nobody, so it ends nothing
	if until, err2 := g.recheck(plain); err != nil || err2 != nil || !until.Equal(plain.Until) {
		t.Errorf("the token beside a certificate without a name ends at %v (%v), want %v",
			until, errors.Join(err, err2), plain.Until)
	}
	if _, err := g.keyring.Certified(conn.PeerCertificates[0], who.Until); err == nil {
		t.Error("the certificate is accepted at the time when it expires")
	}
	second, issued, err := g.keyring.Create(t.Context(),
		auth.Request{Tenant: "acme", Role: auth.Operator, Subject: "ann"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := g.authenticate(second, conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.keyring.Revoke(t.Context(), "acme", issued.ID, "ann", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.recheck(revoked); err == nil {
		t.Error("a revoked token beside a good certificate goes on")
	}
	for _, tenant := range []string{"evil", "acme"} {
		if _, err := g.keyring.Revoke(t.Context(), tenant, who.Credential, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		for what, try := range map[string]func() error{
			"alone, live":  func() error { _, err := g.recheck(who); return err },
			"alone":        func() error { _, err := g.authenticate("", conn); return err },
			"beside, live": func() error { _, err := g.recheck(beside); return err },
			"beside":       func() error { _, err := g.authenticate(token, conn); return err },
			"beside another tenant's": func() error {
				if tenant != "acme" {
					return nil
				}
				_, err := g.authenticate(stranger, conn)
				return err
			},
		} {
			if err := try(); (err != nil) != (tenant == "acme") {
				t.Errorf("%s, revoked by %s: %v, want a refusal: %v", what, tenant, err, tenant == "acme")
			}
		}
	}
	for _, id := range []string{"cert-", "cert-00", "cert-" + strings.Repeat("AB", 20), who.Credential + "0", "cert-" + who.Credential} {
		if _, err := g.keyring.Revoke(t.Context(), "acme", id, "ann", time.Now()); !errors.Is(err, auth.ErrNotFound) {
			t.Errorf("revoke %q: %v, want ErrNotFound", id, err)
		}
	}
}

// X3: a connection is retired if its certificate names somebody and has expired or was revoked, and
// for no other reason.
func TestCertificateEnded(t *testing.T) {
	t.Attr("rules", "X3")
	synctest.Test(t, func(t *testing.T) {
		g, _ := newKeyedGate(t, Auth{RequireCertificate: true})
		ended := func(a *Gate, conn *tls.ConnectionState) bool {
			p := &peer.Peer{}
			if conn != nil {
				p.AuthInfo = credentials.TLSInfo{State: *conn}
			}
			return a.CertificateEnded(peer.NewContext(t.Context(), p))
		}
		unnamed, expires, revoked := certifiedConn(t), certifiedConn(t, "lessor://acme/worker/w"),
			certifiedConn(t, "lessor://acme/worker/w")
		who, err := g.authenticate("", revoked)
		if err != nil {
			t.Fatal(err)
		}
		for _, conn := range []*tls.ConnectionState{nil, unnamed, expires, revoked, certifiedConn(t, "lessor://acme/king/w")} {
			if ended(g, conn) {
				t.Errorf("the certificate %v has ended", conn)
			}
		}
		if _, err := g.keyring.Revoke(t.Context(), "acme", who.Credential, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		if !ended(g, revoked) || ended(g, expires) {
			t.Error("not exactly the revoked certificate has ended")
		}
		time.Sleep(time.Hour)
		if !ended(g, expires) || ended(g, unnamed) {
			t.Error("of the expired certificates, not exactly the one with a name has ended")
		}
		if ended(&Gate{}, expires) {
			t.Error("a certificate has ended although no credentials are required")
		}
	})
}

// W2: a connection over TLS has a client certificate only if that was verified.
func TestCredentialsOfACall(t *testing.T) {
	t.Attr("rules", "W2")
	verified := certifiedConn(t)
	for name, tt := range map[string]struct {
		info credentials.AuthInfo
		want bool
	}{
		"no TLS":         {nil, false},
		"no certificate": {credentials.TLSInfo{}, false},
		"not verified":   {credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: verified.PeerCertificates}}, false},
		"verified":       {credentials.TLSInfo{State: *verified}, true},
	} {
		ctx := peer.NewContext(callWith(t, "x"), &peer.Peer{AuthInfo: tt.info})
		if token, certified := Credentials(ctx); token != "x" || certified != tt.want {
			t.Errorf("%s: the token is %q, and there is a certificate: %v, want %v", name, token, certified, tt.want)
		}
	}
}
