package tasktoken

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

var now = lease.Now{Serving: 5_000, Wall: 1_000_000}

func testHolding() lease.Holding {
	return lease.Holding{
		Tenant: "acme", Workspace: "w", Run: "r",
		Ticket: lease.Ticket{Epoch: 7, Task: lease.TaskID{Space: 3, Seq: 1 << 40}, Attempt: 2, Nonce: 1<<63 + 5},
	}
}

// at returns now with another time of the serving clock.
func at(i lease.Instant) lease.Now { return lease.Now{Serving: i, Wall: now.Wall} }

// H1: a token has the tenant, workspace, run, task, attempt and epoch for which it was issued.
func TestATokenHasTheClaimsOfItsLease(t *testing.T) {
	t.Attr("rules", "H1")
	s := New([]byte("key"), DefaultTTL)
	for _, credential := range []string{"", "k1"} {
		token, expires := s.Issue(now, testHolding(), credential, now.Serving)
		c, ok := s.Open(now, token)
		if !ok || c.Holding != testHolding() || c.Credential != credential || c.Expires != expires {
			t.Errorf("Open returned %+v (%v), want %+v with credential %q until %v", c, ok, testHolding(), credential, expires)
		}
	}
}

// H1: a token is valid for its TTL, or until ten minutes after the end of its lease if that is
// later.
func TestATokenExpires(t *testing.T) {
	t.Attr("rules", "H1")
	s := New([]byte("key"), time.Hour)
	for _, c := range []struct {
		lease, want time.Duration
	}{
		{90 * time.Second, time.Hour},
		{50 * time.Minute, time.Hour},
		{24 * time.Hour, 24*time.Hour + 10*time.Minute},
	} {
		token, expires := s.Issue(now, testHolding(), "", now.Serving.Add(c.lease))
		if got := expires.Sub(now.Serving); got != c.want {
			t.Errorf("with a lease of %v a token is valid for %v, want %v", c.lease, got, c.want)
		}
		if _, ok := s.Open(at(expires-1), token); !ok {
			t.Errorf("with a lease of %v the token is refused before it expires", c.lease)
		}
		if _, ok := s.Open(at(expires), token); ok {
			t.Errorf("with a lease of %v the token is accepted after it has expired", c.lease)
		}
	}
}

// H1: a token that was changed, or that was not issued with this key, is refused.
func TestAForgedTokenIsRefused(t *testing.T) {
	t.Attr("rules", "H1")
	key := []byte("key")
	s := New(key, DefaultTTL)
	token, _ := s.Issue(now, testHolding(), "", now.Serving)
	another, _ := New([]byte("kez"), DefaultTTL).Issue(now, testHolding(), "", now.Serving)
	forged := map[string]string{
		"nothing": "", "prefix alone": prefix, "another key": another, "no prefix": strings.TrimPrefix(token, prefix),
		"a line end": token[:20] + "\n" + token[20:], "more": token + "AAAA", "less": token[:len(token)-4],
		"a lease id": lease.NewAuthority(7, key).Issue("acme", testHolding().Ticket),
		"as one":     prefix + lease.NewAuthority(7, key).Issue("acme", testHolding().Ticket),
	}
	for i := len(prefix); i < len(token); i++ {
		other := byte('A')
		if token[i] == other {
			other = 'B'
		}
		forged["letter "+token[:i]] = token[:i] + string(other) + token[i+1:]
	}
	for what, forgery := range forged {
		if c, ok := s.Open(now, forgery); ok {
			t.Errorf("%s: %q is accepted as %+v", what, forgery, c)
		}
	}
}

// H1: the key of task tokens is derived only for them. It differs from the key of lease ids,
// because that key also signs other texts of the same length.
func TestTheKeyIsDerivedOnlyForTokens(t *testing.T) {
	t.Attr("rules", "H1")
	a := lease.NewAuthority(7, []byte("secret of the store"))
	token, _ := New(a.Derive(Purpose), DefaultTTL).Issue(now, testHolding(), "", now.Serving)
	if _, ok := New([]byte("secret of the store"), DefaultTTL).Open(now, token); ok {
		t.Error("a token is accepted with the secret of the store as the key")
	}
	if _, ok := New(a.Derive("session token"), DefaultTTL).Open(now, token); ok {
		t.Error("a token is accepted with the key of another purpose")
	}
}

