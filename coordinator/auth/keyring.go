package auth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// DefaultAudience is the audience of tokens if none is configured.
const DefaultAudience = "lessor"

// DefaultTenant is the tenant of every caller if no credentials are required.
const DefaultTenant = "default"

// Identity says who a credential speaks for, and until when.
type Identity struct {
	Tenant     string
	Role       Role
	Subject    string    // who, for histories and logs
	Credential string    // id of the token, or of the certificate
	Until      time.Time // when the credential ends, if it is not revoked before
}

// Keeper makes records durable, and returns nil once they are, even if ctx ends meanwhile. ctx is
// that of the call to the keyring; about is the id of the token or key that the change is about.
// For each tenant only one goroutine at a time calls it, and then all earlier changes are in force.
type Keeper func(ctx context.Context, tenant, about string, put func(*store.Batch)) error

// Keyring holds the signing keys and tokens of a store. It is safe for concurrent use.
type Keyring struct {
	audience string
	keep     Keeper
	ended    func(tenant string)

	changing changes // begun before mu is locked

	mu   sync.RWMutex
	keys map[string]records.SigningKey // by id
	// tokens is by tenant, because everybody who sees a certificate can compute its id; then by id.
	tokens map[string]map[string]records.Token
	// shown has the holders of the certificates that were good when they were shown, by id.
	shown map[string]Identity

	forgetAt int // size of shown at which those that have expired are removed
}

