package lease_test

import (
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// A7, V2, V3: the id of a live lease is told from all others by itself as by its MAC, which alone is there of a lease that was read from the store.
func TestTheIDOfALiveLeaseIsKnownByItselfAsByItsMAC(t *testing.T) {
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
		t.Fatalf("the lease carries %q, its id is %q", id, made)
	}
	others := []string{id + "A", id[:len(id)-1], id[1:], id + "\n", "\n" + id[:len(id)-1]}
	for i := range id {
		c := byte('A')
		if id[i] == c {
			c = 'B'
		}
		others = append(others, id[:i]+string(c)+id[i+1:])
	}
	for name, task := range map[string]*lease.Task{"granted": granted, "read": &read} {
		l.view.task = task
		judge := func(tenant, id string) lease.Reason {
			r := &lease.Report{Kind: lease.KindComplete, TaskID: task.ID.String(), LeaseID: id}
			return l.rules.Step(l.now, &l.view, lease.Say{Tenant: tenant, Reports: []*lease.Report{r}}).Answers[0].Reason
		}
		if got := judge(task.Tenant, id); got != lease.None {
			t.Errorf("%s: the id of the lease gets %v", name, got)
		}
		if got := judge("other", id); got != lease.UnknownTask {
			t.Errorf("%s: the id of the lease gets another tenant %v", name, got)
		}
		for _, other := range others {
			if got := judge(task.Tenant, other); got != lease.InvalidLease {
				t.Errorf("%s: %q, which is not %q, gets %v", name, other, id, got)
			}
		}
	}
}
