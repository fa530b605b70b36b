package service_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// asOperator runs a test whose calls with ctx are those of an operator of the tenant "acme".
func asOperator(t *testing.T, test func(ctx context.Context, t *testing.T, r *wiretest.Rig, service lessorv1.AuthServiceClient)) {
	t.Helper()
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.IssueFor(t, "acme", auth.Operator, auth.MaxLife)
		test(wiretest.WithToken(t.Context(), token), t, r, lessorv1.NewAuthServiceClient(r.Conn))
	})
}

// X1: a token has the role, the subject and the life that CreateToken asks for, 24 h if it asks for
// none, and names the credential that has asked. A life out of range gives no token, in particular
// not one of 24 h for a life of 0.
func TestCreateTokenGivesWhatItIsAskedFor(t *testing.T) {
	t.Attr("rules", "X1")
	asOperator(t, func(ctx context.Context, t *testing.T, r *wiretest.Rig, service lessorv1.AuthServiceClient) {
		issuer := r.Gate.Keyring().List("acme")[0].ID
		for role := auth.Worker; role <= auth.Viewer; role <<= 1 {
			sent := convert.RoleProto(role)
			for _, ttl := range []*durationpb.Duration{nil, durationpb.New(time.Second), durationpb.New(auth.MaxLife)} {
				made, err := service.CreateToken(ctx, &lessorv1.CreateTokenRequest{Role: sent, Subject: "s", Ttl: ttl})
				if err != nil {
					t.Fatalf("%v for %v: %v", sent, ttl, err)
				}
				life := auth.DefaultLife
				if ttl != nil {
					life = ttl.AsDuration()
				}
				info, now := made.GetInfo(), time.Now()
				who, err := r.Gate.Keyring().Verify(made.GetToken(), now)
				if err != nil || who.Role != role || who.Tenant != "acme" || who.Subject != "s" || who.Credential != info.GetTokenId() ||
					!who.Until.Equal(now.Add(life)) {
					t.Errorf("%v for %v speaks for %+v (%v), want %v of acme for %v", sent, ttl, who, err, role, life)
				}
				if info.GetRole() != sent || info.GetSubject() != "s" || info.GetIssuedBy() != "acme-operator" || info.GetIssuerId() != issuer ||
					!info.GetIssuedAt().AsTime().Equal(now) || !info.GetExpiresAt().AsTime().Equal(now.Add(life)) || info.GetRevokedAt() != nil {
					t.Errorf("%v for %v is shown as %v", sent, ttl, info)
				}
			}
		}
		have := len(r.Gate.Keyring().List("acme"))
		for _, ttl := range []time.Duration{-time.Second, -1, 0, 1, time.Second - 1, auth.MaxLife + 1} {
			req := &lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_WORKER, Subject: "s", Ttl: durationpb.New(ttl)}
			wiretest.WantBadField(t, wiretest.ErrOf(service.CreateToken(ctx, req)), "ttl")
		}
		wiretest.WantBadField(t, wiretest.ErrOf(service.CreateToken(ctx, &lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_WORKER})), "subject")
		wiretest.WantBadField(t, wiretest.ErrOf(service.CreateToken(ctx, &lessorv1.CreateTokenRequest{Subject: "s"})), "role")
		if now := len(r.Gate.Keyring().List("acme")); now != have {
			t.Errorf("refused calls made %d tokens", now-have)
		}
	})
}

