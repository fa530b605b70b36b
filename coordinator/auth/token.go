package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

const (
	tokenPrefix = "lsr_"
	// maxToken is in bytes. Every token that is issued is shorter, although JSON writes some
	// characters in six bytes.
	maxToken = 8 << 10
	// purpose is part of the signed text, so that the mac of a token is not valid for anything else
	// that the key may sign.
	purpose = "lessor bearer token\n"
)

// claims is the payload of a token.
type claims struct {
	ID       string `json:"jti"`
	Audience string `json:"aud"`
	Tenant   string `json:"ten"`
	Role     string `json:"rol"`
	Subject  string `json:"sub"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// text is a strict encoding, so that a token has only one valid form.
var text = base64.RawURLEncoding.Strict()

// sign writes a token.
func sign(key string, secret []byte, c claims) string {
	payload, _ := json.Marshal(c) // strings and numbers only
	signed := tokenPrefix + key + "." + text.EncodeToString(payload)
	return signed + "." + text.EncodeToString(mac(secret, signed))
}

// parts are the parts of a token. Nothing of them is verified yet.
type parts struct {
	key, signed, payload string
	mac                  []byte
}

// LooksLikeToken reports whether a text begins as a token of this package does. It verifies
// nothing.
func LooksLikeToken(text string) bool { return strings.HasPrefix(text, tokenPrefix) }

// split takes a token apart.
func split(token string) (p parts, ok bool) {
	if len(token) > maxToken || !LooksLikeToken(token) {
		return parts{}, false
	}
	last := strings.LastIndexByte(token, '.')
	if last < 0 {
		return parts{}, false
	}
	p.signed = token[:last]
	p.key, p.payload, ok = strings.Cut(p.signed[len(tokenPrefix):], ".")
	mac := token[last+1:]
	var err error
	p.mac, err = text.DecodeString(mac)
	// the decoder skips line ends
	return p, ok && err == nil && len(p.mac) == sha256.Size && len(mac) == text.EncodedLen(sha256.Size)
}

// verify returns what a token says; ok is false unless secret signed it.
func (p parts) verify(secret []byte) (c claims, ok bool) {
	if !hmac.Equal(p.mac, mac(secret, p.signed)) { // constant time
		return claims{}, false
	}
	payload, err := text.DecodeString(p.payload)
	return c, err == nil && json.Unmarshal(payload, &c) == nil
}

func mac(secret []byte, signed string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose))
	h.Write([]byte(signed))
	return h.Sum(nil)
}

func (c claims) expires() time.Time { return time.Unix(c.Expires, 0) }

var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID returns an unguessable id, so that the ids of different stores never coincide.
func newID(prefix string) string {
	var raw [10]byte
	_, _ = rand.Read(raw[:]) // never fails
	return prefix + idText.EncodeToString(raw[:])
}

const secretSize = 32 // bytes

func newSecret() []byte {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	return secret
}
