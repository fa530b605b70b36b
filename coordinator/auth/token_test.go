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
		token := sign("k1", secret, claims{ID: "i", Audience: "a", Tenant: tenant, Role: "operator", Subject: "eve", Issued: 1, Expires: 2})
		_, err := k.Verify(token, time.Unix(1, 0))
		bad := &Error{}
		if errors.As(err, &bad); bad.Problem != want {
			t.Errorf("a token of tenant %s, signed with a key of evil: %v, want the problem %q", tenant, err, want)
		}
	}
}
