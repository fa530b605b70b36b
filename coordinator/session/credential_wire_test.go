package session_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W2, X1: a credential in the handshake gives no access. It must be the one that came with the
// call. A coordinator that requires no credentials ignores it.
func TestHandshakeAuth(t *testing.T) {
	t.Attr("rules", "W2 X1")
	type says = lessorv1.HandshakeAuth
	const byToken, byCertificate = lessorv1.AuthMode_AUTH_MODE_TOKEN, lessorv1.AuthMode_AUTH_MODE_MTLS
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, gate.DefaultTenant, auth.Worker)
		operator, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
		for name, tt := range map[string]struct {
			auth   *says
			code   string
			status codes.Code
		}{
			"nothing":       {nil, "", codes.OK},
			"the mode":      {&says{Mode: byToken}, "", codes.OK},
			"the same":      {&says{Mode: byToken, Token: token}, "", codes.OK},
			"another one":   {&says{Mode: byToken, Token: operator}, refusal.CodeDenied, codes.PermissionDenied},
			"a bad one":     {&says{Token: "nonsense"}, refusal.CodeDenied, codes.PermissionDenied},
			"a certificate": {&says{Mode: byCertificate, Token: token}, refusal.CodeCertificate, codes.Unauthenticated},
		} {
			h := wiretest.HandshakeOf(name)
			h.Auth = tt.auth
			worker := r.WithToken(token).OpenStream(t, name)
			id := worker.Send(h)
			if tt.code == "" {
				wiretest.NextPayload[*lessorv1.Accept](worker)
				continue
			}
			worker.WantError(id, tt.code, "handshake.auth")
			if err := worker.WaitForEnd(); status.Code(err) != tt.status || refusal.CodeOf(err) != tt.code {
				t.Errorf("%s: the stream ended with %v, want %v and %s", name, err, tt.status, tt.code)
			}
		}
	})
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		h := wiretest.HandshakeOf("w")
		h.Auth = &says{Mode: byToken, Token: "anything"}
		worker := r.OpenStream(t, "w")
		worker.Send(h)
		wiretest.NextPayload[*lessorv1.Accept](worker)
	})
}

// A worker that does not know its tenant states "default", and is told the right one. That is
// no matter for the log; another tenant is, since it was set.
func TestWorkerThatDoesNotKnowItsTenant(t *testing.T) {
	for stated, logged := range map[string]bool{gate.DefaultTenant: false, "amce": true} {
		wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
			token, _ := r.Issue(t, "acme", auth.Worker)
			worker := r.WithToken(token).OpenStream(t, "w")
			m := worker.NewFrame(nil)
			wiretest.SetPayload(m, wiretest.HandshakeOf("w"))
			m.Tenant = stated
			worker.WantError(worker.SendFrame(m), refusal.CodeDenied, `it must be "acme"`)
			_ = worker.WaitForEnd()
			synctest.Wait()
			if log := r.Log.String(); strings.Contains(log, `"level":"INFO","msg":"a worker was told`) != logged {
				t.Errorf("%s: want a line: %v; the log has\n%s", stated, logged, log)
			}
		})
	}
}

