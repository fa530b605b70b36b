package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// SigningKey signs and verifies the tokens of one tenant (X1). Secret must not be shown to anybody.
type SigningKey struct {
	Tenant, ID string
	Secret     []byte
	CreatedAt  lease.Wall
	RetiresAt  lease.Wall // from then on it verifies no tokens; 0: it is the key that signs new tokens
}

func signingKeyFields(c *codec, k *SigningKey) {
	c.bytes(&k.Secret)
	num(c, &k.CreatedAt)
	num(c, &k.RetiresAt)
}

// PutSigningKey stores a key.
func PutSigningKey(b *store.Batch, k SigningKey) {
	put(b, store.SigningKey, store.AppendTenantKey(nil, k.Tenant, k.ID), &k, signingKeyFields)
}

// DropSigningKey deletes a key.
func DropSigningKey(b *store.Batch, k SigningKey) {
	b.Delete(store.SigningKey, store.AppendTenantKey(nil, k.Tenant, k.ID))
}

// SigningKeys calls fn with every key.
func SigningKeys(r store.Reader, fn func(SigningKey) error) error {
	return each(r, store.SigningKey, signingKeyFields, func(key []byte, k *SigningKey) (err error) {
		k.Tenant, k.ID, err = store.ParseTenantKey(store.SigningKey, key)
		return err
	}, fn)
}

// Token describes a token that was issued. Only the holder has the token itself.
type Token struct {
	Tenant, ID string
	Role       string
	Subject    string
	Key        string // id of the key that signed the token
	IssuedAt   lease.Wall
	IssuedBy   string
	IssuerID   string // id of the credential of IssuedBy; empty: it had none, or nobody knows
	ExpiresAt  lease.Wall
	RevokedAt  lease.Wall // 0: not revoked
	RevokedBy  string
}

func tokenFields(c *codec, t *Token) {
	c.str(&t.Role)
	c.str(&t.Subject)
	c.str(&t.Key)
	num(c, &t.IssuedAt)
	c.str(&t.IssuedBy)
	num(c, &t.ExpiresAt)
	num(c, &t.RevokedAt)
	c.str(&t.RevokedBy)
	c.addedStr(&t.IssuerID)
}

// PutToken stores the description of a token.
func PutToken(b *store.Batch, t Token) {
	put(b, store.Token, store.AppendTenantKey(nil, t.Tenant, t.ID), &t, tokenFields)
}

// DropToken deletes the description of a token.
func DropToken(b *store.Batch, t Token) {
	b.Delete(store.Token, store.AppendTenantKey(nil, t.Tenant, t.ID))
}

// Tokens calls fn with every token.
func Tokens(r store.Reader, fn func(Token) error) error {
	return each(r, store.Token, tokenFields, func(key []byte, t *Token) (err error) {
		t.Tenant, t.ID, err = store.ParseTenantKey(store.Token, key)
		return err
	}, fn)
}
