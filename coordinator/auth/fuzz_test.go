package auth

import (
	"bytes"
	"testing"
)

// A text is accepted as a token only if it is exactly what its secret signs, and only with that
// secret.
func FuzzToken(f *testing.F) {
	secret, other := bytes.Repeat([]byte("s"), secretSize), bytes.Repeat([]byte("t"), secretSize)
	issued := sign("k1", secret, claims{ID: "i", Audience: "a", Tenant: "t", Role: "worker", Subject: "s", Issued: 1, Expires: 2})
	f.Add(issued)
	f.Add(issued + "\n")
	f.Add(issued[:len(issued)-1] + "B")
	f.Add("lsr_k1..")
	f.Add("lsr_k1.." + issued[len(issued)-43:])
	f.Add(sign("", secret, claims{}))
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := split(text)
		if !ok {
			return
		}
		if _, ok := p.verify(other); ok {
			t.Errorf("%q is accepted with a secret that did not sign it", text)
		}
		c, ok := p.verify(secret)
		if ok && sign(p.key, secret, c) != text {
			t.Errorf("%q is accepted, want only %q for the same claims", text, sign(p.key, secret, c))
		}
	})
}
