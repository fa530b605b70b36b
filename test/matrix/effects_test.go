package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// contents is what a store holds, without the audit and without what belongs to no tenant (the key
// of the leases, the clock).
type contents map[record]string

// record says which tenant a record belongs to, and where it is.
type record struct {
	tenant string
	space  store.Keyspace
	key    string
}

// contents reads the store.
func (h *host) contents() contents {
	h.t.Helper()
	all := contents{}
	err := h.store.View(func(r store.Reader) error {
		owners := map[uint32]string{}
		if err := records.Spaces(r, func(s records.Space) error { owners[s.Number] = s.Tenant; return nil }); err != nil {
			return err
		}
		for ks := store.Meta + 1; int(ks) < store.NumKeyspaces; ks++ {
			if ks == store.Audit {
				continue
			}
			err := r.Scan(ks, nil, nil, func(key, value []byte) bool {
				all[record{owner(ks, key, owners), ks, string(key)}] = string(value)
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// owner returns the tenant to which the record with this key belongs.
func owner(ks store.Keyspace, key []byte, owners map[uint32]string) string {
	switch ks {
	case store.Space, store.SigningKey, store.Token:
		tenant, _, _ := store.ParseTenantKey(ks, key) // empty if the key is damaged; then it belongs to no tenant
		return tenant
	case store.Timer:
		timer, _ := store.ParseTimerKey(key)
		return owners[timer.Task.Space]
	}
	// the keys of all records of a task begin with the number of its workspace, too
	space, _, _ := store.ParseNameKey(ks, key)
	return owners[space]
}

// effects is what a cell has changed in the store.
type effects struct {
	records map[string]string // for each tenant: how many records were added, changed and deleted in each keyspace
	entries []*records.Audit  // new entries of the audit
}

// effects returns what has changed since its last call.
func (h *host) effects() effects {
	h.t.Helper()
	if h.commits == 0 {
		return effects{}
	}
	h.commits = 0
	before, auditBefore := h.contentsBefore, h.auditBefore
	h.contentsBefore, h.auditBefore = h.contents(), h.audit()
	return effects{difference(before, h.contentsBefore), h.auditBefore[len(auditBefore):]}
}

// audit reads all entries of the audit, in the order of their times; of entries with the same time,
// acme's come first.
func (h *host) audit() (all []*records.Audit) {
	h.t.Helper()
	for _, tenant := range []string{acme, evil} {
		err := h.store.View(func(r store.Reader) error {
			return records.Audits(r, store.AuditKey{Tenant: tenant},
				func(a *records.Audit) bool { all = append(all, a); return true })
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	slices.SortStableFunc(all, func(a, b *records.Audit) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Serving, b.Serving))
	})
	return all
}

// difference counts the records of each tenant that were added (+), changed (~) and deleted (-).
func difference(before, now contents) map[string]string {
	type group struct {
		tenant string
		space  store.Keyspace
		sign   string
	}
	counts := map[group]int{}
	for r, value := range now {
		if old, there := before[r]; !there {
			counts[group{r.tenant, r.space, "+"}]++
		} else if old != value {
			counts[group{r.tenant, r.space, "~"}]++
		}
	}
	for r := range before {
		if _, there := now[r]; !there {
			counts[group{r.tenant, r.space, "-"}]++
		}
	}
	words := map[string][]string{}
	for g, n := range counts {
		words[g.tenant] = append(words[g.tenant], fmt.Sprintf("%v%s%d", g.space, g.sign, n))
	}
	summary := map[string]string{}
	for tenant, w := range words {
		slices.Sort(w)
		summary[tenant] = strings.Join(w, " ")
	}
	return summary
}

// entry checks an entry that a cell has left in the audit. It returns it in short, and as a whole
// without what differs from host to host.
func (h *host) entry(c cell, a *records.Audit) (summary, text string) {
	h.t.Helper()
	tenant, subject := c.tenant, c.tenant+"-"+c.role.String()
	if c.problem != "" {
		tenant, subject = acme, acme+"-bad"
	}
	if a.Tenant != tenant || a.Action != c.action && a.Action != c.within || a.Subject != subject || a.Credential == "" || a.Peer == "" {
		h.t.Errorf("%v: the entry in the audit is %+v, want tenant %s, action %s, subject %s, a credential and a peer",
			c, a, tenant, c.action, subject)
	}
	text = fmt.Sprintf("audit: workspace %s object %s detail %s corr %s tasks %d",
		a.Workspace, a.Object, a.Detail, a.Corr, a.Tasks)
	for _, secret := range append(h.secrets, h.environment.secrets...) {
		if strings.Contains(text, secret) {
			h.t.Errorf("%v: the audit has the secret %s: %s", c, secret, text)
		}
	}
	return "audit " + a.Action + " " + a.Outcome, text
}
