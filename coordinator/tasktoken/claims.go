package tasktoken

import (
	"encoding/binary"

	"github.com/lessor-dev/lessor/lease"
)

// Versions of the claims. Any other encoding gets another number. Claims without a credential have
// the form of the first version, which had none.
const (
	withoutCredential = 1
	withCredential    = 2
)

// appendClaims appends the encoded claims to b. Every value tells its own length, so that no two
// can run together.
func appendClaims(b []byte, c *Claims) []byte {
	version := byte(withoutCredential)
	if c.Credential != "" {
		version = withCredential
	}
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Expires))
	b = binary.BigEndian.AppendUint64(b, c.Ticket.Nonce)
	for _, n := range [...]uint64{
		uint64(c.Ticket.Epoch), uint64(c.Ticket.Task.Space), c.Ticket.Task.Seq, uint64(c.Ticket.Attempt),
	} {
		b = binary.AppendUvarint(b, n)
	}
	for _, s := range [...]string{c.Tenant, c.Workspace, c.Run} {
		b = appendText(b, s)
	}
	if version == withCredential {
		b = appendText(b, c.Credential)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decode reads what appendClaims has written; ok is false for another version.
func decode(b []byte) (c Claims, ok bool) {
	if len(b) == 0 || b[0] != withoutCredential && b[0] != withCredential {
		return Claims{}, false
	}
	r := reader{rest: b[1:]}
	c.Expires = lease.Instant(r.fixed())
	c.Ticket.Nonce = r.fixed()
	c.Ticket.Epoch = uint32(r.number())
	c.Ticket.Task = lease.TaskID{Space: uint32(r.number()), Seq: r.number()}
	c.Ticket.Attempt = uint32(r.number())
	c.Tenant, c.Workspace, c.Run = r.text(), r.text(), r.text()
	if b[0] == withCredential {
		c.Credential = r.text()
		r.bad = r.bad || c.Credential == ""
	}
	return c, !r.bad && len(r.rest) == 0
}

// reader reads values one by one, and remembers if one was missing or malformed.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) fixed() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string { return string(r.take(r.number())) }