// H1: the smallest and the largest TTL are allowed, and none outside this range.
func TestTTLIsChecked(t *testing.T) {
	t.Attr("rules", "H1")
	for ttl, ok := range map[time.Duration]bool{0: false, time.Second: true, time.Second - 1: false, 2 * time.Hour: true, 2*time.Hour + 1: false} {
		if err := CheckTTL(ttl); (err == nil) != ok {
			t.Errorf("TTL %v: the error is %v, want the TTL to be allowed: %v", ttl, err, ok)
		}
	}
}

// H1: a token stays valid when the coordinator is upgraded, so the form of tokens must not change.
// If this test fails, correct the code, not the token.
func TestTokensAreStable(t *testing.T) {
	t.Attr("rules", "H1")
	const want = "lst_AQAAA0YwuLOIgAAAAAAAAAUHA4CAgICAIAIEYWNtZQF3AXLo2az7Q697623NAhssy1Oxq73XO-uRa_iNTGyd17A76A"
	token, _ := New([]byte("key"), time.Hour).Issue(now, testHolding(), "", now.Serving)
	if token != want {
		t.Errorf("the token is %s, want %s", token, want)
	}
	const under = "lst_AgAAA0YwuLOIgAAAAAAAAAUHA4CAgICAIAIEYWNtZQF3AXICazE0NALPkh2Z-tSytDylEjLjjapX5BeJJCMCtuNz1DbyfQ"
	if token, _ = New([]byte("key"), time.Hour).Issue(now, testHolding(), "k1", now.Serving); token != under {
		t.Errorf("the token of a worker with a credential is %s, want %s", token, under)
	}
}

// Claims of another version, claims that are cut short, and claims with something behind them are
// refused, not read as other claims.
func TestOnlyWholeClaimsAreRead(t *testing.T) {
	for _, credential := range []string{"", "k1"} {
		whole := appendClaims(nil, &Claims{Holding: testHolding(), Credential: credential, Expires: 5})
		for n := range whole {
			if c, ok := decode(whole[:n]); ok {
				t.Errorf("the first %d of %d bytes are read as %+v", n, len(whole), c)
			}
		}
		if c, ok := decode(append(whole, 0)); ok {
			t.Errorf("one byte more is read as %+v", c)
		}
		for version := range 256 {
			was := whole[0]
			whole[0] = byte(version)
			if c, ok := decode(whole); ok != (version == int(was)) {
				t.Errorf("version %d with the claims of version %d is read as %+v (%v)", version, was, c, ok)
			}
			whole[0] = was
		}
	}
	empty := appendText(appendClaims(nil, &Claims{Holding: testHolding(), Expires: 5}), "")
	empty[0] = withCredential
	if c, ok := decode(empty); ok { // there is only one form of claims without a credential
		t.Errorf("an empty credential is read as %+v", c)
	}
}

// decode never panics, and what it accepts is encoded and decoded to the same again.
func FuzzClaims(f *testing.F) {
	f.Add(appendClaims(nil, &Claims{Holding: testHolding(), Expires: 5}))
	f.Add(appendClaims(nil, &Claims{Holding: testHolding(), Credential: "k1", Expires: 5}))
	f.Add([]byte{withoutCredential})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := decode(b)
		if !ok {
			return
		}
		if again, ok := decode(appendClaims(nil, &c)); !ok || again != c {
			t.Errorf("%x: the claims %+v are encoded and decoded as %+v", b, c, again)
		}
	})
}

// A text is accepted as a token only if it is exactly what is issued for its claims.
func FuzzOpen(f *testing.F) {
	s := New([]byte("key"), DefaultTTL)
	token, _ := s.Issue(now, testHolding(), "", now.Serving)
	f.Add(token)
	f.Add(token + "\n")
	f.Add(token[:len(token)-1] + "A")
	f.Add(prefix)
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := s.Open(now, text)
		if !ok {
			return
		}
		encoded := appendClaims(nil, &c)
		if again := prefix + base64.RawURLEncoding.EncodeToString(s.pens.Get().(*pen).appendMAC(encoded, encoded)); again != text {
			t.Errorf("%q is accepted, want only %q for the same claims", text, again)
		}
	})
}

func BenchmarkIssue(b *testing.B) {
	s := New([]byte("key"), DefaultTTL)
	h := testHolding()
	b.ReportAllocs()
	for b.Loop() {
		s.Issue(now, h, "", now.Serving)
	}
}

func BenchmarkOpen(b *testing.B) {
	s := New([]byte("key"), DefaultTTL)
	token, _ := s.Issue(now, testHolding(), "", now.Serving)
	b.ReportAllocs()
	for b.Loop() {
		s.Open(now, token)
	}
}
