package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// authService issues and revokes credentials.
type authService struct {
	lessorv1.UnimplementedAuthServiceServer
	*edge
	keyring *auth.Keyring // nil if the coordinator requires no credentials; the gate then refuses all calls of this service
}

var roleProtos = map[auth.Role]lessorv1.Role{
	auth.Worker: lessorv1.Role_ROLE_WORKER, auth.Producer: lessorv1.Role_ROLE_PRODUCER,
	auth.Operator: lessorv1.Role_ROLE_OPERATOR, auth.Viewer: lessorv1.Role_ROLE_VIEWER,
}

// RoleProto converts a role to its wire form.
func RoleProto(r auth.Role) lessorv1.Role { return roleProtos[r] }

// IssueToken issues a token in a store that no coordinator has open. Operators make their first token in this way. IssueToken also adds an
// entry to the audit.
func IssueToken(ctx context.Context, st store.Store, audience string, r auth.Request) (*lessorv1.CreateTokenResponse, error) {
	keyring, err := auth.Open(st, audience, keepAlone(st, r), func(string) {})
	if err != nil {
		return nil, err
	}
	token, t, err := keyring.Create(ctx, r, time.Now())
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.CreateTokenResponse{Token: token, Info: tokenProto(t)}, nil
}

// keeper returns a Keeper that writes with the commits of the engine, and adds the subject of the change to the audit entry of the call.
func keeper(e *engine.Engine) auth.Keeper {
	return func(ctx context.Context, tenant, about string, put func(*store.Batch)) error {
		if a := engine.EntryOf(ctx); a != nil {
			a.Object = about
		}
		return e.Keep(ctx, tenant, put)
	}
}

// keepAlone returns a Keeper that writes directly to a store that no coordinator has open.
func keepAlone(st store.Store, r auth.Request) auth.Keeper {
	return func(ctx context.Context, tenant, token string, put func(*store.Batch)) error {
		a := &records.Audit{
			Tenant: tenant, At: lease.WallOf(time.Now()), Subject: r.IssuedBy, Action: "CreateToken", Object: token, Outcome: records.OutcomeOK,
			Detail: fmt.Sprintf("role:%v subject:%q", roleProtos[r.Role], r.Subject),
		}
		err := st.View(func(rd store.Reader) (err error) {
			a.Serving, err = records.ServingClock(rd)
			return err
		})
		if err != nil {
			return err
		}
		var b store.Batch
		put(&b)
		records.PutAudit(&b, a)
		return st.Commit(ctx, &b)
	}
}

// parseRole reads a role. An unknown one is auth.Nobody, which the keyring refuses.
func parseRole(m lessorv1.Role) auth.Role {
	for r, p := range roleProtos {
		if p == m {
			return r
		}
	}
	return auth.Nobody
}

// CreateToken issues a token for the caller's tenant.
func (s *authService) CreateToken(ctx context.Context, req *lessorv1.CreateTokenRequest) (*lessorv1.CreateTokenResponse, error) {
	f := s.fields()
	life := f.Span("ttl", req.GetTtl())
	if req.GetTtl() != nil && life < time.Second {
		f.Fail("ttl", "is %v; the range is 1s to %v", life, auth.MaxLife)
	}
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	who := gate.Identify(ctx)
	token, t, err := s.keyring.Create(ctx, auth.Request{
		Tenant: who.Tenant, Role: parseRole(req.GetRole()), Subject: req.GetSubject(), Life: life, IssuedBy: who.Subject,
	}, time.Now())
	if err != nil {
		return nil, refusal.Status(err)
	}
	logFields(ctx, "id", t.ID)
	return &lessorv1.CreateTokenResponse{Token: token, Info: tokenProto(t)}, nil
}

// ListTokens lists the tokens of the caller's tenant.
func (s *authService) ListTokens(ctx context.Context, req *lessorv1.ListTokensRequest) (*lessorv1.ListTokensResponse, error) {
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
		res.Tokens, last = append(res.Tokens, tokenProto(t)), tokenKey(t)
	}
	return res, nil
}

// tokenKey returns a key that sorts tokens in the order of the list.
func tokenKey(t records.Token) string { return fmt.Sprintf("%020d %s", t.IssuedAt, t.ID) }

// RevokeToken ends a credential of the caller's tenant.
func (s *authService) RevokeToken(ctx context.Context, req *lessorv1.RevokeTokenRequest) (*lessorv1.RevokeTokenResponse, error) {
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
	return &lessorv1.RevokeTokenResponse{Token: tokenProto(t)}, nil
}

// RotateKey makes a new signing key for the caller's tenant. New tokens are signed with it.
func (s *authService) RotateKey(ctx context.Context, req *lessorv1.RotateKeyRequest) (*lessorv1.RotateKeyResponse, error) {
	f := s.fields()
	retire := f.Span("retire_after", req.GetRetireAfter())
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
	return &lessorv1.RotateKeyResponse{Key: keyProto(key, 0)}, nil
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
		res.Keys = append(res.Keys, keyProto(key, signed[key.ID]))
	}
	return res, nil
}

func tokenProto(t records.Token) *lessorv1.TokenInfo {
	role, _ := auth.ParseRole(t.Role)
	return &lessorv1.TokenInfo{
		TokenId: t.ID, Role: roleProtos[role], Subject: t.Subject, KeyId: t.Key, IssuedAt: convert.Stamp(t.IssuedAt), IssuedBy: t.IssuedBy,
		ExpiresAt: convert.Stamp(t.ExpiresAt), RevokedAt: convert.Stamp(t.RevokedAt), RevokedBy: t.RevokedBy,
	}
}

// keyProto converts a key, without its secret.
func keyProto(k records.SigningKey, tokens uint32) *lessorv1.SigningKey {
	return &lessorv1.SigningKey{
		KeyId: k.ID, CreatedAt: convert.Stamp(k.CreatedAt), Signing: k.RetiresAt == 0, RetiresAt: convert.Stamp(k.RetiresAt), Tokens: tokens,
	}
}
