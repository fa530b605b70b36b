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

// fakeEngine writes the audit as the engine does, to a store in memory.
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
	if d.down {
		d.steps = append(d.steps, 0)
		return errDown
	}
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

// entries returns all entries of the audit of a tenant.
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

// refusal returns an entry about a refused call.
func refusal(subject, action string) records.Audit {
	return records.Audit{
		Tenant: "acme", Subject: subject, Action: action, Outcome: "E.AUTH.FORBIDDEN", Object: "t1",
		Detail: "reason:\"x\"",
	}
}

// X4: the first refusal of a kind gets an entry at once. All further refusals of this kind get one
// entry with their number at the end of the minute. After that, the next refusal again gets an
// entry at once.
func TestRefusalsAreSummedUp(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		defer trail.Start()()
		for minute := range 3 {
			for i := range 1000 {
				a := refusal("eve", "PurgeQueue")
				a.Object, a.Corr = fmt.Sprint(i), fmt.Sprint(i) // only those of the first are recorded
				trail.Refuse(a)
			}
			if all := d.entries("acme"); len(all) != 2*minute+1 || all[2*minute].Times != 1 || all[2*minute].Object != "0" {
				t.Fatalf("minute %d: the audit is %+v, want %d entries, the last of one refusal", minute, all, 2*minute+1)
			}
			time.Sleep(window)
			synctest.Wait()
			all := d.entries("acme")
			if len(all) != 2*minute+2 {
				t.Fatalf("minute %d: %d entries, want %d: two each minute", minute, len(all), 2*minute+2)
			}
			if last := all[len(all)-1]; last.Times != 999 || last.Subject != "eve" || last.Object != "" || last.Corr != "" {
				t.Errorf("minute %d: the last entry is %+v, want the sum of the other 999", minute, last)
			}
		}
		time.Sleep(10 * window)
		synctest.Wait()
		if all := d.entries("acme"); len(all) != 6 {
			t.Errorf("%d entries after ten minutes without refusals, want 6", len(all))
		}
	})
}

// X4: a sum keeps what all of its refusals or calls have in common: of one, everything.
func TestSumKeepsWhatIsCommon(t *testing.T) {
	t.Attr("rules", "X4")
	for _, c := range []struct {
		objects []string // of the calls after the first
		want    string
	}{
		{[]string{"t2"}, "t2"},
		{[]string{"t2", "t2"}, "t2"},
		{[]string{"t2", "t3"}, ""},
		{[]string{"t2", "t3", "t3"}, ""},
	} {
		withTrail(t, func(d *fakeEngine, trail *Trail) {
			stop := trail.Start()
			trail.Refuse(refusal("eve", "PurgeQueue"))
			d.down = true // a sum that cannot be written at first keeps it, too
			for i, object := range c.objects {
				a := refusal("eve", "PurgeQueue")
				a.Workspace, a.Object, a.Corr = "w", object, fmt.Sprint("r", i)
				trail.Refuse(a)
			}
			time.Sleep(window)
			synctest.Wait()
			d.down = false
			stop()
			want := refusal("eve", "PurgeQueue")
			want.Workspace, want.Object, want.Times = "w", c.want, uint64(len(c.objects))
			if len(c.objects) == 1 {
				want.Corr = "r0"
			}
			all := d.entries("acme")
			if len(all) != 2 {
				t.Fatalf("%v: the audit is %+v, want two entries", c.objects, all)
			}
			got := all[1]
			if got.At, got.Serving = 0, 0; got != want {
				t.Errorf("%v: the sum is %+v, want %+v", c.objects, got, want)
			}
		})
	}
}

// X4: a tenant gets only few entries, however many kinds of refusals it has. The counts of the
// entries add up to all refusals. Another tenant is not affected.
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
		stop() // writes the entries of the refusals that were only counted
		all, sum := d.entries("acme"), uint64(0)
		for _, a := range all {
			sum += a.Times
		}
		if len(all) != maxKinds+1 || sum != 500 {
			t.Errorf("%d entries for %d refusals, want %d for 500", len(all), sum, maxKinds+1)
		}
		if last := all[len(all)-1]; last.Action != various || last.Subject != "" || last.Outcome != "E.AUTH.FORBIDDEN" {
			t.Errorf("the last entry is %+v, want the sum of the other kinds", last)
		}
		if all := d.entries("other"); len(all) != 1 || all[0].Subject != "bob" {
			t.Errorf("the other tenant's audit is %+v, want its one refusal", all)
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
		trail.Refuse(refusal("eve", "PurgeQueue"))
		time.Sleep(window)
		synctest.Wait()
		d.down = false
		trail.Refuse(refusal("eve", "PurgeQueue"))
		time.Sleep(window)
		synctest.Wait()
		if all := d.entries("acme"); len(all) != 1 || all[0].Times != 3 {
			t.Errorf("the audit is %+v, want one entry of three refusals", all)
		}
	})
}

