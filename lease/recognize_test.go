package lease_test

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// A7, V2, V3: the rules recognise the id of a live lease in two ways: by comparison with Lease.ID,
// and by the MAC if Lease.ID is empty because the lease was read from the store after a restart.
// Both must accept the id for its tenant only, and refuse every other text.
func TestLeaseIDInMemoryAndFromStoreAreJudgedAlike(t *testing.T) {
	t.Attr("rules", "A7")
	l := newLife()
	for _, c := range l.commands()[:2] {
		l.step(t, c.make())
	}
	granted := l.view.task
	id, read, stored := granted.Lease.ID, *granted, *granted.Lease
	stored.ID = ""
	read.Lease = &stored
	if made := l.rules.Authority.Issue(granted.Tenant, granted.Holding().Ticket); id != made {
		t.Fatalf("Lease.ID is %q after the grant, want what the authority issues, %q", id, made)
	}
	others := []string{id + "A", id[:len(id)-1], id[1:], id + "\n", "\n" + id[:len(id)-1]}
	for i := range id {
		c := byte('A')
		if id[i] == c {
			c = 'B'
		}
		others = append(others, id[:i]+string(c)+id[i+1:])
	}
	for name, task := range map[string]*lease.Task{"in memory": granted, "from the store": &read} {
		l.view.task = task
		judge := func(tenant, id string) lease.Reason {
			r := &lease.Report{Kind: lease.KindComplete, TaskID: task.ID.String(), LeaseID: id}
			return l.rules.Step(l.now, &l.view, lease.Judge{Tenant: tenant, Reports: []*lease.Report{r}}).Answers[0].Reason
		}
		if got := judge(task.Tenant, id); got != lease.None {
			t.Errorf("%s: a complete under the id of the lease is answered %v, want NONE", name, got)
		}
		if got := judge("other", id); got != lease.UnknownTask {
			t.Errorf("%s: a complete of another tenant under the id of the lease is answered %v, want UNKNOWN_TASK", name, got)
		}
		for _, other := range others {
			if got := judge(task.Tenant, other); got != lease.InvalidLease {
				t.Errorf("%s: a complete under %q, while the lease is %q, is answered %v, want INVALID_LEASE",
					name, other, id, got)
			}
		}
	}
}
