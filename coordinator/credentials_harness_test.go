package coordinator

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

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/certs"
	"github.com/lessor-dev/lessor/internal/detail"
)

// withAuth runs a test against a coordinator that requires credentials.
func withAuth(t *testing.T, rules gate.Auth, test func(t *testing.T, r *rig)) {
	t.Helper()
	serveWith(t, nil, Config{Auth: &rules, Backup: Backup{Tenant: "acme"}}, test)
}

// issue makes a token that is valid for an hour, and returns it with its id.
func (r *rig) issue(t *testing.T, tenant string, role auth.Role) (token, id string) {
	t.Helper()
	return r.issueFor(t, tenant, role, time.Hour)
}

func (r *rig) issueFor(t *testing.T, tenant string, role auth.Role, life time.Duration) (token, id string) {
	t.Helper()
	token, made, err := r.gate.Keyring().Create(t.Context(), auth.Request{Tenant: tenant, Role: role, Subject: tenant + "-" + role.String(), Life: life}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token, made.ID
}

// withToken returns a context whose calls carry this token.
func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// problemOf returns why a credential was refused, or "" if it was not refused.
func problemOf(err error) string {
	about := detail.Of[*errdetails.ErrorInfo](status.Convert(err)).GetMetadata()
	if status.Code(err) != codes.Unauthenticated || about["code"] != refusal.CodeToken {
		return ""
	}
	return about["problem"]
}

// shortLife is the lifetime of tokens that expire during a test.
const shortLife = 30 * time.Second

// credentialEndings has, for each way in which a credential ends, a function that ends the token id.
var credentialEndings = map[auth.Problem]func(r *rig, id string) error{
	auth.Revoked: func(r *rig, id string) error {
		_, err := r.gate.Keyring().Revoke(context.Background(), gate.DefaultTenant, id, "ann", time.Now())
		return err
	},
	auth.UnknownKey: func(r *rig, _ string) error {
		_, err := r.gate.Keyring().Rotate(context.Background(), gate.DefaultTenant, new(time.Duration), time.Now())
		return err
	},
	auth.Expired: func(*rig, string) error {
		time.Sleep(shortLife)
		synctest.Wait() // the stream's timer fires at the same moment
		return nil
	},
}

// withToken returns a copy of the rig whose sessions send this token.
func (r *rig) withToken(token string) *rig {
	mine := *r
	mine.token = token
	return &mine
}

// operatorContext makes a token for an operator of a tenant, and returns a context whose calls carry it.
func (r *rig) operatorContext(t *testing.T, tenant string) context.Context {
	t.Helper()
	token, _ := r.issue(t, tenant, auth.Operator)
	return withToken(t.Context(), token)
}

// withCertificates runs a test against a coordinator that requires credentials. The client of the rig has a worker's certificate; replace writes another
// certificate of the same worker into the client's files.
func withCertificates(t *testing.T, test func(t *testing.T, r *rig, cert *x509.Certificate, replace func())) {
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
		return certs.Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"), CA: filepath.Join(dir, "ca.pem")}
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
	serveWith(t, nil, Config{Auth: &gate.Auth{}, TLS: server}, func(t *testing.T, r *rig) {
		mine := *r
		if mine.conn, err = grpc.NewClient("passthrough:///coordinator",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.listener.DialContext(ctx) }),
			grpc.WithTransportCredentials(client), grpc.WithAuthority("localhost")); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mine.conn.Close() }()
		mine.workers = lessorv1.NewWorkerServiceClient(mine.conn)
		test(t, &mine, pair.Leaf, replace)
	})
}
