package quota

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var ann = Caller{Tenant: "acme", Credential: "ann"}

// newBook makes a book that reports its refusals to nobody.
func newBook(cfg Config) *Book { return New(cfg, func(Caller, *Error, bool) {}) }

// refusedBy returns the refusal in err; nil if there is none.
func refusedBy(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%v is no refusal", err)
	}
	return e
}

// X5: a rate lets its burst through at once. Each refusal has the exact time after which one more is allowed.
func TestRate(t *testing.T) {
	t.Attr("rules", "X5")
	for _, r := range []Rate{{PerSecond: 10, Burst: 4}, {PerSecond: 3}, {PerSecond: 0.5}, {PerSecond: 1.0 / 60, Burst: 2}} {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBook(Config{Tenant: Limits{Calls: r}})
				for i := range int(r.burst()) {
					if e := refusedBy(t, b.Spend(ann, Calls, 1)); e != nil {
						t.Fatalf("call %d of the burst: %v", i+1, e)
					}
				}
				for range 5 {
					e := refusedBy(t, b.Spend(ann, Calls, 1))
					if e == nil || e.Wait <= 0 || e.Wait > r.span(1)+time.Microsecond {
						t.Fatalf("one over the burst: %+v, want a wait of at most %v", e, r.span(1))
					}
					time.Sleep(e.Wait - 1)
					if again := refusedBy(t, b.Spend(ann, Calls, 1)); again == nil || again.Wait != 1 {
						t.Fatalf("a nanosecond too early: %+v, want a wait of 1ns", again)
					}
					time.Sleep(time.Nanosecond)
					if e := refusedBy(t, b.Spend(ann, Calls, 1)); e != nil {
						t.Fatalf("after the wait that was told: %v", e)
					}
				}
			})
		})
	}
}

// X5: over any time, no more gets through than the rate, one burst and the largest single request allow, and for a caller that keeps asking not much
// less than the rate.
func TestRateOverTime(t *testing.T) {
	t.Attr("rules", "X5")
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 5))
				r := Rate{PerSecond: 1 + 100*random.Float64(), Burst: 1 + random.Uint32N(50)}
				b, begin, taken, largest := newBook(Config{Tenant: Limits{Submits: r}}), time.Now(), 0, 0
				for range 500 {
					n := 1 + random.IntN(30)
					if b.Spend(ann, Submits, n) == nil {
						taken, largest = taken+n, max(largest, n)
					}
					time.Sleep(time.Duration(random.Int64N(int64(time.Second / 4))))
				}
				passed := time.Since(begin).Seconds()
				most := r.PerSecond*passed + r.burst() + float64(largest)
				if float64(taken) > most || float64(taken) < 0.5*min(r.PerSecond*passed, 500) {
					t.Errorf("%d of %v in %.1f s; at most %.1f", taken, r, passed, most)
				}
			})
		})
	}
}

// X5: more than the burst is allowed if nothing is owed; then the debt must be paid back before the next.
func TestMoreThanTheBurst(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		b := newBook(Config{Tenant: Limits{Submits: Rate{PerSecond: 100}}})
		if err := b.Spend(ann, Submits, 1000); err != nil {
			t.Fatal(err)
		}
		if e := refusedBy(t, b.Spend(ann, Submits, 1000)); e == nil || e.Wait != 10*time.Second {
			t.Fatalf("%+v, want a wait of 10 s", e)
		}
		if e := refusedBy(t, b.Spend(ann, Submits, 1)); e == nil || e.Wait != 9*time.Second+10*time.Millisecond {
			t.Fatalf("%+v, want a wait of 9.01 s", e)
		}
	})
}

// X5: a tenant and its credentials have separate limits. What one of the two refuses is charged to neither. Other tenants are not affected.
func TestTenantAndCredential(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		b := newBook(Config{
			Tenant: Limits{Calls: Rate{PerSecond: 1, Burst: 3}}, Credential: Limits{Calls: Rate{PerSecond: 1, Burst: 2}},
			Tenants: map[string]Limits{"big": {Calls: Rate{PerSecond: 1, Burst: 100}}}, Credentials: map[string]Limits{"big": {Calls: Rate{PerSecond: 1, Burst: 50}}},
		})
		for _, step := range []struct {
			who Caller
			of  string // whose limit refuses; empty: none
		}{
			{ann, ""},
			{ann, ""},
			{ann, "credential"},
			{ann, "credential"},
			{Caller{"acme", "bob"}, ""},
			{Caller{"acme", "bob"}, "tenant"},
			{Caller{"acme", "cid"}, "tenant"},
			{Caller{"other", "ann"}, ""},
			{Caller{"other", ""}, ""},
			{Caller{"other", ""}, ""},
			{Caller{"other", ""}, "tenant"},
			{Caller{"big", "ann"}, ""},
			{Caller{"big", "ann"}, ""},
			{Caller{"big", "ann"}, ""},
		} {
			e := refusedBy(t, b.Spend(step.who, Calls, 1))
			if of := ""; e != nil {
				of = e.Of
				if of != step.of {
					t.Errorf("%v: refused by the %s, want %q", step.who, of, step.of)
				}
			} else if step.of != "" {
				t.Errorf("%v: let through, want a refusal by the %s", step.who, step.of)
			}
		}
	})
}

