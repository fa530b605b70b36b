package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// tokenLife is how long a session token is valid after its accept frame. It is longer than the age
// of a connection, which package coordinator bounds.
const tokenLife = 2 * time.Hour

// ticket is the content of a session token (W8).
type ticket struct {
	session string
	gen     uint64 // rises with each accept of the instance
	until   lease.Wall
}

// tokens issues session tokens and recognises the tokens that it issued, also those from before a
// restart: its key is derived from the store's.
type tokens struct{ key []byte }

const (
	tokenVersion = 1
	tokenHead    = 1 + 8 + 8 // version, generation, end
)

// issue returns the token of a session of a worker: a ticket and a MAC over it, the tenant and the
// worker.
func (t *tokens) issue(tenant, worker string, k ticket) string {
	raw := make([]byte, tokenHead, tokenHead+len(k.session)+sha256.Size)
	raw[0] = tokenVersion
	binary.BigEndian.PutUint64(raw[1:], k.gen)
	binary.BigEndian.PutUint64(raw[9:], uint64(k.until))
	raw = append(raw, k.session...)
	return base64.RawURLEncoding.EncodeToString(append(raw, t.mac(tenant, worker, raw)...))
}

// open returns the content of a token, and whether the token was issued to this worker of this
// tenant.
func (t *tokens) open(tenant, worker, token string) (k ticket, genuine bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < tokenHead+sha256.Size || raw[0] != tokenVersion {
		return ticket{}, false
	}
	body, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	if !hmac.Equal(mac, t.mac(tenant, worker, body)) { // constant time
		return ticket{}, false
	}
	return ticket{
		session: string(body[tokenHead:]), gen: binary.BigEndian.Uint64(body[1:]),
		until: lease.Wall(binary.BigEndian.Uint64(body[9:])),
	}, true
}

// mac returns the MAC. Each part has its length before it, so that different parts never give the
// same input.
func (t *tokens) mac(tenant, worker string, ticket []byte) []byte {
	h := hmac.New(sha256.New, t.key)
	for _, part := range []string{tenant, worker, string(ticket)} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}
