package wiretest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/certs"
	"github.com/lessor-dev/lessor/internal/detail"
)

// WithAuth runs a test against a coordinator that requires credentials.
func WithAuth(t *testing.T, rules gate.Auth, test func(t *testing.T, r *Rig)) {
	t.Helper()
	ServeWith(t, nil, coordinator.Config{Auth: &rules, HostTenant: "acme"}, test)
}

// Issue makes a token that is valid for an hour, and returns it with its id.
func (r *Rig) Issue(t *testing.T, tenant string, role auth.Role) (token, id string) {
	t.Helper()
	return r.IssueFor(t, tenant, role, time.Hour)
}

// IssueFor is like Issue, with this lifetime.
func (r *Rig) IssueFor(t *testing.T, tenant string, role auth.Role, life time.Duration) (token, id string) {
	t.Helper()
	token, made, err := r.Gate.Keyring().Create(t.Context(),
		auth.Request{Tenant: tenant, Role: role, Subject: tenant + "-" + role.String(), Life: life}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token, made.ID
}

// WithToken returns a context whose calls carry this token.
func WithToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// ProblemOf returns why a credential was refused, or "" if it was not refused.
func ProblemOf(err error) string {
	about := detail.Of[*errdetails.ErrorInfo](status.Convert(err)).GetMetadata()
	if status.Code(err) != codes.Unauthenticated || about["code"] != refusal.CodeToken {
		return ""
	}
	return about["problem"]
}

// ShortLife is the lifetime of tokens that expire during a test.
const ShortLife = 30 * time.Second

// CredentialEndings has, for each way in which a credential ends, a function that ends the token
// id.
var CredentialEndings = map[auth.Problem]func(r *Rig, id string) error{
	auth.Revoked: func(r *Rig, id string) error {
		_, err := r.Gate.Keyring().Revoke(context.Background(), gate.DefaultTenant, id, "ann", time.Now())
		return err
	},
	auth.UnknownKey: func(r *Rig, _ string) error {
		_, err := r.Gate.Keyring().Rotate(context.Background(), gate.DefaultTenant, new(time.Duration), time.Now())
		return err
	},
	auth.Expired: func(*Rig, string) error {
		time.Sleep(ShortLife)
		synctest.Wait() // the stream's timer fires at the same moment
		return nil
	},
}

// WithToken returns a copy of the rig whose sessions send this token.
func (r *Rig) WithToken(token string) *Rig {
	mine := *r
	mine.Token = token
	return &mine
}

// OperatorContext makes a token for an operator of a tenant, and returns a context whose calls
// carry it.
func (r *Rig) OperatorContext(t *testing.T, tenant string) context.Context {
	t.Helper()
	token, _ := r.Issue(t, tenant, auth.Operator)
	return WithToken(t.Context(), token)
}

// WithCertificates runs a test against a coordinator that requires credentials. The client of the
// rig has a worker's certificate; replace writes another certificate of the same worker into the
// client's files.
func WithCertificates(t *testing.T, test func(t *testing.T, r *Rig, cert *x509.Certificate, replace func())) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // certificates are valid in the time of the bubble
		authority, err := certs.NewAuthority(dir)
		name, err2 := auth.Name(auth.Request{Tenant: gate.DefaultTenant, Role: auth.Worker, Subject: "w"})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(authority.Server([]string{"localhost"}), authority.Client("client", name), authority.Client("next", name)); err != nil {
			t.Fatal(err)
		}
	})
	in := func(name string) certs.Files {
		return certs.Files{
			Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"),
			CA: filepath.Join(dir, "ca.pem"),
		}
	}
	server, err := certs.Server(in("server"), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	client, err := certs.Transport(in("client"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(in("client").Cert, in("client").Key)
	if err != nil {
		t.Fatal(err)
	}
	replace := func() {
		if err := errors.Join(os.Rename(in("next").Cert, in("client").Cert), os.Rename(in("next").Key, in("client").Key)); err != nil {
			t.Error(err)
		}
	}
	ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, TLS: server}, func(t *testing.T, r *Rig) {
		mine := *r
		if mine.Conn, err = grpc.NewClient("passthrough:///coordinator",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return r.Listener.DialContext(ctx)
			}),
			grpc.WithTransportCredentials(client), grpc.WithAuthority("localhost")); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mine.Conn.Close() }()
		mine.Workers = lessorv1.NewWorkerServiceClient(mine.Conn)
		test(t, &mine, pair.Leaf, replace)
	})
}