// X5: a count is of what is under way; leaving twice counts once. With must, entering is never refused, and counts.
func TestCounts(t *testing.T) {
	t.Attr("rules", "X5")
	b := newBook(Config{Tenant: Limits{Sessions: 2}, Credential: Limits{Sessions: 1}})
	leave, err := b.Enter(ann, Sessions, false)
	if err != nil {
		t.Fatal(err)
	}
	if e := refusedBy(t, errorOf(b.Enter(ann, Sessions, false))); e == nil || e.Of != "credential" || e.Wait <= 0 {
		t.Fatalf("%+v, want a refusal by the credential", e)
	}
	must, err := b.Enter(ann, Sessions, true)
	if err != nil {
		t.Fatal(err)
	}
	bob := Caller{"acme", "bob"}
	if e := refusedBy(t, errorOf(b.Enter(bob, Sessions, false))); e == nil || e.Of != "tenant" {
		t.Fatalf("%+v, want a refusal by the tenant", e)
	}
	if !b.Exceeds(ann, Sessions) || b.Exceeds(bob, Sessions) {
		t.Error("ann has two sessions of one, the tenant two of two")
	}
	if e := refusedBy(t, b.Refuse(ann, Sessions)); e.Of != "credential" {
		t.Errorf("refused by the %s, which has room", e.Of)
	}
	if e := refusedBy(t, errorOf(b.Enter(ann, Sessions, true))); e == nil {
		t.Error("a third of one")
	}
	leave()
	leave()
	if _, err := b.Enter(bob, Sessions, false); err != nil {
		t.Fatal(err)
	}
	if e := refusedBy(t, errorOf(b.Enter(Caller{"acme", "cid"}, Sessions, false))); e == nil {
		t.Fatal("a third of two sessions")
	}
	must()
	for _, u := range b.Usage(ann) {
		if want := map[string]int{"tenant": 1, "credential": 0}[u.Of]; u.Limit == Sessions && u.Used != want {
			t.Errorf("%s uses %d, want %d", u.Of, u.Used, want)
		}
	}
}

func errorOf(_ func(), err error) error { return err }

// X5: the zero configuration has no rates and no limit of tasks, and high limits for counts.
func TestDefaults(t *testing.T) {
	t.Attr("rules", "X5")
	b := newBook(Config{})
	for _, l := range []Limit{Calls, Submits, Frames} {
		if err := b.Spend(ann, l, 1_000_000); err != nil {
			t.Error(err)
		}
	}
	for _, l := range []Limit{Sessions, Streams, Watches} {
		for range defaultWatches {
			if _, err := b.Enter(ann, l, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if b.Most("acme", Tasks) != Unlimited {
		t.Error("tasks are limited")
	}
}

// X5: accounts without debt and without anything under way are forgotten; others are not.
func TestAccountsAreForgotten(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		b := newBook(Config{Credential: Limits{Calls: Rate{PerSecond: 1}}})
		if _, err := b.Enter(ann, Streams, false); err != nil {
			t.Fatal(err)
		}
		for i := range 4 * fewAccounts {
			who := Caller{"acme", fmt.Sprint(i)}
			if err := b.Spend(who, Calls, 1); err != nil {
				t.Fatal(err)
			}
			if refusedBy(t, b.Spend(who, Calls, 1)) == nil {
				t.Fatal("an account was forgotten that owes")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(b.accounts); n > 2*fewAccounts {
			t.Errorf("%d accounts", n)
		}
		if b.Usage(ann)[Streams].Used != 1 {
			t.Error("a stream is forgotten")
		}
	})
}

// X5: each refusal is reported, and marked as news once a minute.
func TestRefusalsAreTold(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		told, news := 0, 0
		b := New(Config{Tenant: Limits{Tasks: 1}}, func(_ Caller, e *Error, isNews bool) {
			if told++; isNews {
				news++
			}
			if text := e.Error(); !strings.Contains(text, "tasks") || !strings.HasSuffix(text, ": 1") {
				t.Errorf("%q does not name the limit", text)
			}
		})
		for range 120 {
			if refusedBy(t, b.Refuse(ann, Tasks)) == nil {
				t.Fatal("not refused")
			}
			time.Sleep(time.Second)
		}
		if told != 120 || news != 2 {
			t.Errorf("told %d times, news %d times; want 120 and 2", told, news)
		}
	})
}

// X5: values out of range are refused with the name of the limit.
func TestValidate(t *testing.T) {
	t.Attr("rules", "X5")
	for name, c := range map[string]Config{
		"calls":    {Tenant: Limits{Calls: Rate{PerSecond: 2e6}}},
		"submits":  {Credential: Limits{Submits: Rate{PerSecond: -1}}},
		"frames":   {Tenants: map[string]Limits{"a": {Frames: Rate{Burst: 5}}}},
		"sessions": {Credentials: map[string]Limits{"a": {Sessions: -1}}},
		"tasks":    {Credential: Limits{Tasks: 5}},
		"nan":      {Tenant: Limits{Calls: Rate{PerSecond: math.NaN()}}},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		} else if name != "nan" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := Limits{Calls: Rate{PerSecond: math.Inf(1)}, Tasks: Unlimited}
	if err := (&Config{Tenant: none, Tenants: map[string]Limits{"a": none}}).Validate(); err != nil {
		t.Error(err)
	}
}
