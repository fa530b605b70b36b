package coordinator_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// X1, X2: this test makes each call with each credential. A call accepts only a valid credential of
// a role that may make it; docs/security.md says which roles those are.
func TestWhoMayMakeEachCall(t *testing.T) {
	t.Attr("rules", "X1 X2")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		expired, _ := r.Issue(t, "acme", auth.Operator)
		time.Sleep(time.Hour)
		revoked, id := r.Issue(t, "acme", auth.Operator)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), "acme", id, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		bad := map[auth.Problem]context.Context{
			auth.Missing: t.Context(), auth.Malformed: wiretest.WithToken(t.Context(), "secret"),
			auth.Revoked:      wiretest.WithToken(t.Context(), revoked),
			auth.Expired:      wiretest.WithToken(t.Context(), expired),
			auth.BadSignature: wiretest.WithToken(t.Context(), expired[:len(expired)-4]+"AAAA"),
		}
		cells, rules := 0, wiretest.ReadAccessRules(t)
		for _, method := range r.Methods() {
			for problem, ctx := range bad {
				cells++
				if err := r.Invoke(ctx, method); rules.NeedsNoCredential(method) == (wiretest.ProblemOf(err) == string(problem)) {
					t.Errorf("%s with a credential that is %s: %v, want a refusal unless the call needs no credential",
						method, problem, err)
				}
			}
		}
		for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
			token, _ := r.Issue(t, "acme", role)
			for _, method := range r.Methods() {
				cells++
				err := r.Invoke(wiretest.WithToken(t.Context(), token), method)
				refused := refusal.CodeOf(err) == refusal.CodeForbidden && status.Code(err) == codes.PermissionDenied
				if status.Code(err) == codes.Unauthenticated || refused == (rules.Allows(role, method) || rules.NeedsNoCredential(method)) {
					t.Errorf("%s as %v: %v, want PERMISSION_DENIED: %v", method, role, err, !refused)
				}
			}
		}
		t.Logf("%d calls, %d cells", len(r.Methods()), cells)
	})
}

// X1: an authorization header of a wrong form is refused, and so are two headers. The scheme may be
// in lower case.
func TestAuthorizationHeaders(t *testing.T) {
	t.Attr("rules", "X1")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, "acme", auth.Viewer)
		for _, headers := range [][]string{{token}, {"Basic " + token}, {"Bearer"}, {"Bearer "}, {"Bearer " + token, "Bearer " + token}, {"Bearer  " + token}} {
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": headers})
			if _, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{}); wiretest.ProblemOf(err) != string(auth.Malformed) {
				t.Errorf("%d headers of %d bytes: %v, want a refusal as malformed", len(headers), len(headers[0]), err)
			}
		}
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": {"bearer " + token}})
		if _, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{}); err != nil {
			t.Errorf("the scheme in lower case: %v", err)
		}
	})
}

// X1: a caller without a good credential is refused for that reason, even if its request is also
// malformed.
func TestCredentialsComeBeforeTheRequest(t *testing.T) {
	t.Attr("rules", "X1")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		for _, method := range []string{lessorv1.TaskService_GetTask_FullMethodName, lessorv1.WorkerService_Complete_FullMethodName} {
			err := r.Conn.Invoke(t.Context(), method, wiretest.RawBytes("\x0a\x02\xff\xfe"), &emptypb.Empty{},
				grpc.ForceCodecV2(wiretest.RawBytesCodec{CodecV2: encoding.GetCodecV2(protocodec.Name)}))
			if wiretest.ProblemOf(err) != string(auth.Missing) {
				t.Errorf("%s: %v, want a refusal because the credential is missing", method, err)
			}
		}
	})
}

