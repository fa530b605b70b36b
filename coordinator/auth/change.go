package auth

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Lifetimes of a token, by default and at most.
const (
	DefaultLife = 24 * time.Hour
	MaxLife     = 366 * 24 * time.Hour
)

// Limits of a tenant. listed is how long a token is still listed after its expiry, if there is
// room.
const (
	maxTokens       = 10_000
	maxCertificates = 10_000 // that are revoked
	maxKeys         = 100
	listed          = 7 * 24 * time.Hour
)

// Request describes a token to be created.
type Request struct {
	Tenant   string
	Role     Role
	Subject  string
	Life     time.Duration // 0: DefaultLife; at most MaxLife
	IssuedBy string
	IssuerID string // id of the credential of IssuedBy; empty: it has none
}

// check returns a *lease.FieldError for the first bad field.
func (r *Request) check() error {
	limits := lease.DefaultLimits()
	for _, f := range []struct{ name, value string }{{"tenant", r.Tenant}, {"subject", r.Subject}} {
		if f.value == "" {
			return &lease.FieldError{Field: f.name, Problem: "must not be empty"}
		}
		if !utf8.ValidString(f.value) {
			return &lease.FieldError{Field: f.name, Problem: "is not valid UTF-8"}
		}
		if err := lease.CheckID(f.name, f.value, limits); err != nil {
			return err
		}
	}
	if _, one := roleNames[r.Role]; !one {
		return &lease.FieldError{Field: "role", Problem: "must be worker, producer, operator or viewer"}
	}
	if r.Life < 0 || r.Life > MaxLife || r.Life > 0 && r.Life < time.Second {
		return &lease.FieldError{Field: "ttl", Problem: fmt.Sprintf("is %v; the range is 1s to %v", r.Life, MaxLife)}
	}
	return nil
}

// Create issues a token. If the tenant has no key yet, it makes one. Only the caller gets the
// token: the store does not hold it.
func (k *Keyring) Create(ctx context.Context, r Request, now time.Time) (token string, t records.Token, err error) {
	if err := r.check(); err != nil {
		return "", t, err
	}
	end, err := k.changing.begin(ctx, r.Tenant)
	if err != nil {
		return "", t, err
	}
	defer end()
	old, left := k.stale(r.Tenant, now)
	if left >= maxTokens {
		return "", t, &LimitError{"tokens", maxTokens}
	}
	key, fresh := k.signing(r.Tenant, now)
	c := claims{
		ID: newID("k"), Audience: k.audience, Tenant: r.Tenant, Role: r.Role.String(), Subject: r.Subject,
		Issued: now.Unix(), Expires: now.Add(cmp.Or(r.Life, DefaultLife)).Unix(),
	}
	t = records.Token{
		Tenant:    r.Tenant,
		ID:        c.ID,
		Role:      c.Role,
		Subject:   c.Subject,
		Key:       key.ID,
		IssuedAt:  lease.WallOf(time.Unix(c.Issued, 0)),
		IssuedBy:  r.IssuedBy,
		IssuerID:  r.IssuerID,
		ExpiresAt: lease.WallOf(c.expires()),
	}
	err = k.commit(ctx, change{tenant: r.Tenant, about: t.ID, tokens: []records.Token{t}, forget: old, keys: fresh})
	return sign(key.ID, key.Secret, c), t, err
}

// signing returns the key that signs for a tenant. If there is none it makes one, which it returns
// in fresh too.
func (k *Keyring) signing(tenant string, now time.Time) (key records.SigningKey, fresh []records.SigningKey) {
	for _, key := range k.Keys(tenant) {
		if key.RetiresAt == 0 {
			return key, nil
		}
	}
	key = newKey(tenant, now)
	return key, []records.SigningKey{key}
}

func newKey(tenant string, now time.Time) records.SigningKey {
	return records.SigningKey{Tenant: tenant, ID: newID("s"), Secret: newSecret(), CreatedAt: lease.WallOf(now)}
}

// stale returns the tokens of a tenant that need not be listed any more, and the number of its
// other tokens. Those are the tokens that expired long ago, and if the limit is reached all that
// are not good any more: they must not be in the way of new ones. A token that is not listed is
// refused, too. But the newest of those that were withdrawn in the last week are kept apart from
// the others, because leases may live that were granted under them, see Withdrawn.
func (k *Keyring) stale(tenant string, now time.Time) (old []records.Token, left int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var ended, withdrawn []records.Token
	for _, t := range k.tokens[tenant] {
		since := k.withdrawnAt(t, now)
		switch {
		case isCertificate(t.ID):
		case since != 0 && now.Before(since.Time().Add(listed)):
			withdrawn = append(withdrawn, t)
		case now.After(t.ExpiresAt.Time().Add(listed)):
			old = append(old, t)
		case since != 0 || !now.Before(t.ExpiresAt.Time()):
			ended = append(ended, t)
		default:
			left++
		}
	}
	if extra := len(withdrawn) - maxTokens; extra > 0 {
		slices.SortFunc(withdrawn, func(a, b records.Token) int {
			return cmp.Compare(k.withdrawnAt(a, now), k.withdrawnAt(b, now))
		})
		old = append(old, withdrawn[:extra]...)
	}
	if left+len(ended) >= maxTokens {
		return append(old, ended...), left
	}
	return old, left + len(ended)
}

// revoked returns how many certificates of a tenant are revoked. They stay so for ever, because the
// keyring does not know when they expire.
func (k *Keyring) revoked(tenant string) (n int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for id := range k.tokens[tenant] {
		if isCertificate(id) {
			n++
		}
	}
	return n
}

