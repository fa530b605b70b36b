package auth_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

var noon = time.Unix(1_800_000_000, 0)

// testKeyring is a keyring with its store. Another keyring can be opened on the same store, as
// after a restart.
type testKeyring struct {
	*testing.T
	*auth.Keyring
	st    store.Store
	ended []string // the tenants whose credentials the keyring has reported to have ended
}

func open(t *testing.T, st store.Store, audience string) *testKeyring {
	t.Helper()
	d := &testKeyring{T: t, st: st}
	keep := func(_ context.Context, _, _ string, put func(*store.Batch)) error {
		var b store.Batch
		put(&b)
		return st.Commit(context.Background(), &b)
	}
	var err error
	if d.Keyring, err = auth.Open(st, audience, keep, func(tenant string) { d.ended = append(d.ended, tenant) }); err != nil {
		t.Fatal(err)
	}
	return d
}

// issue makes a token that is valid for an hour.
func (d *testKeyring) issue(tenant string) (token, id string) {
	d.Helper()
	token, t, err := d.Create(d.Context(),
		auth.Request{Tenant: tenant, Role: auth.Worker, Subject: "w", Life: time.Hour, IssuedBy: "ann"}, noon)
	if err != nil {
		d.Fatal(err)
	}
	return token, t.ID
}

// want checks the result of Verify at a time. An empty problem means that the token is valid.
func (d *testKeyring) want(what, token string, at time.Time, problem auth.Problem) {
	d.Helper()
	_, err := d.Verify(token, at)
	var bad *auth.Error
	switch {
	case errors.As(err, &bad) && bad.Problem == problem, err == nil && problem == "":
	default:
		d.Errorf("%s: %v, want the problem %q", what, err, problem)
	}
	if err != nil && len(token) > 8 && strings.Contains(err.Error(), token[:8]) {
		d.Errorf("%s: the error contains a part of the token: %v", what, err)
	}
}

// X1: Verify returns the identity of a token's holder until the token expires.
func TestTokenIdentifiesItsHolder(t *testing.T) {
	t.Attr("rules", "X1")
	d := open(t, memstore.New(), "")
	token, id := d.issue("acme")
	who, err := d.Verify(token, noon)
	want := auth.Identity{Tenant: "acme", Role: auth.Worker, Subject: "w", Credential: id, Until: noon.Add(time.Hour)}
	if err != nil || who != want {
		t.Errorf("the identity is %+v (%v), want %+v", who, err, want)
	}
	d.want("shortly before its end", token, noon.Add(time.Hour-1), "")
	d.want("at its end", token, noon.Add(time.Hour), auth.Expired)
}

// X1: bad tokens are refused, each with its problem.
func TestBadTokens(t *testing.T) {
	t.Attr("rules", "X1")
	d := open(t, memstore.New(), "")
	token, _ := d.issue("acme")
	other, _ := open(t, memstore.New(), "").issue("acme")
	parts := strings.Split(token, ".")
	theirs, _ := d.issue("evil")
	for what, bad := range map[string]struct {
		token   string
		problem auth.Problem
	}{
		"none":                     {"", auth.Missing},
		"a word":                   {"secret", auth.Malformed},
		"another scheme":           {"Bearer " + token, auth.Malformed},
		"no mac":                   {parts[0] + "." + parts[1], auth.Malformed},
		"a short mac":              {parts[0] + "." + parts[1] + "." + parts[2][:40], auth.Malformed},
		"padding":                  {token + "=", auth.Malformed},
		"a line end":               {token + "\n", auth.Malformed},
		"a line end in it":         {token[:len(token)-5] + "\r\n" + token[len(token)-5:], auth.Malformed},
		"10 MB":                    {token + strings.Repeat("A", 10<<20), auth.Malformed},
		"another store's key":      {other, auth.UnknownKey},
		"another key's id":         {strings.Split(theirs, ".")[0] + "." + parts[1] + "." + parts[2], auth.BadSignature},
		"another payload":          {parts[0] + "." + strings.Split(theirs, ".")[1] + "." + parts[2], auth.BadSignature},
		"another mac":              {parts[0] + "." + parts[1] + "." + strings.Split(theirs, ".")[2], auth.BadSignature},
		"a part between the parts": {parts[0] + "." + parts[1] + ".e30." + parts[2], auth.BadSignature},
	} {
		d.want(what, bad.token, noon, bad.problem)
	}
	open(t, d.st, "staging").want("another audience", token, noon, auth.BadAudience)
}

