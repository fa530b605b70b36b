package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// OutcomeOK is the outcome of a call that succeeded. The outcome of a refused call is the code of
// its error.
const OutcomeOK = "OK"

// Audit is an entry of the audit: who did what, or what was refused to whom (X4). It contains no
// secret and no payload.
type Audit struct {
	Tenant  string
	At      lease.Wall
	Serving lease.Instant // the serving clock at that moment; part of the key, see store.AuditKey

	Subject    string
	Role       string
	Credential string // id of the token or certificate; empty: the call needed none
	Peer       string // network address, without the port

	Action    string // name of the call
	Workspace string
	Object    string // id or name of what the call acted on
	Detail    string // the rest of the request in words
	Corr      string // request_id
	Outcome   string // OutcomeOK, or the code of the error
	Tasks     uint64 // number of tasks that were changed, if the call is a bulk command
	Times     uint64 // number of equal refusals, or of equal calls without effect, if the entry sums them up
}

func auditFields(c *codec, a *Audit) {
	c.str(&a.Subject)
	c.str(&a.Role)
	c.str(&a.Credential)
	c.str(&a.Peer)
	c.str(&a.Action)
	c.str(&a.Workspace)
	c.str(&a.Object)
	c.str(&a.Detail)
	c.str(&a.Corr)
	c.str(&a.Outcome)
	num(c, &a.Tasks)
	num(c, &a.Times)
}

// Key returns the key of the entry.
func (a *Audit) Key() store.AuditKey {
	return store.AuditKey{Tenant: a.Tenant, At: a.At, Serving: a.Serving}
}

// PutAudit stores an entry.
func PutAudit(b *store.Batch, a *Audit) { put(b, store.Audit, a.Key().Append(nil), a, auditFields) }

// Audits calls fn with the entries of the tenant of from that are at from or later, oldest first,
// until fn returns false.
func Audits(r store.Reader, from store.AuditKey, fn func(*Audit) bool) error {
	end := store.PrefixEnd(store.AppendTenantKey(nil, from.Tenant, ""))
	return scan(r, store.Audit, from.Append(nil), end, func(key, value []byte) (bool, error) {
		a := new(Audit)
		err := decode(store.Audit, key, value, a, auditFields)
		if err != nil {
			return false, err
		}
		k, err := store.ParseAuditKey(key)
		a.Tenant, a.At, a.Serving = k.Tenant, k.At, k.Serving
		return err == nil && fn(a), err
	})
}

// OldAudits lists at most limit entries that are older than before. It skips younger entries
// without reading them.
func OldAudits(r store.Reader, before lease.Wall, limit int) (old []store.AuditKey, err error) {
	for from, more := []byte(nil), true; more && err == nil; {
		more = false
		err = scan(r, store.Audit, from, nil, func(key, _ []byte) (bool, error) {
			k, err := store.ParseAuditKey(key)
			switch {
			case err != nil || len(old) == limit:
				return false, err
			case k.At >= before: // continue with the next tenant
				from, more = store.PrefixEnd(store.AppendTenantKey(nil, k.Tenant, "")), true
				return false, nil
			}
			old = append(old, k)
			return true, nil
		})
	}
	return old, err
}

// DropAudit removes an entry.
func DropAudit(b *store.Batch, k store.AuditKey) { b.Delete(store.Audit, k.Append(nil)) }