// Open returns a keyring with the keys and tokens of a store. It writes changes with keep. It calls
// ended after every change that may have ended credentials of the tenant, once the change is in
// force.
func Open(st store.Store, audience string, keep Keeper, ended func(tenant string)) (*Keyring, error) {
	k := &Keyring{
		audience: cmp.Or(audience, DefaultAudience),
		keep:     keep,
		ended:    ended,
		changing: newChanges(),
		keys:     map[string]records.SigningKey{},
		tokens:   map[string]map[string]records.Token{},
		shown:    map[string]Identity{},
		forgetAt: fewShown,
	}
	err := st.View(func(r store.Reader) error {
		err := records.SigningKeys(r, func(key records.SigningKey) error { k.keys[key.ID] = key; return nil })
		if err != nil {
			return err
		}
		return records.Tokens(r, func(t records.Token) error { k.put(t); return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	return k, nil
}

// put adds a token, or replaces it. The caller holds mu.
func (k *Keyring) put(t records.Token) {
	of := k.tokens[t.Tenant]
	if of == nil {
		of = map[string]records.Token{}
		k.tokens[t.Tenant] = of
	}
	of[t.ID] = t
}

// Verify returns the identity that a token was issued for. The error is an *Error. If the signature
// is valid but the token is refused, Verify returns the identity together with the error.
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
	if !ok {
		return Identity{}, &Error{UnknownKey}
	}
	who, err := k.holder(p, key, now)
	if retired(key, now) { // whatever else is wrong with the token
		return k.recorded(who, p.key), &Error{UnknownKey}
	}
	return who, err
}

// recorded returns the identity of a token with a valid signature of a retired key, which may have
// leaked: it is that of the record of the token, so that the audit has no names that somebody has
// made up. The caller holds mu.
func (k *Keyring) recorded(who Identity, key string) Identity {
	t, ok := k.tokens[who.Tenant][who.Credential]
	role, known := ParseRole(t.Role)
	if !ok || !known || t.Key != key {
		return Identity{}
	}
	who.Role, who.Subject = role, t.Subject
	return who
}

// holder returns the identity that a token names if the key signed it, and what is wrong with the
// token, apart from its key. The caller holds mu.
func (k *Keyring) holder(p parts, key records.SigningKey, now time.Time) (Identity, error) {
	c, ok := p.verify(key.Secret)
	if !ok || c.Tenant != key.Tenant {
		return Identity{}, &Error{BadSignature}
	}
	role, ok := ParseRole(c.Role)
	if !ok {
		return Identity{}, &Error{Malformed}
	}
	who := Identity{Tenant: c.Tenant, Role: role, Subject: c.Subject, Credential: c.ID, Until: until(c.expires(), key)}
	switch problem := k.standing(c.Tenant, c.ID); {
	case c.Audience != k.audience:
		return who, &Error{BadAudience}
	case !now.Before(c.expires()):
		return who, &Error{Expired}
	case problem != "":
		return who, &Error{problem}
	}
	return who, nil
}

// standing returns why the store's records make a token with a valid signature invalid, or "" if
// the token is valid.
func (k *Keyring) standing(tenant, id string) Problem {
	t, ok := k.tokens[tenant][id]
	switch {
	case !ok:
		return Unknown
	case t.RevokedAt != 0:
		return Revoked
	}
	return ""
}

// Recheck checks again a token that was valid before, and returns the time at which it ends. The
// error is an *Error (X3).
func (k *Keyring) Recheck(who Identity, now time.Time) (time.Time, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	t, listed := k.tokens[who.Tenant][who.Credential]
	key, ok := k.keys[t.Key]
	// first, as in Verify: Rotate also marks the tokens of such a key as revoked
	if listed && (!ok || retired(key, now)) {
		return time.Time{}, &Error{UnknownKey}
	}
	if problem := k.standing(who.Tenant, who.Credential); problem != "" {
		return time.Time{}, &Error{problem}
	}
	end := until(t.ExpiresAt.Time(), key)
	if !now.Before(end) {
		return time.Time{}, &Error{Expired}
	}
	return end, nil
}

// Withdrawn reports whether a credential of the tenant was ended before it expired: it was revoked,
// or the key that signed it was retired. A credential that has expired is not withdrawn, nor is one
// that the keyring does not know: nobody has withdrawn it in the last week, see stale (X3).
func (k *Keyring) Withdrawn(tenant, id string, now time.Time) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	t, ok := k.tokens[tenant][id]
	return ok && k.withdrawnAt(t, now) != 0
}

// withdrawnAt returns when a token or certificate was withdrawn; 0: it was not. The caller holds
// mu.
func (k *Keyring) withdrawnAt(t records.Token, now time.Time) lease.Wall {
	key, ok := k.keys[t.Key]
	switch {
	case t.RevokedAt != 0:
		return t.RevokedAt
	case ok && retired(key, now) && key.RetiresAt < t.ExpiresAt:
		return key.RetiresAt
	case !ok && now.Before(t.ExpiresAt.Time()):
		// a version that did not mark its tokens has dropped the key, at some time
		return lease.WallOf(now)
	}
	return 0
}

// retired reports whether a key no longer verifies tokens.
func retired(key records.SigningKey, now time.Time) bool {
	return key.RetiresAt != 0 && !now.Before(key.RetiresAt.Time())
}

// until returns when a token ends: at its own expiry or when its key retires, whichever is first.
func until(expires time.Time, key records.SigningKey) time.Time {
	if key.RetiresAt != 0 && key.RetiresAt.Time().Before(expires) {
		return key.RetiresAt.Time()
	}
	return expires
}

// List returns the tokens of a tenant, oldest first. There may be thousands, so it sorts them
// without mu, for which every call of every tenant waits, and gives up the processor meanwhile.
func (k *Keyring) List(tenant string) []records.Token {
	k.mu.RLock()
	all := slices.Collect(maps.Values(k.tokens[tenant]))
	k.mu.RUnlock()
	var compared turn.Counter
	slices.SortFunc(all, func(a, b records.Token) int {
		compared.Every(1000)
		return cmp.Or(cmp.Compare(a.IssuedAt, b.IssuedAt), strings.Compare(a.ID, b.ID))
	})
	return all
}

// Tenants returns the tenants that have tokens, in no order. These may be expired or revoked.
func (k *Keyring) Tenants() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Collect(maps.Keys(k.tokens))
}

// Valid returns how many tokens of a tenant are valid.
func (k *Keyring) Valid(tenant string, now time.Time) (n int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, t := range k.tokens[tenant] {
		if k.isValid(t, now) {
			n++
		}
	}
	return n
}

// AnyValid reports whether a token of any tenant is valid.
func (k *Keyring) AnyValid(now time.Time) bool {
	return slices.ContainsFunc(k.Tenants(), func(tenant string) bool { return k.Valid(tenant, now) > 0 })
}

// HasOperator reports whether a token of an operator of a tenant is valid.
func (k *Keyring) HasOperator(tenant string, now time.Time) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, t := range k.tokens[tenant] {
		if t.Role == roleNames[Operator] && k.isValid(t, now) {
			return true
		}
	}
	return false
}

// isValid reports whether a token is neither expired nor revoked. The caller holds mu.
func (k *Keyring) isValid(t records.Token, now time.Time) bool {
	key, ok := k.keys[t.Key]
	return ok && t.RevokedAt == 0 && now.Before(until(t.ExpiresAt.Time(), key))
}

// Keys returns the keys of a tenant, oldest first, secrets included.
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