// Revoke ends a token of the tenant, or a certificate that speaks for the tenant, for ever. When it
// returns, that is durable and in force. Revoking again changes nothing. The error is ErrNotFound
// if the tenant has no such token, or a *LimitError for a certificate that was not shown since the
// start, if too many are revoked: whoever has a stolen certificate may revoke made-up ones (X2,
// X3).
func (k *Keyring) Revoke(ctx context.Context, tenant, id, by string, now time.Time) (records.Token, error) {
	end, err := k.changing.begin(ctx, tenant)
	if err != nil {
		return records.Token{}, err
	}
	defer end()
	k.mu.RLock()
	t, known := k.tokens[tenant][id]
	shown := k.shown[id].Tenant == tenant
	k.mu.RUnlock()
	switch {
	case known && t.RevokedAt != 0:
		return t, nil
	case known:
	case !isCertificate(id):
		return records.Token{}, ErrNotFound
	case !shown && k.revoked(tenant) >= maxCertificates:
		// apart from the tokens: however many there are, a certificate can be revoked
		return records.Token{}, &LimitError{"revoked certificates", maxCertificates}
	default:
		t = records.Token{Tenant: tenant, ID: id, IssuedAt: lease.WallOf(now)}
	}
	t.RevokedAt, t.RevokedBy = lease.WallOf(now), by
	return t, k.commit(ctx, change{tenant: tenant, about: id, tokens: []records.Token{t}, ends: true})
}

// Rotate makes a new key, which signs for the tenant from then on. Each older key continues to
// verify until the last of its tokens has expired, but for at most retire if that is not nil. A
// retire of 0 ends the tokens of the older keys at once. Tokens that ended with their key are
// marked as revoked, so that they stay apart from those that expired by themselves. Their key is
// kept until the next rotation, to name their holders in refusals.
func (k *Keyring) Rotate(
	ctx context.Context, tenant string, retire *time.Duration, now time.Time,
) (records.SigningKey, error) {
	done, err := k.changing.begin(ctx, tenant)
	if err != nil {
		return records.SigningKey{}, err
	}
	defer done()
	c := change{tenant: tenant, ends: true}
	kept, needed := 0, k.needed(tenant)
	for _, key := range k.Keys(tenant) {
		end := retirement(key, needed[key.ID], retire, now)
		if end <= lease.WallOf(now) {
			cut := k.cut(key, end, lease.WallOf(now))
			c.tokens = append(c.tokens, cut...)
			if len(cut) == 0 || retired(key, now) {
				c.drop = append(c.drop, key)
				continue
			}
		} else {
			kept++
		}
		if end != key.RetiresAt {
			key.RetiresAt = end
			c.keys = append(c.keys, key)
		}
	}
	if kept >= maxKeys {
		return records.SigningKey{}, &LimitError{"keys; retire older ones with retire_after", maxKeys}
	}
	key := newKey(tenant, now)
	c.about = key.ID
	c.keys = append(c.keys, key)
	return key, k.commit(ctx, c)
}

// cut returns the tokens which end because their key ends, before their own expiry, marked as
// revoked at now.
func (k *Keyring) cut(key records.SigningKey, end, now lease.Wall) (cut []records.Token) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, t := range k.tokens[key.Tenant] {
		if t.Key == key.ID && t.RevokedAt == 0 && t.ExpiresAt > end {
			t.RevokedAt = now
			cut = append(cut, t)
		}
	}
	return cut
}

// needed returns, for each key of a tenant that signed a token which is not revoked, when the last
// such token expires.
func (k *Keyring) needed(tenant string) map[string]lease.Wall {
	k.mu.RLock()
	defer k.mu.RUnlock()
	until := map[string]lease.Wall{}
	for _, t := range k.tokens[tenant] {
		if t.RevokedAt == 0 {
			until[t.Key] = max(until[t.Key], t.ExpiresAt)
		}
	}
	return until
}

// retirement returns when an older key, which is needed until then, stops verifying tokens. That is
// never later than was set before.
func retirement(key records.SigningKey, needed lease.Wall, retire *time.Duration, now time.Time) lease.Wall {
	end := max(needed, lease.WallOf(now))
	if retire != nil {
		end = min(end, lease.WallOf(now.Add(*retire)))
	}
	if key.RetiresAt != 0 {
		end = min(end, key.RetiresAt)
	}
	return end
}

// change is what one commit changes.
type change struct {
	tenant string
	about  string               // id of the token or key that it is about
	keys   []records.SigningKey // made or changed
	drop   []records.SigningKey
	tokens []records.Token // made or changed
	forget []records.Token
	ends   bool // it may end credentials
}

// commit makes a change durable, and only then lets it take effect.
func (k *Keyring) commit(ctx context.Context, c change) error {
	if err := k.keep(ctx, c.tenant, c.about, c.put); err != nil {
		return err
	}
	k.mu.Lock()
	for _, key := range c.drop {
		delete(k.keys, key.ID)
	}
	for _, t := range c.forget {
		delete(k.tokens[t.Tenant], t.ID)
	}
	for _, key := range c.keys {
		k.keys[key.ID] = key
	}
	for _, t := range c.tokens {
		k.put(t)
	}
	k.mu.Unlock()
	if c.ends {
		k.ended(c.tenant)
	}
	return nil
}

func (c change) put(b *store.Batch) {
	for _, key := range c.drop {
		records.DropSigningKey(b, key)
	}
	for _, t := range c.forget {
		records.DropToken(b, t)
	}
	for _, key := range c.keys {
		records.PutSigningKey(b, key)
	}
	for _, t := range c.tokens {
		records.PutToken(b, t)
	}
}
