package convert

import (
	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/records"
)

var roleProtos = map[auth.Role]lessorv1.Role{
	auth.Worker: lessorv1.Role_ROLE_WORKER, auth.Producer: lessorv1.Role_ROLE_PRODUCER,
	auth.Operator: lessorv1.Role_ROLE_OPERATOR, auth.Viewer: lessorv1.Role_ROLE_VIEWER,
}

// RoleProto converts a role to its wire form.
func RoleProto(r auth.Role) lessorv1.Role { return roleProtos[r] }

// ParseRole reads a role. An unknown one is auth.Nobody, which the keyring refuses.
func ParseRole(m lessorv1.Role) auth.Role {
	for r, p := range roleProtos {
		if p == m {
			return r
		}
	}
	return auth.Nobody
}

// TokenProto converts what is known of a token.
func TokenProto(t records.Token) *lessorv1.TokenInfo {
	role, _ := auth.ParseRole(t.Role)
	return &lessorv1.TokenInfo{
		TokenId:   t.ID,
		Role:      roleProtos[role],
		Subject:   t.Subject,
		KeyId:     t.Key,
		IssuedAt:  Stamp(t.IssuedAt),
		IssuedBy:  t.IssuedBy,
		ExpiresAt: Stamp(t.ExpiresAt),
		RevokedAt: Stamp(t.RevokedAt),
		RevokedBy: t.RevokedBy,
		IssuerId:  t.IssuerID,
	}
}

// KeyProto converts a key, without its secret.
func KeyProto(k records.SigningKey, tokens uint32) *lessorv1.SigningKey {
	return &lessorv1.SigningKey{
		KeyId:     k.ID,
		CreatedAt: Stamp(k.CreatedAt),
		Signing:   k.RetiresAt == 0,
		RetiresAt: Stamp(k.RetiresAt),
		Tokens:    tokens,
	}
}