// X1: after RotateKey, older tokens stay valid until they expire. With retire_after, they stay
// valid for at most that long; 0 ends them at once.
func TestRotateKeyRetiresTheOlderKeys(t *testing.T) {
	t.Attr("rules", "X1")
	for _, tt := range []struct {
		retire *durationpb.Duration
		lasts  time.Duration
	}{
		{nil, time.Hour},
		{durationpb.New(time.Minute), time.Minute},
		{durationpb.New(0), 0},
		{durationpb.New(2 * time.Hour), time.Hour},
		{&durationpb.Duration{Seconds: math.MaxInt64}, time.Hour},
	} {
		t.Run(fmt.Sprint(tt.retire.AsDuration(), tt.retire == nil), func(t *testing.T) {
			asOperator(t, func(ctx context.Context, t *testing.T, r *wiretest.Rig, service lessorv1.AuthServiceClient) {
				rotated, err := service.RotateKey(ctx, &lessorv1.RotateKeyRequest{})
				if err != nil || !rotated.GetKey().GetSigning() {
					t.Fatalf("rotate: %v (%v), want a key that signs", rotated, err)
				}
				old, _ := r.Issue(t, "acme", auth.Viewer)
				valid := func() bool {
					_, err := r.Gate.Keyring().Verify(old, time.Now())
					return err == nil
				}
				wiretest.WantBadField(t,
					wiretest.ErrOf(service.RotateKey(ctx, &lessorv1.RotateKeyRequest{RetireAfter: durationpb.New(-1)})),
					"retire_after")
				if err := wiretest.ErrOf(service.RotateKey(ctx, &lessorv1.RotateKeyRequest{RetireAfter: tt.retire})); err != nil {
					t.Fatal(err)
				}
				if tt.lasts > 0 {
					time.Sleep(tt.lasts - 1)
					if !valid() {
						t.Errorf("the token became invalid before %v", tt.lasts)
					}
					time.Sleep(time.Nanosecond)
				}
				if valid() {
					t.Errorf("the token is still valid after %v", tt.lasts)
				}
			})
		})
	}
}

// X1: a RotateKey that cannot make a key says so, so that no operator believes that new tokens have
// a new key.
func TestRotateKeyBeyondTheLimitFails(t *testing.T) {
	t.Attr("rules", "X1")
	asOperator(t, func(ctx context.Context, t *testing.T, r *wiretest.Rig, service lessorv1.AuthServiceClient) {
		for {
			r.Issue(t, "acme", auth.Viewer) // a key without a token would not be kept
			made, err := service.RotateKey(ctx, &lessorv1.RotateKeyRequest{})
			if err != nil {
				if status.Code(err) != codes.ResourceExhausted {
					t.Errorf("rotate: %v, want RESOURCE_EXHAUSTED", err)
				}
				return
			}
			if made.GetKey().GetKeyId() == "" {
				t.Fatal("RotateKey returned neither a key nor an error")
			}
		}
	})
}

// ListKeys counts the tokens of a key that are valid now: not those that have expired or that were
// revoked, and none of a key that has retired.
func TestListKeysCountsValidTokens(t *testing.T) {
	asOperator(t, func(ctx context.Context, t *testing.T, r *wiretest.Rig, service lessorv1.AuthServiceClient) {
		count := func(want uint32) {
			t.Helper()
			keys, err := service.ListKeys(ctx, &lessorv1.ListKeysRequest{})
			if err != nil || len(keys.GetKeys()) == 0 || keys.GetKeys()[0].GetTokens() != want {
				t.Errorf("the keys are %v (%v), want the first with %d tokens", keys, err, want)
			}
		}
		r.IssueFor(t, "acme", auth.Viewer, time.Minute)
		_, id := r.IssueFor(t, "acme", auth.Viewer, time.Hour)
		count(3)
		revoked, err := service.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: id})
		if info := revoked.GetToken(); err != nil || info.GetTokenId() != id || info.GetRevokedBy() != "acme-operator" || !info.GetRevokedAt().AsTime().Equal(time.Now()) {
			t.Errorf("revoked: %v (%v)", info, err)
		}
		count(2)
		time.Sleep(time.Minute)
		count(1)
		wiretest.WantBadField(t, wiretest.ErrOf(service.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{})), "token_id")
		if err := wiretest.ErrOf(service.RotateKey(ctx, &lessorv1.RotateKeyRequest{RetireAfter: durationpb.New(time.Minute)})); err != nil {
			t.Fatal(err)
		}
		next, _ := r.Issue(t, "acme", auth.Operator)
		ctx = wiretest.WithToken(t.Context(), next)
		time.Sleep(time.Minute - 1)
		count(1)
		time.Sleep(time.Nanosecond)
		count(0)
	})
}
