package store

import (
	"bytes"
	"encoding/binary"

	"github.com/lessor-dev/lessor/lease"
)

// AuditKey is the key of an audit entry. The entries of a tenant are ordered by the wall clock. The
// serving clock never goes back, so no two entries have the same key, even if the wall clock goes
// back.
type AuditKey struct {
	Tenant  string
	At      lease.Wall
	Serving lease.Instant
}

// auditTimes is the length of the two times in bytes.
const auditTimes = 8 + 8

// Append appends the key in Audit.
func (k AuditKey) Append(dst []byte) []byte {
	dst = AppendTenantKey(dst, k.Tenant, "")
	dst = binary.BigEndian.AppendUint64(dst, orderedInt64(int64(k.At)))
	return binary.BigEndian.AppendUint64(dst, orderedInt64(int64(k.Serving)))
}

// ParseAuditKey reverses AuditKey.Append.
func ParseAuditKey(key []byte) (AuditKey, error) {
	tenant, times, found := bytes.Cut(key, []byte{0})
	if !found || len(tenant) == 0 || len(times) != auditTimes {
		return AuditKey{}, parseError(Audit, key)
	}
	return AuditKey{
		Tenant:  string(tenant),
		At:      lease.Wall(binary.BigEndian.Uint64(times) ^ 1<<63),
		Serving: lease.Instant(binary.BigEndian.Uint64(times[8:]) ^ 1<<63),
	}, nil
}