// X1: the log contains no part of a token, whether the token is valid or revoked.
func TestNoTokenInTheLog(t *testing.T) {
	t.Attr("rules", "X1")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		operator, _ := r.Issue(t, "acme", auth.Operator)
		ctx := wiretest.WithToken(t.Context(), operator)
		service := lessorv1.NewAuthServiceClient(r.Conn)
		made, err := service.CreateToken(ctx, &lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_WORKER, Subject: "w"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = service.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: made.GetInfo().GetTokenId()})
		_ = r.Invoke(wiretest.WithToken(t.Context(), made.GetToken()), lessorv1.WorkerService_Lease_FullMethodName)
		_ = r.Invoke(wiretest.WithToken(t.Context(), made.GetToken()), lessorv1.WorkerService_Session_FullMethodName)
		synctest.Wait()
		log := r.Log.String()
		for _, token := range []string{operator, made.GetToken()} {
			for _, part := range strings.Split(token, ".")[1:] {
				if strings.Contains(log, part) {
					t.Errorf("the log has a part of a token: %s", part)
				}
			}
		}
		if !strings.Contains(log, `"subject":"acme-operator"`) || !strings.Contains(log, refusal.CodeToken) {
			t.Error("the log does not have the subject of the calls, and the code of the refusal:", log)
		}
	})
}

// X1: a coordinator that requires no credentials refuses every call of AuthService.
func TestOpenCoordinatorRefusesAuthService(t *testing.T) {
	t.Attr("rules", "X1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, method := range r.Methods() {
			ofAuth := strings.HasPrefix(method, "/lessor.v1.AuthService/")
			if err := r.Invoke(t.Context(), method); (refusal.CodeOf(err) == refusal.CodeOpen) != ofAuth {
				t.Errorf("%s: %v, want %s: %v", method, err, refusal.CodeOpen, ofAuth)
			}
		}
	})
}

// X1, X2: an operator lists, revokes and rotates only the tokens and keys of its own tenant.
func TestTokensBelongToTheirTenant(t *testing.T) {
	t.Attr("rules", "X1 X2")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		service := lessorv1.NewAuthServiceClient(r.Conn)
		operator, id := r.Issue(t, "acme", auth.Operator)
		stranger, _ := r.Issue(t, "evil", auth.Operator)
		evil, acme := wiretest.WithToken(t.Context(), stranger), wiretest.WithToken(t.Context(), operator)
		for _, name := range []string{id, "k0000000000000000", "x"} {
			if _, err := service.RevokeToken(evil, &lessorv1.RevokeTokenRequest{TokenId: name}); refusal.CodeOf(err) != refusal.CodeNoToken {
				t.Errorf("revoke %s of another tenant: %v, want NOT_FOUND", name, err)
			}
		}
		for i := range 3 {
			made, err := service.CreateToken(acme,
				&lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_WORKER, Subject: fmt.Sprint("w", i)})
			if err != nil || made.GetInfo().GetIssuedBy() != "acme-operator" {
				t.Fatalf("create: %v, %v", made.GetInfo(), err)
			}
		}
		var ids []string
		for page := ""; ; {
			list, err := service.ListTokens(acme, &lessorv1.ListTokensRequest{PageSize: 2, PageToken: page})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(list.GetTokens()); n > 2 {
				t.Errorf("a page of 2 has %d tokens", n)
			}
			for _, one := range list.GetTokens() {
				ids = append(ids, one.GetTokenId())
			}
			if page = list.GetNextPageToken(); page == "" {
				break
			}
			if _, err := service.ListTokens(evil, &lessorv1.ListTokensRequest{PageToken: page}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("a page token of another tenant: %v, want INVALID_ARGUMENT", err)
			}
		}
		if len(ids) != 4 || !slices.Contains(ids, id) {
			t.Errorf("listed are %q, want 4 tokens with %s", ids, id)
		}
		if _, err := service.RotateKey(evil, &lessorv1.RotateKeyRequest{}); err != nil {
			t.Error(err)
		}
		theirs, err := service.ListKeys(evil, &lessorv1.ListKeysRequest{})
		ours, err2 := service.ListKeys(acme, &lessorv1.ListKeysRequest{})
		if err != nil || err2 != nil || len(theirs.GetKeys()) != 2 || len(ours.GetKeys()) != 1 || ours.GetKeys()[0].GetTokens() != 4 {
			t.Errorf("the keys are %v and %v (%v, %v), want two of evil, and one of acme with 4 tokens", theirs, ours, err, err2)
		}
	})
}

