package auth

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store/records"
)

// Tokens of an earlier version stay valid: neither their form nor what their mac covers may change.
func TestFormOfTokens(t *testing.T) {
	want := claims{ID: "i", Audience: "a", Tenant: "t", Role: "worker", Subject: "s", Issued: 1, Expires: 2}
	secret := bytes.Repeat([]byte("s"), secretSize)
	const token = "lsr_k1.eyJqdGkiOiJpIiwiYXVkIjoiYSIsInRlbiI6InQiLCJyb2wiOiJ3b3JrZXIiLCJzdWIiOiJzIiwiaWF0IjoxLCJleHAiOjJ9.AiWtfJpya53MiYVYMZN0SzJ1LfSFjspL4bvFDRoBur4"
	if got := sign("k1", secret, want); got != token {
		t.Errorf("a token is %s, want %s", got, token)
	}
	p, ok := split(token)
	if got, signed := p.verify(secret); !ok || p.key != "k1" || !signed || got != want {
		t.Errorf("a token of key %s with %+v is accepted: %v, want one of key k1 with %+v", p.key, got, ok && signed, want)
	}
}

// X2: the key of one tenant does not sign tokens of another tenant.
func TestKeySignsOnlyForItsTenant(t *testing.T) {
	t.Attr("rules", "X2")
	secret := bytes.Repeat([]byte("s"), secretSize)
	k := &Keyring{
		audience: "a",
		keys:     map[string]records.SigningKey{"k1": {Tenant: "evil", ID: "k1", Secret: secret}},
		tokens:   map[string]map[string]records.Token{"evil": {"i": {}}, "acme": {"i": {}}},
	}
	for tenant, want := range map[string]Problem{"evil": "", "acme": BadSignature} {
		token := sign("k1", secret, claims{
			ID: "i", Audience: "a", Tenant: tenant, Role: "operator", Subject: "eve",
			Issued: 1, Expires: 2,
		})
		_, err := k.Verify(token, time.Unix(1, 0))
		bad := &Error{}
		if errors.As(err, &bad); bad.Problem != want {
			t.Errorf("a token of tenant %s, signed with a key of evil: %v, want the problem %q", tenant, err, want)
		}
	}
}

// X4: whoever has the secret of a retired key can sign what they like; a refused token is named as
// its record has it, and not at all if there is none.
func TestRetiredKeyNamesNobodyMadeUp(t *testing.T) {
	t.Attr("rules", "X4")
	secret := bytes.Repeat([]byte("s"), secretSize)
	k := &Keyring{
		audience: "a",
		keys:     map[string]records.SigningKey{"k1": {Tenant: "acme", ID: "k1", Secret: secret, RetiresAt: 1}},
		tokens:   map[string]map[string]records.Token{"acme": {"i": {ID: "i", Key: "k1", Role: "viewer", Subject: "ann"}, "of-another": {ID: "of-another", Key: "k2"}}},
	}
	for id, subject := range map[string]string{"i": "ann", "of-another": "", "made-up": ""} {
		token := sign("k1", secret, claims{
			ID: id, Audience: "a", Tenant: "acme", Role: "operator", Subject: "eve",
			Issued: 1, Expires: 9,
		})
		who, err := k.Verify(token, time.Unix(1, 0))
		bad := &Error{}
		if errors.As(err, &bad); bad.Problem != UnknownKey || who.Subject != subject || who.Role == Operator || (who.Tenant == "") != (subject == "") {
			t.Errorf("%s: %+v (%v), want the subject %q of the record and the problem unknown_key", id, who, err, subject)
		}
	}
}
