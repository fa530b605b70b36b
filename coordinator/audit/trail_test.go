package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// fakeEngine is an engine that can only write.
type fakeEngine struct {
	*testing.T
	*memstore.Store

	mu     sync.Mutex
	number lease.Instant
	steps  []int // number of changes in each Keep
	down   bool
}

func (d *fakeEngine) Now() lease.Now { return lease.Now{Wall: lease.WallOf(time.Now())} }

var errDown = errors.New("down")

func (d *fakeEngine) Record(a records.Audit) error {
	if d.down {
		return errDown
	}
	d.mu.Lock()
	d.number++
	a.At, a.Serving = d.Now().Wall, d.number
	d.mu.Unlock()
	return d.keep(func(b *store.Batch) { records.PutAudit(b, &a) })
}

func (d *fakeEngine) Keep(_ context.Context, _ string, put func(*store.Batch)) error {
	return d.keep(func(b *store.Batch) {
		put(b)
		d.steps = append(d.steps, b.Len())
	})
}

func (d *fakeEngine) keep(put func(*store.Batch)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b store.Batch
	put(&b)
	return d.Commit(context.Background(), &b)
}

// entries returns the audit of a tenant.
func (d *fakeEngine) entries(tenant string) (all []records.Audit) {
	d.Helper()
	err := d.View(func(r store.Reader) error {
		return records.Audits(r, store.AuditKey{Tenant: tenant}, func(a *records.Audit) bool {
			all = append(all, *a)
			return true
		})
	})
	if err != nil {
		d.Fatal(err)
	}
	return all
}

// withTrail runs a test with a trail in a bubble of fake time.
func withTrail(t *testing.T, test func(d *fakeEngine, trail *Trail)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeEngine{T: t, Store: memstore.New()}
		test(d, New(d, d, DefaultRetention, slog.New(slog.DiscardHandler)))
	})
}

func refusal(subject, action string) records.Audit {
	return records.Audit{Tenant: "acme", Subject: subject, Action: action, Outcome: "E.AUTH.FORBIDDEN", Object: "t1", Detail: "reason:\"x\""}
}

// X4: the first refusal of a kind gets an entry at once; those after it get one entry with their number at the end of the minute. Then the next
// minute begins.
func TestRefusalsAreSummedUp(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		defer trail.Start()()
		for minute := range 3 {
			for i := range 1000 {
				a := refusal("eve", "PurgeQueue")
				a.Object = fmt.Sprint(i) // only the first object is recorded
				trail.Refuse(a)
			}
			if all := d.entries("acme"); len(all) != 2*minute+1 || all[2*minute].Times != 1 || all[2*minute].Object != "0" {
				t.Fatalf("minute %d: %+v", minute, all)
			}
			time.Sleep(window)
			synctest.Wait()
			all := d.entries("acme")
			if len(all) != 2*minute+2 {
				t.Fatalf("minute %d: %d entries, want two each minute", minute, len(all))
			}
			if last := all[len(all)-1]; last.Times != 999 || last.Subject != "eve" || last.Object != "" || last.Detail != "" {
				t.Errorf("minute %d: %+v, want the sum of the other 999", minute, last)
			}
		}
		time.Sleep(10 * window)
		synctest.Wait()
		if all := d.entries("acme"); len(all) != 6 {
			t.Errorf("%d entries after some quiet minutes", len(all))
		}
	})
}

// X4: however many kinds of refusals a tenant has, it gets few entries, and their counts add up. Another tenant is not affected.
func TestRefusalsAreBounded(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		stop := trail.Start()
		for i := range 500 {
			trail.Refuse(refusal(fmt.Sprint("eve", i), "PurgeQueue"))
		}
		other := refusal("bob", "CancelTask")
		other.Tenant = "other"
		trail.Refuse(other)
		stop() // writes what was counted
		all, sum := d.entries("acme"), uint64(0)
		for _, a := range all {
			sum += a.Times
		}
		if len(all) != maxKinds+1 || sum != 500 {
			t.Errorf("%d entries for %d refusals, want %d for 500", len(all), sum, maxKinds+1)
		}
		if last := all[len(all)-1]; last.Action != Various || last.Subject != "" || last.Outcome != "E.AUTH.FORBIDDEN" {
			t.Errorf("the last is %+v, want the sum of the rest", last)
		}
		if all := d.entries("other"); len(all) != 1 || all[0].Subject != "bob" {
			t.Errorf("the other tenant's: %+v", all)
		}
	})
}

// X4: a refusal that cannot be written at once is counted, and written later.
func TestRefusalWhileTheEngineIsDown(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		defer trail.Start()()
		d.down = true
		trail.Refuse(refusal("eve", "PurgeQueue"))
		d.down = false
		trail.Refuse(refusal("eve", "PurgeQueue"))
		time.Sleep(window)
		synctest.Wait()
		if all := d.entries("acme"); len(all) != 1 || all[0].Times != 2 {
			t.Errorf("%+v, want one entry of two", all)
		}
	})
}

// X4: entries are deleted after their retention, in bounded steps.
func TestRetention(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		const old = 2*sweepStep + 500
		for range old {
			if err := d.Record(refusal("eve", "PurgeQueue")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(DefaultRetention - time.Second)
		if err := d.Record(refusal("bob", "PurgeQueue")); err != nil {
			t.Fatal(err)
		}
		stop := trail.Start()
		synctest.Wait()
		if all := d.entries("acme"); len(all) != old+1 {
			t.Errorf("%d entries before the retention is over, want all", len(all))
		}
		time.Sleep(window)
		synctest.Wait()
		if all := d.entries("acme"); len(all) != 1 || all[0].Subject != "bob" {
			t.Errorf("%d entries after it, want the younger one", len(all))
		}
		if fmt.Sprint(d.steps) != fmt.Sprint([]int{sweepStep, sweepStep, 500}) {
			t.Errorf("removed in steps of %v", d.steps)
		}
		stop()
	})
}