// If callers need a token and no tenant has a valid one, the log of the start says so and what to
// do, unless they may have client certificates.
func TestCredentialsWithoutAToken(t *testing.T) {
	accepts := &tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: x509.NewCertPool()}
	for name, tt := range map[string]struct {
		issue bool
		after time.Duration // from the issue of the token to the start
		cfg   coordinator.Config
		warns bool
	}{
		"none":           {false, 0, coordinator.Config{Auth: &gate.Auth{}}, true},
		"expired":        {true, time.Hour, coordinator.Config{Auth: &gate.Auth{}}, true},
		"one":            {true, 0, coordinator.Config{Auth: &gate.Auth{}}, false},
		"certificates":   {false, 0, coordinator.Config{Auth: &gate.Auth{}, TLS: accepts}, false},
		"no credentials": {false, 0, coordinator.Config{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
				if tt.issue {
					r.Issue(t, "acme", auth.Viewer)
				}
				r.Close(t)
				time.Sleep(tt.after)
				r = wiretest.NewWith(t, st, tt.cfg)
				synctest.Wait()
				if log := r.Log.String(); strings.Contains(log, "no token is valid") != tt.warns {
					t.Errorf("want a warning: %v; the log has\n%s", tt.warns, log)
				}
				r.Close(t)
			})
		})
	}
}

// If no operator of the host tenant has a valid token, as when its name is misspelled, the log of
// the start says so and what to do. With client certificates, which are not known before they are
// shown, it is no warning.
func TestHostTenantWithoutAnOperator(t *testing.T) {
	const nobody, certificates = "so nobody can take backups", `"names":"lessor://acme/operator/SUBJECT"`
	accepts := &tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: x509.NewCertPool()}
	again := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return accepts, nil },
	}
	for name, tt := range map[string]struct {
		tenant string
		role   auth.Role
		after  time.Duration // from the issue of the token to the start
		host   string
		tls    *tls.Config
		want   string
	}{
		"an operator":              {"acme", auth.Operator, 0, "acme", nil, ""},
		"of another tenant":        {"amce", auth.Operator, 0, "acme", nil, nobody},
		"a viewer":                 {"acme", auth.Viewer, 0, "acme", nil, nobody},
		"expired":                  {"acme", auth.Operator, time.Hour, "acme", nil, nobody},
		"no host":                  {"acme", auth.Viewer, 0, "", nil, ""},
		"certificates":             {"acme", auth.Viewer, 0, "acme", accepts, certificates},
		"certificates, read again": {"acme", auth.Viewer, 0, "acme", again, certificates},
		"TLS without certificates": {"acme", auth.Viewer, 0, "acme", &tls.Config{MinVersion: tls.VersionTLS12}, nobody},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
				r.Issue(t, tt.tenant, tt.role)
				r.Close(t)
				time.Sleep(tt.after)
				r = wiretest.NewWith(t, st, coordinator.Config{Auth: &gate.Auth{}, HostTenant: tt.host, TLS: tt.tls})
				synctest.Wait()
				log := r.Log.String()
				if warns := strings.Contains(log, `"level":"WARN"`); warns != (tt.want == nobody) {
					t.Errorf("the log warns: %v", warns)
				}
				for _, one := range []string{nobody, certificates} {
					if strings.Contains(log, one) != (one == tt.want) {
						t.Errorf("want only %q in the log:\n%s", tt.want, log)
					}
				}
				r.Close(t)
			})
		})
	}
}