// X4: calls without an effect are summed up like refusals, and apart from them. If the entry of the
// first one cannot be written, its caller gets an error, and the next call is the first.
func TestCallsWithoutEffectAreSummedUp(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		stop := trail.Start()
		done := records.Audit{Tenant: "acme", Subject: "pat", Action: "CancelTask", Outcome: records.OutcomeOK, Object: "t1"}
		d.down = true
		if err := trail.NoEffect(done); !errors.Is(err, errDown) {
			t.Errorf("while the engine is down: %v, want its error", err)
		}
		d.down = false
		for range 1000 {
			if err := trail.NoEffect(done); err != nil {
				t.Fatal(err)
			}
		}
		trail.Refuse(refusal("pat", "CancelTask"))
		stop()
		all := d.entries("acme")
		if len(all) != 3 || all[0].Object != "t1" || all[0].Times != 0 || all[1].Times != 1 || all[2].Times != 999 || all[2].Outcome != records.OutcomeOK {
			t.Errorf("the audit is %+v, want the first call, the refusal, and the sum of 999 calls", all)
		}
	})
}

// X4: a sum that cannot be written is not lost: it is part of the next one. However long it takes,
// there are only few of them.
func TestSumsWhileTheEngineIsDown(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		stop := trail.Start()
		d.down = true
		const minutes, kinds = 3, maxKinds + 5
		for range minutes {
			for i := range kinds {
				trail.Refuse(refusal(fmt.Sprint("eve", i), "PurgeQueue"))
			}
			time.Sleep(window)
			synctest.Wait()
		}
		d.down = false
		stop()
		all, sum := d.entries("acme"), uint64(0)
		for _, a := range all {
			sum += a.Times
		}
		if len(all) > maxKinds+1 || sum != minutes*kinds {
			t.Errorf("%d entries for %d refusals, want at most %d for %d", len(all), sum, maxKinds+1, minutes*kinds)
		}
	})
}

// X4: calls that are counted while the entry of the first one is being written are not forgotten if
// that fails.
func TestCallsBesideAFirstOneThatFails(t *testing.T) {
	t.Attr("rules", "X4")
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		done := records.Audit{Tenant: "acme", Subject: "pat", Action: "CancelTask", Outcome: records.OutcomeOK}
		trail.engine = &slowEngine{d, func() {
			if err := trail.NoEffect(done); err != nil {
				t.Error(err)
			}
		}}
		d.down = true
		if err := trail.NoEffect(done); !errors.Is(err, errDown) {
			t.Errorf("while the engine is down: %v, want its error", err)
		}
		trail.engine, d.down = d, false
		trail.Start()()
		if all := d.entries("acme"); len(all) != 1 || all[0].Times != 1 {
			t.Errorf("the audit is %+v, want the sum of the one call that was told to be done", all)
		}
	})
}

// slowEngine runs while before it writes an entry.
type slowEngine struct {
	*fakeEngine
	while func()
}

func (s *slowEngine) Record(a records.Audit) error {
	s.while()
	return s.fakeEngine.Record(a)
}

// X4: entries are deleted after their retention, at most sweepStep in one commit.
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
			t.Errorf("%d entries before the retention is over, want all %d", len(all), old+1)
		}
		time.Sleep(window)
		synctest.Wait()
		if all := d.entries("acme"); len(all) != 1 || all[0].Subject != "bob" {
			t.Errorf("%d entries after the retention, want only the younger one", len(all))
		}
		if fmt.Sprint(d.steps) != fmt.Sprint([]int{sweepStep, sweepStep, 500}) {
			t.Errorf("the entries were deleted in steps of %v, want %d, %d and 500", d.steps, sweepStep, sweepStep)
		}
		stop()
	})
}

// A sweep that fails is tried again in the next minute, not at once.
func TestRetentionWhileTheEngineIsDown(t *testing.T) {
	withTrail(t, func(d *fakeEngine, trail *Trail) {
		for range sweepStep {
			if err := d.Record(refusal("eve", "PurgeQueue")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(DefaultRetention + time.Second)
		d.down = true
		ctx, end := context.WithTimeout(d.Context(), 2*window+time.Second)
		defer end()
		trail.run(ctx)
		if len(d.steps) != 3 {
			t.Errorf("%d tries in two minutes, want 3", len(d.steps))
		}
	})
}
