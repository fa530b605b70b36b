// Package tasktoken issues task tokens and verifies them (H1). A task token lets its bearer report
// one attempt over HTTP. It names the lease, and the lease decides what a report does. A token is
// good for nothing else. It outlives its lease only so that its bearer can still be told what has
// become of the task.
//
// A token is "lst_" and the base64 of the claims and an HMAC-SHA256 over them. The key is derived
// from the secret of the store, for this purpose alone: so a token is never a valid lease id or
// credential, and neither of those is a valid token.
package tasktoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Bounds of the time during which a token is good.
const (
	DefaultTTL = time.Hour
	MaxTTL     = 2 * time.Hour
	MinTTL     = time.Second
	// Margin is the least time by which a token outlives its lease, however long the lease is.
	Margin = 10 * time.Minute
)

// Purpose is what the key is for, as an argument of lease.Authority.Derive.
const Purpose = "task token"

const prefix = "lst_"

// text is strict, so that a token has only one form.
var text = base64.RawURLEncoding.Strict()

// Claims is what a token says.
type Claims struct {
	lease.Holding
	// Credential is the id of the credential under which the worker holds the lease. The token ends
	// when that is revoked (X3). It is empty if the worker needed none, or if a version issued the
	// token that did not put it in.
	Credential string
	// Expires is an instant of the serving clock, like the end of a lease. So a token does not end
	// while the coordinator is down, because the lease does not either, nor by a jump of the wall
	// clock (A8, A9).
	Expires lease.Instant
}

// Signer issues tokens. It is safe for concurrent use.
type Signer struct {
	ttl  time.Duration
	pens sync.Pool // of *pen
}

// New returns a signer of tokens that are good for ttl, 1 s to 2 h.
func New(key []byte, ttl time.Duration) *Signer {
	s := &Signer{ttl: ttl}
	s.pens.New = func() any { return &pen{mac: hmac.New(sha256.New, key)} }
	return s
}

// CheckTTL returns an error if a signer may not have this ttl.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("task token ttl is %v; the range is %v to %v", ttl, MinTTL, MaxTTL)
	}
	return nil
}

// Issue returns a token for the holder of a live lease that ends at leaseEnds, and when the token
// ends. For credential see Claims.
func (s *Signer) Issue(
	now lease.Now, h lease.Holding, credential string, leaseEnds lease.Instant,
) (token string, expires lease.Instant) {
	expires = max(now.Serving.Add(s.ttl), leaseEnds.Add(Margin))
	p := s.pens.Get().(*pen)
	defer s.pens.Put(p)
	p.said = appendClaims(p.said[:0], &Claims{Holding: h, Credential: credential, Expires: expires})
	p.said = p.appendMAC(p.said, p.said)
	p.text = text.AppendEncode(append(p.text[:0], prefix...), p.said)
	return string(p.text), expires
}

// LooksLikeToken reports whether a text begins as a task token does. It verifies nothing.
func LooksLikeToken(text string) bool { return strings.HasPrefix(text, prefix) }

// Open returns what a token says; ok is false unless this store issued it and it has not ended.
// Whether its credential was revoked is for the caller to check.
func (s *Signer) Open(now lease.Now, token string) (c Claims, ok bool) {
	body, ours := strings.CutPrefix(token, prefix)
	raw, err := text.DecodeString(body)
	// the decoder skips line ends
	if !ours || err != nil || len(raw) <= sha256.Size || len(body) != text.EncodedLen(len(raw)) {
		return Claims{}, false
	}
	said, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	p := s.pens.Get().(*pen)
	defer s.pens.Put(p)
	var space [sha256.Size]byte
	if !hmac.Equal(mac, p.appendMAC(space[:0], said)) { // constant time
		return Claims{}, false
	}
	c, ok = decode(said)
	return c, ok && now.Serving < c.Expires
}

// pen is the memory needed to write a token. Every lease gets tokens, so pens are pooled.
type pen struct {
	mac        hash.Hash // keyed
	said, text []byte
}

// appendMAC appends the MAC of what a token says to dst.
func (p *pen) appendMAC(dst, said []byte) []byte {
	p.mac.Reset()
	p.mac.Write(said)
	return p.mac.Sum(dst)
}