// W2, X1, X3: a worker with a client certificate may state the mode MTLS in its handshake, and may
// repeat the token that came with the call. If the certificate is revoked, the session and further
// calls are refused although their token is valid.
func TestHandshakeAuthBesideACertificate(t *testing.T) {
	t.Attr("rules", "W2 X1 X3")
	type says = lessorv1.HandshakeAuth
	const byToken, byCertificate = lessorv1.AuthMode_AUTH_MODE_TOKEN, lessorv1.AuthMode_AUTH_MODE_MTLS
	wiretest.WithCertificates(t, func(t *testing.T, r *wiretest.Rig, cert *x509.Certificate, _ func()) {
		token, _ := r.Issue(t, gate.DefaultTenant, auth.Worker)
		for name, tt := range map[string]struct {
			token string // sent with the call
			auth  *says
			code  string
		}{
			"nothing":                    {"", nil, ""},
			"the mode":                   {"", &says{Mode: byCertificate}, ""},
			"a token that did not come":  {"", &says{Mode: byToken, Token: token}, refusal.CodeDenied},
			"another mode and a token":   {"", &says{Mode: byCertificate, Token: token}, refusal.CodeDenied},
			"both":                       {token, &says{Mode: byCertificate, Token: token}, ""},
			"both, and the token's mode": {token, &says{Mode: byToken, Token: token}, ""},
			"both, and another token":    {token, &says{Mode: byCertificate, Token: "nonsense"}, refusal.CodeDenied},
		} {
			h := wiretest.HandshakeOf(name)
			h.Auth = tt.auth
			worker := r.WithToken(tt.token).OpenStream(t, name)
			id := worker.Send(h)
			if tt.code == "" {
				wiretest.NextPayload[*lessorv1.Accept](worker)
				continue
			}
			worker.WantError(id, tt.code, "handshake.auth")
			if err := worker.WaitForEnd(); status.Code(err) != codes.PermissionDenied || refusal.CodeOf(err) != tt.code {
				t.Errorf("%s: the stream ended with %v, want PERMISSION_DENIED and %s", name, err, tt.code)
			}
		}
		both := r.WithToken(token).OpenStream(t, "beside")
		both.Send(wiretest.HandshakeOf("beside"))
		wiretest.NextPayload[*lessorv1.Accept](both)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), gate.DefaultTenant, auth.CertificateID(cert), "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		if reset := wiretest.NextPayload[*lessorv1.Reset](both); reset.GetCode() != refusal.CodeToken {
			t.Errorf("the reset is %v, want %s", reset, refusal.CodeToken)
		}
		if err := both.WaitForEnd(); wiretest.ProblemOf(err) != string(auth.Revoked) {
			t.Errorf("the session with certificate and token ended with %v, want a refusal of the revoked certificate", err)
		}
		if err := leaseAnew(wiretest.WithToken(t.Context(), token), r); wiretest.ProblemOf(err) != string(auth.Revoked) {
			t.Errorf("a call with certificate and token: %v, want a refusal of the revoked certificate", err)
		}
	})
}

// X1, X3: a connection whose certificate is revoked is closed within a second, so that the client
// connects again. If its certificate file was replaced, the new certificate is accepted; otherwise
// the client is refused, until the file is replaced, however late.
func TestCertificateIsReplacedAndRevoked(t *testing.T) {
	t.Attr("rules", "X1 X3")
	for _, replaced := range []bool{true, false} {
		wiretest.WithCertificates(t, func(t *testing.T, r *wiretest.Rig, cert *x509.Certificate, replace func()) {
			worker := r.OpenStream(t, "w")
			worker.Send(wiretest.HandshakeOf("w"))
			wiretest.NextPayload[*lessorv1.Accept](worker)
			if replaced {
				replace()
			}
			if _, err := r.Gate.Keyring().Revoke(t.Context(), gate.DefaultTenant, auth.CertificateID(cert), "ann", time.Now()); err != nil {
				t.Fatal(err)
			}
			wiretest.NextPayload[*lessorv1.Reset](worker)
			if err := worker.WaitForEnd(); wiretest.ProblemOf(err) != string(auth.Revoked) {
				t.Errorf("the session ended with %v, want a refusal of the revoked certificate", err)
			}
			began := time.Now()
			err := leaseAnew(t.Context(), r)
			if replaced && err != nil || !replaced && wiretest.ProblemOf(err) != string(auth.Revoked) || time.Since(began) > time.Second {
				t.Errorf("certificate replaced %v: a call %v later got %v, want success within 1 s: %v",
					replaced, time.Since(began), err, replaced)
			}
			if replaced {
				return
			}
			for range 10 { // the worker tries again and again
				if err := leaseAnew(t.Context(), r); wiretest.ProblemOf(err) != string(auth.Revoked) {
					t.Errorf("a later call: %v, want a refusal of the revoked certificate", err)
				}
				time.Sleep(lastWords)
			}
			replace()
			for began = time.Now(); err != nil && time.Since(began) < time.Second; time.Sleep(lastWords / 5) {
				err = leaseAnew(t.Context(), r)
			}
			if err != nil {
				t.Errorf("a second after the certificate was replaced: %v, want that a new connection has shown it", err)
			}
		})
	}
}

