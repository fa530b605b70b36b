package engine

import (
	"slices"
	"testing"
	"testing/synctest"
)

// T12: an operation waits for at most takeAtOnce operations that the loop has taken before, and then for one turn of each other tenant.
func TestOperationsThatTheLoopHasTakenAreFew(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		var ran []string
		put := func(tenant string, also func()) {
			if err := r.inbox.put(tenant, op{run: func() { ran = append(ran, tenant); also() }}); err != nil {
				r.Error(err)
			}
		}
		_ = r.inbox.put(home.Tenant, op{run: func() { // the loop stands still while the flood comes in
			put(home.Tenant, func() { put("other", func() {}) })
			for range 2 * maxBatchOps {
				put(home.Tenant, func() {})
			}
		}})
		synctest.Wait()
		if at := slices.Index(ran, "other"); at < 0 || at > takeAtOnce+1 {
			r.Errorf("the command of another tenant came after %d others, want at most %d", at, takeAtOnce+1)
		}
	})
}

// T8, T12: a heartbeat does not wait behind the submits of its tenant, however many there are: its lease would expire. Neither do the submits wait behind all
// others. Submits keep their order among each other, and so do the others. Another tenant has its turns all the same.
func TestSubmitsDoNotDelayOtherOperations(t *testing.T) {
	t.Attr("rules", "T12")
	b := newInbox()
	var ran []string
	put := func(tenant, name string, submits int) {
		if err := b.put(tenant, op{submits: submits, run: func() { ran = append(ran, name) }}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		put("a", name, 2)
	}
	for _, name := range []string{"h1", "h2", "h3", "h4", "h5"} {
		put("a", name, 0)
	}
	put("b", "b1", 0)
	put("b", "b2", 1)
	for _, o := range b.take(nil, 100) {
		o.run()
	}
	if want := []string{"s1", "b2", "h1", "b1", "h2", "s2", "h3", "h4", "s3", "h5"}; !slices.Equal(ran, want) {
		t.Errorf("the operations ran in the order %v, want %v", ran, want)
	}
	if len(b.tenants) != 0 || b.waiting() != 0 {
		t.Errorf("the empty inbox has %d tenants and %d operations, want none", len(b.tenants), b.waiting())
	}
}