// X1: a token with one changed character is refused.
func TestChangedTokens(t *testing.T) {
	t.Attr("rules", "X1")
	d := open(t, memstore.New(), "")
	token, _ := d.issue("acme")
	for i := range token {
		for _, c := range []byte("A0_.") {
			changed := token[:i] + string(c) + token[i+1:]
			if _, err := d.Verify(changed, noon); err == nil && changed != token {
				t.Errorf("the token is accepted with %q at byte %d", c, i)
			}
		}
	}
}

// X1: the payload of a token, which everybody can read, does not contain the secret that signs it.
func TestPayloadDoesNotContainTheSecret(t *testing.T) {
	t.Attr("rules", "X1")
	d := open(t, memstore.New(), "")
	token, _ := d.issue("acme")
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil || !strings.Contains(string(payload), "acme") {
		t.Fatalf("the payload is %s (%v), want one with the tenant", payload, err)
	}
	err = d.st.View(func(r store.Reader) error {
		return records.SigningKeys(r, func(k records.SigningKey) error {
			for _, form := range []string{hex.EncodeToString(k.Secret), base64.StdEncoding.EncodeToString(k.Secret), base64.RawURLEncoding.EncodeToString(k.Secret)} {
				if len(k.Secret) == 0 || strings.Contains(string(payload), form) {
					t.Errorf("the payload %s contains the secret %q", payload, form)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// X1, X2, X3: a revoked token is refused from then on, also after a restart. Another tenant cannot
// revoke it, and other tokens stay valid.
func TestRevoke(t *testing.T) {
	t.Attr("rules", "X1 X2 X3")
	d := open(t, memstore.New(), "")
	token, id := d.issue("acme")
	kept, _ := d.issue("acme")
	for _, who := range []string{"evil", ""} {
		if _, err := d.Revoke(t.Context(), who, id, "eve", noon); !errors.Is(err, auth.ErrNotFound) {
			t.Errorf("revoked by %q: %v, want ErrNotFound", who, err)
		}
	}
	d.want("after others tried", token, noon, "")
	for range 2 { // the second time nothing changes
		if got, err := d.Revoke(t.Context(), "acme", id, "ann", noon); err != nil || got.RevokedBy != "ann" || got.RevokedAt != lease.WallOf(noon) {
			t.Fatalf("revoke: %+v, %v", got, err)
		}
	}
	if !slices.Equal(d.ended, []string{"acme"}) { // a new token ends nothing
		t.Errorf("reported are ends of credentials of %q, want one of acme", d.ended)
	}
	if _, err := d.Recheck(auth.Identity{Tenant: "acme", Credential: id}, noon); err == nil {
		t.Error("Recheck accepts the revoked token")
	}
	for _, k := range []*testKeyring{d, open(t, d.st, "")} {
		k.want("revoked", token, noon, auth.Revoked)
		k.want("the other one", kept, noon, "")
	}
}

// X1, X2: after a rotation, older tokens stay valid until their key is retired, if it is retired.
// Tokens of other tenants are not affected.
func TestRotate(t *testing.T) {
	t.Attr("rules", "X1 X2")
	d := open(t, memstore.New(), "")
	old, id := d.issue("acme")
	theirs, _ := d.issue("evil")
	rotate := func(retire *time.Duration) {
		t.Helper()
		if _, err := d.Rotate(t.Context(), "acme", retire, noon); err != nil {
			t.Fatal(err)
		}
	}
	rotate(nil)
	next, _ := d.issue("acme")
	for what, token := range map[string]string{"older": old, "newer": next, "another tenant's": theirs} {
		d.want(what, token, noon, "")
	}
	soon := time.Minute
	rotate(&soon)
	d.want("within the minute", old, noon.Add(time.Minute-1), "")
	d.want("after it", old, noon.Add(time.Minute), auth.UnknownKey)
	if until, err := d.Recheck(auth.Identity{Tenant: "acme", Credential: id}, noon); err != nil || !until.Equal(noon.Add(time.Minute)) {
		t.Errorf("the token is valid until %v (%v), want until its key retires", until, err)
	}
	rotate(nil) // does not extend the time of the retired key
	d.want("after another rotation", old, noon.Add(time.Minute), auth.UnknownKey)
	last, _ := d.issue("acme")
	none := time.Duration(0)
	rotate(&none)
	for what, token := range map[string]string{"older": old, "newer": next, "the last one": last} {
		open(t, d.st, "").want(what, token, noon, auth.UnknownKey)
	}
	open(t, d.st, "").want("another tenant's", theirs, noon, "")
}

// X1, X2: a key that ended tokens is kept until the next rotation: the audit names their holders
// (X4), but nobody else. A wall clock that is set back does not make them valid again.
func TestRetiredKeyStillNamesHolders(t *testing.T) {
	t.Attr("rules", "X1 X2")
	d := open(t, memstore.New(), "")
	token, id := d.issue("acme")
	rotate := func(retire time.Duration, at time.Time) {
		t.Helper()
		if _, err := d.Rotate(t.Context(), "acme", &retire, at); err != nil {
			t.Fatal(err)
		}
	}
	named := func(what, token, id string, at time.Time) {
		t.Helper()
		who, err := open(t, d.st, "").Verify(token, at)
		var bad *auth.Error
		if !errors.As(err, &bad) || bad.Problem != auth.UnknownKey || who.Credential != id || (who.Tenant == "") != (id == "") {
			t.Errorf("%s: %+v (%v), want the holder %q and the problem unknown_key", what, who, err, id)
		}
	}
	later := noon.Add(time.Minute)
	rotate(time.Minute, noon)
	named("a key whose time is over", token, id, later)
	rotate(0, later)
	named("a key that had retired before the rotation", token, "", later)
	next, nextID := d.issue("acme")
	rotate(0, later)
	named("a key that was ended at once", next, nextID, later)
	named("a token that it did not sign", next[:len(next)-4]+"AAAA", "", later)
	named("a token that has expired, too", next, nextID, later.Add(24*time.Hour))
	d.want("after the clock was set back", next, noon, auth.Revoked)
	rotate(0, later)
	if keys := d.Keys("acme"); len(keys) != 1 || keys[0].RetiresAt != 0 {
		t.Errorf("the tenant has %d keys, want only the one that signs", len(keys))
	}
}

// The number of keys of a tenant is limited. The error names the limit and says what helps: a
// rotation with retire_after, which then succeeds.
func TestKeyLimit(t *testing.T) {
	d := open(t, memstore.New(), "")
	var err error
	for range 1000 {
		d.issue("acme") // a key without tokens retires at the next rotation
		if _, err = d.Rotate(t.Context(), "acme", nil, noon); err != nil {
			break
		}
	}
	want := fmt.Sprintf("the tenant has reached its limit of %d keys; retire older ones with retire_after", len(d.Keys("acme")))
	if err == nil || err.Error() != want {
		t.Errorf("the last rotation returned %v, want %s", err, want)
	}
	if _, err := d.Rotate(t.Context(), "acme", new(time.Duration), noon); err != nil {
		t.Error(err)
	}
}

// fill returns a keyring on a store in which acme has the key "s" and n records, each made by
// record.
func fill(t *testing.T, n int, record func(i int) records.Token) *testKeyring {
	t.Helper()
	st := memstore.New()
	var b store.Batch
	records.PutSigningKey(&b, records.SigningKey{Tenant: "acme", ID: "s", Secret: []byte("secret")})
	for i := range n {
		records.PutToken(&b, record(i))
	}
	if err := st.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return open(t, st, "")
}

// wantFull checks that err is the refusal by a limit of tokens or certificates.
func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	if full := (*auth.LimitError)(nil); !errors.As(err, &full) || full.Most != mostTokens {
		t.Errorf("%s: %v, want a refusal with the limit %d", what, err, mostTokens)
	}
}

// mostTokens is how many tokens a tenant may have, and how many revoked certificates.
const mostTokens = 10_000

// X3: a tenant has a limited number of tokens. Those that have expired or are revoked are not in
// the way of new ones, nor are those of other tenants, and no number of tokens keeps anybody from
// revoking a token or a certificate.
func TestTokenLimit(t *testing.T) {
	t.Attr("rules", "X3")
	ends := noon.Add(time.Hour)
	d := fill(t, mostTokens-1, func(i int) records.Token {
		return records.Token{Tenant: "acme", ID: fmt.Sprint("k", i), Key: "s", ExpiresAt: lease.WallOf(ends)}
	})
	one := auth.Request{Tenant: "acme", Role: auth.Worker, Subject: "w", Life: time.Hour}
	d.issue("acme")
	d.issue("other")
	_, _, err := d.Create(t.Context(), one, noon)
	wantFull(t, "one more token", err)
	for _, id := range []string{"k0", certificate} {
		if _, err := d.Revoke(t.Context(), "acme", id, "ann", noon); err != nil {
			t.Errorf("%s is not revoked, because there are too many tokens: %v", id, err)
		}
	}
	if _, _, err = d.Create(t.Context(), one, noon); err != nil || len(d.List("acme")) != mostTokens+2 {
		t.Errorf("a token after one was revoked: %v, %d listed, want %d with that one and the certificate",
			err, len(d.List("acme")), mostTokens+2)
	}
	_, _, err = d.Create(t.Context(), one, ends.Add(-1))
	wantFull(t, "one more token, shortly before the others expire", err)
	if _, _, err = d.Create(t.Context(), one, ends); err != nil || len(d.List("acme")) != 3 {
		t.Errorf("a token after the others have expired: %v, %d listed, want only this one and the two that were revoked", err, len(d.List("acme")))
	}
}

// X3: whoever had a stolen credential may have issued as many tokens as there can be. When their
// key is retired, the tenant can issue tokens again, and those tokens stay withdrawn.
func TestTokenLimitAfterALeak(t *testing.T) {
	t.Attr("rules", "X3")
	const week = 7 * 24 * time.Hour
	for _, retire := range []time.Duration{0, time.Minute} {
		d := fill(t, mostTokens, func(i int) records.Token {
			return records.Token{
				Tenant: "acme", ID: fmt.Sprint("k", i), Key: "s",
				ExpiresAt: lease.WallOf(noon.Add(auth.MaxLife)),
			}
		})
		if _, err := d.Rotate(t.Context(), "acme", &retire, noon); err != nil {
			t.Fatal(err)
		}
		ended, request := noon.Add(retire), auth.Request{Tenant: "acme", Role: auth.Worker, Subject: "w"}
		token, one, err := d.Create(t.Context(), request, ended)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []*testKeyring{d, open(t, d.st, "")} {
			k.want("the new token", token, ended, "")
			if n := len(k.List("acme")); n != mostTokens+1 || !k.Withdrawn("acme", "k0", ended) {
				t.Errorf("key retired after %v: %d are listed, want the new token and those of the retired key", retire, n)
			}
		}
		if _, err := d.Revoke(t.Context(), "acme", one.ID, "ann", ended.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		// forgets one of the tokens that were withdrawn first
		if _, _, err := d.Create(t.Context(), request, ended.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if n := len(d.List("acme")); n != mostTokens+1 || !d.Withdrawn("acme", one.ID, ended.Add(time.Second)) {
			t.Errorf("key retired after %v: %d are listed, want the new token and the %d that were withdrawn last",
				retire, n, mostTokens)
		}
		if _, _, err := d.Create(t.Context(), request, noon.Add(2*week)); err != nil {
			t.Fatal(err)
		}
		if n := len(d.List("acme")); n > mostTokens {
			t.Errorf("key retired after %v: %d are listed two weeks later, want no more than there are without those that were withdrawn lately", retire, n)
		}
	}
}

// X3: a credential is withdrawn if it was revoked or its key retired before it expired, and then
// for ever: its expiry, a restart and other changes to the credentials do not change that. One that
// only expired is not withdrawn, even if its key is dropped after that.
func TestWithdrawn(t *testing.T) {
	t.Attr("rules", "X3")
	rotate := func(d *testKeyring, retire *time.Duration, at time.Duration) error {
		_, err := d.Rotate(t.Context(), "acme", retire, noon.Add(at))
		return err
	}
	revoke := func(d *testKeyring, id string, at time.Duration) error {
		_, err := d.Revoke(t.Context(), "acme", id, "ann", noon.Add(at))
		return err
	}
	const soon, never = time.Minute, 1000 * time.Hour
	for name, c := range map[string]struct {
		end       func(d *testKeyring, id string) error
		done      time.Duration // when the last change is made, after noon; the token expires an hour after noon
		withdrawn time.Duration // from when on it is withdrawn
	}{
		"expired":                  {func(*testKeyring, string) error { return nil }, 0, never},
		"expired, rotated":         {func(d *testKeyring, _ string) error { return rotate(d, nil, time.Hour) }, time.Hour, never},
		"rotated":                  {func(d *testKeyring, _ string) error { return rotate(d, nil, 0) }, 0, never},
		"retired after its expiry": {func(d *testKeyring, _ string) error { return rotate(d, new(2*time.Hour), 0) }, 0, never},
		"revoked":                  {func(d *testKeyring, id string) error { return revoke(d, id, 0) }, 0, 0},
		"revoked after its expiry": {func(d *testKeyring, id string) error { return revoke(d, id, 2*time.Hour) }, 2 * time.Hour, 0},
		"key dropped":              {func(d *testKeyring, _ string) error { return rotate(d, new(time.Duration), 0) }, 0, 0},
		"key retired":              {func(d *testKeyring, _ string) error { return rotate(d, new(soon), 0) }, 0, soon},
		"key retired, then dropped": {func(d *testKeyring, _ string) error {
			return errors.Join(rotate(d, new(soon), 0), rotate(d, nil, soon))
		}, soon, soon},
		"key retired, dropped after the expiry": {func(d *testKeyring, _ string) error {
			return errors.Join(rotate(d, new(soon), 0), rotate(d, nil, 2*time.Hour))
		}, 2 * time.Hour, soon},
	} {
		d := open(t, memstore.New(), "")
		_, id := d.issue("acme")
		if d.Withdrawn("acme", id, noon) {
			t.Errorf("%s: withdrawn before its end", name)
		}
		if err := c.end(d, id); err != nil {
			t.Fatal(err)
		}
		for _, k := range []*testKeyring{d, open(t, d.st, "")} {
			for _, at := range []time.Duration{0, soon, 30 * time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour} {
				if got, want := k.Withdrawn("acme", id, noon.Add(at)), at >= c.withdrawn; at >= c.done && got != want {
					t.Errorf("%s: withdrawn %v after noon is %v, want %v", name, at, got, want)
				}
			}
			if k.Withdrawn("evil", id, noon.Add(24*time.Hour)) {
				t.Errorf("%s: withdrawn for another tenant, too", name)
			}
		}
	}
	d := open(t, memstore.New(), "")
	if err := revoke(d, certificate, 0); err != nil || !d.Withdrawn("acme", certificate, noon) || d.Withdrawn("evil", certificate, noon) {
		t.Errorf("a revoked certificate (%v) is not withdrawn, or for another tenant", err)
	}
	d = fill(t, 1, func(int) records.Token {
		return records.Token{Tenant: "acme", ID: "k", Key: "dropped", ExpiresAt: lease.WallOf(noon.Add(time.Hour))}
	})
	if !d.Withdrawn("acme", "k", noon) {
		t.Error("a token whose key was dropped by an older version, which marked no tokens, is not withdrawn")
	}
}

// X3: a tenant has a limited number of revoked certificates, but they are not in the way of tokens,
// one that is revoked can be revoked again, and one that is in use can be revoked in any case.
func TestCertificateLimit(t *testing.T) {
	t.Attr("rules", "X3")
	id := func(i int) string { return fmt.Sprintf("cert-%040x", i) }
	d := fill(t, mostTokens, func(i int) records.Token {
		return records.Token{Tenant: "acme", ID: id(i), RevokedAt: lease.WallOf(noon)}
	})
	_, err := d.Revoke(t.Context(), "acme", id(mostTokens), "ann", noon)
	wantFull(t, "one more certificate", err)
	if _, err := d.Revoke(t.Context(), "acme", id(0), "ann", noon); err != nil {
		t.Error(err)
	}
	if _, err := d.Revoke(t.Context(), "other", id(0), "eve", noon); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	d.issue("acme")

	cert := func(tenant string, n int, until time.Time) *x509.Certificate {
		uri := &url.URL{Scheme: "lessor", Host: tenant, Path: "/worker/w"}
		return &x509.Certificate{Raw: fmt.Append(nil, tenant, n, until), URIs: []*url.URL{uri}, NotAfter: until}
	}
	show := func(c *x509.Certificate, at time.Time) *x509.Certificate {
		t.Helper()
		if _, err := d.Certified(c, at); err != nil {
			t.Fatal(err)
		}
		return c
	}
	revoke := func(c *x509.Certificate) error {
		_, err := d.Revoke(t.Context(), "acme", auth.CertificateID(c), "ann", noon)
		return err
	}
	wantFull(t, "a certificate in use by another tenant", revoke(show(cert("other", 0, noon.Add(time.Hour)), noon)))
	const many = 3000 // so that those which have expired are looked for
	for _, until := range []time.Time{noon.Add(time.Hour), noon.Add(2 * time.Hour)} {
		for i := range many {
			show(cert("acme", i, until), until.Add(-1))
		}
		for _, i := range []int{0, many - 1} {
			one := cert("acme", i, until)
			if err := revoke(one); err != nil {
				t.Errorf("a certificate in use: %v", err)
			}
			var bad *auth.Error
			if _, err := d.Certified(one, noon); !errors.As(err, &bad) || bad.Problem != auth.Revoked {
				t.Errorf("the revoked certificate: %v, want that it is revoked", err)
			}
		}
	}
	wantFull(t, "a certificate that has expired", revoke(cert("acme", 1, noon.Add(time.Hour))))
}

// X1: a token is valid even if its names are as long as they may be and JSON needs six bytes for
// each of their characters.
func TestTokenWithLongNames(t *testing.T) {
	t.Attr("rules", "X1")
	d := open(t, memstore.New(), "")
	long := strings.Repeat("<", lease.DefaultLimits().ID)
	token, _, err := d.Create(t.Context(), auth.Request{Tenant: long, Role: auth.Worker, Subject: long}, noon)
	if err != nil {
		t.Fatal(err)
	}
	d.want("the token", token, noon, "")
}

// certificate is the id of a certificate.
var certificate = "cert-" + strings.Repeat("0a", 20)

// X3: a token that was good ends at its own expiry or when its key retires, whichever is first.
func TestRecheck(t *testing.T) {
	t.Attr("rules", "X3")
	d := open(t, memstore.New(), "")
	short, id := d.issue("acme")
	if _, _, err := d.Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Worker, Subject: "w", Life: 9 * time.Hour}, noon); err != nil {
		t.Fatal(err)
	}
	for _, retire := range []time.Duration{2 * time.Hour, time.Minute} {
		if _, err := d.Rotate(t.Context(), "acme", &retire, noon); err != nil {
			t.Fatal(err)
		}
		end := noon.Add(min(retire, time.Hour))
		who, err := d.Verify(short, noon)
		until, err2 := d.Recheck(auth.Identity{Tenant: "acme", Credential: id}, end.Add(-1))
		if err := errors.Join(err, err2); err != nil || !until.Equal(end) || !who.Until.Equal(end) {
			t.Errorf("good until %v and %v (%v), want %v", who.Until, until, err, end)
		}
		if _, err := d.Recheck(auth.Identity{Tenant: "acme", Credential: id}, end); err == nil {
			t.Errorf("good at its end, with a key that retires after %v", retire)
		}
	}
	if _, err := d.Rotate(t.Context(), "acme", new(time.Duration), noon); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Recheck(auth.Identity{Tenant: "acme", Credential: id}, noon); err == nil {
		t.Error("good without its key")
	}
}

// A key is not kept if its tokens are all revoked, or if it has none.
func TestKeyOfRevokedTokens(t *testing.T) {
	d := open(t, memstore.New(), "")
	_, id := d.issue("acme")
	if _, err := d.Revoke(t.Context(), "acme", id, "ann", noon); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Rotate(t.Context(), "acme", nil, noon); err != nil || len(d.Keys("acme")) != 1 {
		t.Errorf("%d keys (%v), want the new one", len(d.Keys("acme")), err)
	}
	d.issue("acme")
	for range 2 { // the second key signs no token
		if _, err := d.Rotate(t.Context(), "acme", nil, noon); err != nil || len(d.Keys("acme")) != 2 {
			t.Errorf("%d keys (%v), want the one of the token and the new one", len(d.Keys("acme")), err)
		}
	}
}

// A tenant that cannot be the host of the URI in a certificate is refused when the certificate is
// made, not when it is used.
func TestNamesOfHolders(t *testing.T) {
	for tenant, want := range map[string]bool{"acme": true, "a.b": true, "a..b": false, ".a": false, "a.": false, "a/b": false, "a:1": false, "a:": false, "[::1]": false} {
		if uri, err := auth.Name(auth.Request{Tenant: tenant, Role: auth.Worker, Subject: "w"}); (err == nil) != want {
			t.Errorf("%s: %v, %v", tenant, uri, err)
		}
	}
}

// X1: a token that the store does not have is refused, because nobody could revoke it. After a
// restore, the store does not have the tokens that were issued after the backup.
func TestUnknownTokens(t *testing.T) {
	t.Attr("rules", "X1")
	d := open(t, memstore.New(), "")
	d.issue("acme")
	var backup store.Batch
	for _, ks := range []store.Keyspace{store.SigningKey, store.Token} {
		err := d.st.View(func(r store.Reader) error {
			return r.Scan(ks, nil, nil, func(key, value []byte) bool { backup.Put(ks, key, value); return true })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	token, _ := d.issue("acme")
	restored := memstore.New()
	if err := restored.Commit(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	open(t, restored, "").want("issued after the backup", token, noon, auth.Unknown)
}

// A keyring that cannot read all keys and tokens is not opened: it could not know which credentials
// were revoked.
func TestDamagedCredentials(t *testing.T) {
	for _, ks := range []store.Keyspace{store.SigningKey, store.Token} {
		st := memstore.New()
		var b store.Batch
		b.Put(ks, []byte("damaged"), []byte("damaged"))
		if err := st.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		_, err := auth.Open(st, "", nil, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "read the credentials: ") {
			t.Errorf("with a damaged record in %v: %v, want an error", ks, err)
		}
	}
}

// X1, X3: a change that could not be stored has no effect.
func TestFailedChangesHaveNoEffect(t *testing.T) {
	t.Attr("rules", "X1 X3")
	d := open(t, memstore.New(), "")
	token, id := d.issue("acme")
	full := errors.New("full")
	broken, err := auth.Open(d.st, "", func(context.Context, string, string, func(*store.Batch)) error { return full },
		func(string) { t.Error("a failed change was reported") })
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = broken.Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Viewer, Subject: "v"}, noon)
	_, err2 := broken.Revoke(t.Context(), "acme", id, "ann", noon)
	_, err3 := broken.Rotate(t.Context(), "acme", new(time.Duration), noon)
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, full) {
			t.Errorf("the error is %v, want the store's error", err)
		}
	}
	if _, err := broken.Verify(token, noon); err != nil || len(broken.List("acme")) != 1 || len(broken.Keys("acme")) != 1 {
		t.Errorf("a failed change had an effect: Verify returns %v, there are %d tokens and %d keys",
			err, len(broken.List("acme")), len(broken.Keys("acme")))
	}
}

// A request for a token with a bad field is refused with the name of the field, and makes no token.
func TestBadRequests(t *testing.T) {
	d := open(t, memstore.New(), "")
	for _, life := range []time.Duration{-time.Second, -1, 1, time.Second - 1, auth.MaxLife + 1} {
		_, _, err := d.Create(t.Context(), auth.Request{Tenant: "a", Role: auth.Worker, Subject: "w", Life: life}, noon)
		if bad := (*lease.FieldError)(nil); !errors.As(err, &bad) || bad.Field != "ttl" {
			t.Errorf("with a life of %v: the error is %v, want one of ttl", life, err)
		}
	}
	for field, r := range map[string]auth.Request{
		"tenant":  {Tenant: "", Role: auth.Worker, Subject: "w"},
		"subject": {Tenant: "a", Role: auth.Worker, Subject: "w\x00"},
		"role":    {Tenant: "a", Role: auth.Worker | auth.Viewer, Subject: "w"},
	} {
		_, _, err := d.Create(t.Context(), r, noon)
		if bad := (*lease.FieldError)(nil); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: the error is %v, want one of that field", field, err)
		}
	}
	if len(d.List("a")) != 0 {
		t.Error("a refused request made a token")
	}
	for _, life := range []time.Duration{time.Second, auth.MaxLife} {
		if _, made, err := d.Create(t.Context(), auth.Request{Tenant: "a", Role: auth.Worker, Subject: "w", Life: life}, noon); err != nil ||
			made.ExpiresAt != lease.WallOf(noon.Add(life)) {
			t.Errorf("with a life of %v: %+v, %v", life, made, err)
		}
	}
}

// X3: tokens that expired long ago are deleted when the next one is made; revoked certificates are
// not, because they have no end here.
func TestOldTokensAreForgotten(t *testing.T) {
	t.Attr("rules", "X3")
	d := open(t, memstore.New(), "")
	d.issue("acme")
	if _, err := d.Revoke(t.Context(), "acme", certificate, "ann", noon); err != nil {
		t.Fatal(err)
	}
	const week = 7 * 24 * time.Hour
	create := func(at time.Time) {
		t.Helper()
		if _, _, err := d.Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Viewer, Subject: "v"}, at); err != nil {
			t.Fatal(err)
		}
	}
	create(noon.Add(week))
	if n := len(d.List("acme")); n != 3 {
		t.Errorf("%d are listed six days after the first token has expired, want that, too, and so 3", n)
	}
	create(noon.Add(3 * week))
	for _, k := range []*testKeyring{d, open(t, d.st, "")} {
		if list := k.List("acme"); len(list) != 2 || list[0].ID != certificate || list[1].Subject != "v" {
			t.Errorf("listed are %+v, want the revoked certificate and the new token", list)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k, err := auth.Open(memstore.New(), "",
		func(context.Context, string, string, func(*store.Batch)) error { return nil }, func(string) {})
	if err != nil {
		b.Fatal(err)
	}
	token, _, err := k.Create(b.Context(), auth.Request{Tenant: "acme", Role: auth.Worker, Subject: "w"}, noon)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := k.Verify(token, noon); err != nil {
			b.Fatal(err)
		}
	}
}

// X3, T12: a tenant revokes a credential at once, however many changes of other tenants wait for
// their commits. Changes of the same tenant come one after the other.
func TestChangesOfOtherTenantsAreNotWaitedFor(t *testing.T) {
	t.Attr("rules", "X3")
	synctest.Test(t, func(t *testing.T) {
		const commit = time.Second
		st := memstore.New()
		under := map[string]int{}
		var mu sync.Mutex
		keep := func(_ context.Context, tenant, _ string, put func(*store.Batch)) error {
			mu.Lock()
			if under[tenant]++; under[tenant] > 1 {
				t.Errorf("%d changes of %s are under way at once, want 1", under[tenant], tenant)
			}
			mu.Unlock()
			time.Sleep(commit)
			var b store.Batch
			put(&b)
			mu.Lock()
			defer mu.Unlock()
			under[tenant]--
			return st.Commit(context.Background(), &b)
		}
		k, err := auth.Open(st, "", keep, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		create := func(tenant string) records.Token {
			_, made, err := k.Create(t.Context(),
				auth.Request{Tenant: tenant, Role: auth.Worker, Subject: "w", IssuedBy: "ann"}, noon)
			if err != nil {
				t.Error(err)
			}
			return made
		}
		made := create("quiet")
		var busy sync.WaitGroup
		for range 20 {
			busy.Go(func() { create("busy") })
		}
		time.Sleep(commit / 2)
		began := time.Now()
		if _, err := k.Revoke(t.Context(), "quiet", made.ID, "ann", noon); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > commit {
			t.Errorf("a revocation took %v while another tenant made tokens, want one commit of %v", took, commit)
		}
		busy.Wait()
	})
}
