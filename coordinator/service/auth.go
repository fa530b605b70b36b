package service

import (
	"context"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
)

// authService issues and revokes credentials.
type authService struct {
	lessorv1.UnimplementedAuthServiceServer
	*shared
	// keyring is nil if the coordinator requires no credentials. The gate then refuses all calls of
	// this service.
	keyring *auth.Keyring
}

// CreateToken issues a token for the caller's tenant.
func (s *authService) CreateToken(
	ctx context.Context, req *lessorv1.CreateTokenRequest,
) (*lessorv1.CreateTokenResponse, error) {
	f := s.fields()
	life := f.Span("ttl", req.GetTtl(), auth.MaxLife)
	if req.GetTtl() != nil && life < time.Second {
		f.Fail("ttl", "is %v; the range is 1s to %v", life, auth.MaxLife)
	}
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	who := gate.Identify(ctx)
	token, t, err := s.keyring.Create(ctx, auth.Request{
		Tenant: who.Tenant, Role: convert.ParseRole(req.GetRole()), Subject: req.GetSubject(), Life: life,
		IssuedBy: who.Subject, IssuerID: who.Credential,
	}, time.Now())
	if err != nil {
		return nil, refusal.Status(err)
	}
	logFields(ctx, "id", t.ID)
	return &lessorv1.CreateTokenResponse{Token: token, Info: convert.TokenProto(t)}, nil
}

// ListTokens lists the tokens of the caller's tenant.
func (s *authService) ListTokens(
	ctx context.Context, req *lessorv1.ListTokensRequest,
) (*lessorv1.ListTokensResponse, error) {
	f, tenant := s.fields(), gate.Identify(ctx).Tenant
	size := f.Items("page_size", req.GetPageSize(), defaultPage)
	list := newListing("tokens", tenant, &lessorv1.ListTokensRequest{})
	after := string(list.cursor(f, req.GetPageToken()))
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	res, last := &lessorv1.ListTokensResponse{}, ""
	var seen turn.Counter
	for _, t := range s.keyring.List(tenant) {
		seen.Every(100)
		if tokenKey(t) <= after {
			continue
		}
		if len(res.Tokens) == size {
			res.NextPageToken = list.token([]byte(last))
			break
		}
		res.Tokens, last = append(res.Tokens, convert.TokenProto(t)), tokenKey(t)
	}
	return res, nil
}

// tokenKey returns a key that sorts tokens in the order of the list.
func tokenKey(t records.Token) string { return fmt.Sprintf("%020d %s", t.IssuedAt, t.ID) }

// RevokeToken ends a credential of the caller's tenant.
func (s *authService) RevokeToken(
	ctx context.Context, req *lessorv1.RevokeTokenRequest,
) (*lessorv1.RevokeTokenResponse, error) {
	f, who := s.fields(), gate.Identify(ctx)
	id := f.Required("token_id", req.GetTokenId())
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	logFields(ctx, "id", id)
	t, err := s.keyring.Revoke(ctx, who.Tenant, id, who.Subject, time.Now())
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.RevokeTokenResponse{Token: convert.TokenProto(t)}, nil
}

// RotateKey makes a new signing key for the caller's tenant. New tokens are signed with it.
func (s *authService) RotateKey(
	ctx context.Context, req *lessorv1.RotateKeyRequest,
) (*lessorv1.RotateKeyResponse, error) {
	f := s.fields()
	retire := f.Span("retire_after", req.GetRetireAfter(), convert.NoLimit)
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	var bound *time.Duration
	if req.GetRetireAfter() != nil {
		bound = &retire
	}
	key, err := s.keyring.Rotate(ctx, gate.Identify(ctx).Tenant, bound, time.Now())
	if err != nil {
		return nil, refusal.Status(err)
	}
	logFields(ctx, "id", key.ID)
	return &lessorv1.RotateKeyResponse{Key: convert.KeyProto(key, 0)}, nil
}

// ListKeys lists the keys of the caller's tenant.
func (s *authService) ListKeys(ctx context.Context, _ *lessorv1.ListKeysRequest) (*lessorv1.ListKeysResponse, error) {
	tenant, now := gate.Identify(ctx).Tenant, lease.WallOf(time.Now())
	signed := map[string]uint32{}
	for _, t := range s.keyring.List(tenant) {
		if t.RevokedAt == 0 && t.ExpiresAt > now {
			signed[t.Key]++
		}
	}
	res := &lessorv1.ListKeysResponse{}
	for _, key := range s.keyring.Keys(tenant) {
		if key.RetiresAt != 0 && key.RetiresAt <= now { // its tokens ended with it
			delete(signed, key.ID)
		}
		res.Keys = append(res.Keys, convert.KeyProto(key, signed[key.ID]))
	}
	return res, nil
}
