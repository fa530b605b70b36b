package records_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// audits returns the audit entries of a tenant, beginning at a time.
func audits(t *testing.T, s store.Store, tenant string, from lease.Wall) (all []records.Audit) {
	t.Helper()
	view(t, s, func(r store.Reader) error {
		return records.Audits(r, store.AuditKey{Tenant: tenant, At: from}, func(a *records.Audit) bool {
			all = append(all, *a)
			return true
		})
	})
	return all
}

// X4, X2: Audits returns the entries of a tenant from a given time on, in the order of time, and
// none of another tenant.
func TestAuditRoundTrip(t *testing.T) {
	t.Attr("rules", "X4 X2")
	forRandomValues(t, func(t *testing.T, f filler) {
		s, want := memstore.New(), map[string][]records.Audit{}
		from := lease.Wall(f.rnd.IntN(20))
		for i := range 20 { // always two have the same wall time
			a := random[records.Audit](f)
			a.Tenant, a.At, a.Serving = string(rune('a'+f.rnd.IntN(2))), lease.Wall(i/2), lease.Instant(i)
			commit(t, s, func(b *store.Batch) { records.PutAudit(b, &a) })
			if a.At >= from {
				want[a.Tenant] = append(want[a.Tenant], a)
			}
		}
		for _, tenant := range []string{"a", "b", ""} {
			if diff := cmp.Diff(want[tenant], audits(t, s, tenant, from)); diff != "" {
				t.Errorf("tenant %q: -written +read:\n%s", tenant, diff)
			}
		}
	})
}

// X4: OldAudits lists the entries of all tenants that are too old, at most limit of them, so that
// they can be removed in bounded steps. Younger entries stay.
func TestOldAuditIsDropped(t *testing.T) {
	t.Attr("rules", "X4")
	s := memstore.New()
	commit(t, s, func(b *store.Batch) {
		for tenant := range 5 {
			for at := range 10 {
				records.PutAudit(b, &records.Audit{Tenant: "t" + strconv.Itoa(tenant), At: lease.Wall(at)})
			}
		}
	})
	for _, want := range []int{8, 8, 4, 0} { // 5 tenants have 4 old entries each, and the limit is 8
		var old []store.AuditKey
		view(t, s, func(r store.Reader) (err error) {
			old, err = records.OldAudits(r, 4, 8)
			return err
		})
		if len(old) != want {
			t.Errorf("OldAudits lists %d entries, want %d", len(old), want)
		}
		commit(t, s, func(b *store.Batch) {
			for _, k := range old {
				records.DropAudit(b, k)
			}
		})
	}
	for tenant := range 5 {
		if left := audits(t, s, "t"+strconv.Itoa(tenant), 0); len(left) != 6 || left[0].At != 4 {
			t.Errorf("tenant %d has %d entries left, want the 6 that begin at time 4", tenant, len(left))
		}
	}
}
