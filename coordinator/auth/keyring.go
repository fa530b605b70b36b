package auth

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// DefaultAudience is what tokens are for where nothing else is set.
const DefaultAudience = "lessor"

// Identity is who a credential speaks for, and until when.
type Identity struct {
	Tenant     string
	Role       Role
	Subject    string    // who, for histories and logs
	Credential string    // id of the token, or of the certificate
	Until      time.Time // when the credential ends by itself
}

// Keeper makes records durable and returns nil once they are, whatever becomes of ctx meanwhile, which is that of the call to the keyring; about is
// the id of the token or key that they are about. It is called by one goroutine at a time.
type Keeper func(ctx context.Context, tenant, about string, put func(*store.Batch)) error

// Keyring has the signing keys and tokens of a store. It is safe for concurrent use.
type Keyring struct {
	audience string
	keep     Keeper
	changed  func()

	changing sync.Mutex // one change after the other; taken before mu

	mu     sync.RWMutex
	keys   map[string]records.SigningKey // by id
	tokens map[name]records.Token
}

// name of a credential. That of a certificate is known to all who see it, so that the tenant is part of it.
type name struct{ tenant, id string }

// Open reads the keys and tokens of a store. keep writes changes; changed is called after each that can end a credential, when it holds.
func Open(st store.Store, audience string, keep Keeper, changed func()) (*Keyring, error) {
	k := &Keyring{
		audience: cmp.Or(audience, DefaultAudience), keep: keep, changed: changed,
		keys: map[string]records.SigningKey{}, tokens: map[name]records.Token{},
	}
	err := st.View(func(r store.Reader) error {
		err := records.SigningKeys(r, func(key records.SigningKey) error { k.keys[key.ID] = key; return nil })
		if err != nil {
			return err
		}
		return records.Tokens(r, func(t records.Token) error { k.tokens[name{t.Tenant, t.ID}] = t; return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	return k, nil
}

// Verify tells who a token speaks for. The error is an *Error; beside it stands for whom the token was issued, where its signature is good.
func (k *Keyring) Verify(token string, now time.Time) (Identity, error) {
	if token == "" {
		return Identity{}, &Error{Missing}
	}
	p, ok := split(token)
	if !ok {
		return Identity{}, &Error{Malformed}
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	key, ok := k.keys[p.key]
	if !ok || retired(key, now) {
		return Identity{}, &Error{UnknownKey}
	}
	c, ok := p.verify(key.Secret)
	if !ok || c.Tenant != key.Tenant {
		return Identity{}, &Error{BadSignature}
	}
	role, ok := ParseRole(c.Role)
	if !ok {
		return Identity{}, &Error{Malformed}
	}
	who := Identity{Tenant: c.Tenant, Role: role, Subject: c.Subject, Credential: c.ID, Until: until(c.expires(), key)}
	switch problem := k.standing(name{c.Tenant, c.ID}); {
	case c.Audience != k.audience:
		return who, &Error{BadAudience}
	case !now.Before(c.expires()):
		return who, &Error{Expired}
	case problem != "":
		return who, &Error{problem}
	}
	return who, nil
}

// standing is what is known against a token with a good signature; empty: nothing.
func (k *Keyring) standing(n name) Problem {
	t, ok := k.tokens[n]
	switch {
	case !ok:
		return Unknown
	case t.RevokedAt != 0:
		return Revoked
	}
	return ""
}

// Recheck looks again at a token that was good, and tells until when it still is. The error is an *Error (X3).
func (k *Keyring) Recheck(who Identity, now time.Time) (time.Time, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n := name{who.Tenant, who.Credential}
	if problem := k.standing(n); problem != "" {
		return time.Time{}, &Error{problem}
	}
	t := k.tokens[n]
	key, ok := k.keys[t.Key]
	if !ok || retired(key, now) {
		return time.Time{}, &Error{UnknownKey}
	}
	end := until(t.ExpiresAt.Time(), key)
	if !now.Before(end) {
		return time.Time{}, &Error{Expired}
	}
	return end, nil
}

// retired reports whether a key verifies no more.
func retired(key records.SigningKey, now time.Time) bool {
	return key.RetiresAt != 0 && !now.Before(key.RetiresAt.Time())
}

// until is the end of a token: its own, or that of its key.
func until(expires time.Time, key records.SigningKey) time.Time {
	if key.RetiresAt != 0 && key.RetiresAt.Time().Before(expires) {
		return key.RetiresAt.Time()
	}
	return expires
}

// List shows the tokens of a tenant, oldest first.
func (k *Keyring) List(tenant string) []records.Token {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var all []records.Token
	for _, t := range k.tokens {
		if t.Tenant == tenant {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b records.Token) int {
		return cmp.Or(cmp.Compare(a.IssuedAt, b.IssuedAt), strings.Compare(a.ID, b.ID))
	})
	return all
}

// Keys shows the keys of a tenant, oldest first. They have their secrets.
func (k *Keyring) Keys(tenant string) []records.SigningKey {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var all []records.SigningKey
	for _, key := range k.keys {
		if key.Tenant == tenant {
			all = append(all, key)
		}
	}
	slices.SortFunc(all, func(a, b records.SigningKey) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return all
}