// leaseAnew makes a lease request, and repeats it while it gets UNAVAILABLE. It returns any other
// error.
func leaseAnew(ctx context.Context, r *wiretest.Rig) error {
	for {
		_, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "u", Queues: []string{"none"}})
		if status.Code(err) != codes.Unavailable {
			return err
		}
		time.Sleep(lastWords / 5)
	}
}

// The answer to a request over HTTP closes the connection if the certificate of the connection is
// revoked.
func TestHTTPConnectionEndsWithItsCertificate(t *testing.T) {
	wiretest.WithCertificates(t, func(t *testing.T, r *wiretest.Rig, cert *x509.Certificate, _ func()) {
		for _, want := range []string{"", "close"} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost/v1/leases", nil)
			req.TLS = &tls.ConnectionState{
				PeerCertificates: []*x509.Certificate{cert},
				VerifiedChains:   [][]*x509.Certificate{{cert}},
			}
			answer := httptest.NewRecorder()
			r.HTTP.Handler.ServeHTTP(answer, req)
			if got := answer.Header().Get("Connection"); got != want {
				t.Errorf("status %d, header Connection %q, want %q", answer.Code, got, want)
			}
			if _, err := r.Gate.Keyring().Revoke(t.Context(), gate.DefaultTenant, auth.CertificateID(cert), "ann", time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The log tells of a session that was refused for its credential as of any other call, with the
// caller's address: if the owner of the credential is unknown, no audit does. A session that was
// let in writes its own lines.
func TestRefusedSessionIsLogged(t *testing.T) {
	const finished = `"msg":"finished call","type":"Session",`
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, gate.DefaultTenant, auth.Worker)
		producer, _ := r.Issue(t, gate.DefaultTenant, auth.Producer)
		runs := r.WithToken(token).OpenSession(t, "w", 1)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), gate.DefaultTenant, id, "", time.Now()); err != nil {
			t.Fatal(err)
		}
		wiretest.NextPayload[*lessorv1.Reset](runs)
		_ = runs.WaitForEnd()
		synctest.Wait()
		if strings.Contains(r.Log.String(), finished) {
			t.Errorf("the session that was let in has a line as a call:\n%s", r.Log)
		}
		for token, want := range map[string]string{
			token:      `"tenant":"default","subject":"default-worker",`,
			producer:   `"tenant":"default","subject":"default-producer",`,
			"nonsense": "",
		} {
			r.Log.Reset()
			_ = r.WithToken(token).OpenStream(t, "w").WaitForEnd()
			wiretest.WantContains(t, "the log", r.Log.String(), finished+want+`"peer.address":"`)
			wiretest.WantContains(t, "the log", r.Log.String(), `"code":"E.AUTH.`)
		}
	})
}

// The log lines about a handshake that is refused say who was refused, as far as the call tells.
func TestRefusedHandshakeIsLogged(t *testing.T) {
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, "acme", auth.Worker)
		worker := r.WithToken(token).OpenStream(t, "w")
		m := worker.NewFrame(wiretest.HandshakeOf("w"))
		m.Tenant, m.Sender = "acme", nil
		worker.WantError(worker.SendFrame(m), refusal.CodeDenied, "sender")
		_ = worker.WaitForEnd()
		for _, message := range []string{"frame refused", "session ends"} {
			wiretest.WantContains(t, "the log", r.Log.String(), `"msg":"`+message+`","tenant":"acme","subject":"acme-worker","peer.address":"`)
		}
	})
}
