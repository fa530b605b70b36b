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

// newBook returns a book that does not report its refusals.
func newBook(cfg Config) *Book { return New(cfg, func(Caller, *Error, bool) {}) }

// refusedBy returns the refusal in err, or nil if err is nil.
func refusedBy(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("the error is %v, want a refusal by a quota", err)
	}
	return e
}

// X5: a rate allows its burst at once. Each refusal has the exact wait after which one more call is
// allowed.
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
						t.Fatalf("a call after the wait of the refusal: %v", e)
					}
				}
			})
		})
	}
}

// X5: in any time, no more is allowed than the rate gives, plus one burst and the largest single
// request. A caller that asks all the time gets not much less than the rate.
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
					t.Errorf("%d were allowed by %v in %.1f s, want at most %.1f, and half of the rate or of the requests", taken, r, passed, most)
				}
			})
		})
	}
}

// X5: a request for more than the burst is allowed if the caller has no debt. The next request is
// refused until the debt is paid back.
func TestMoreThanTheBurst(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		b := newBook(Config{Tenant: Limits{Submits: Rate{PerSecond: 100}}})
		if err := b.Spend(ann, Submits, 1000); err != nil {
			t.Fatal(err)
		}
		if e := refusedBy(t, b.Spend(ann, Submits, 1000)); e == nil || e.Wait != 10*time.Second {
			t.Fatalf("the next large request: %+v, want a wait of 10 s", e)
		}
		if e := refusedBy(t, b.Spend(ann, Submits, 1)); e == nil || e.Wait != 9*time.Second+10*time.Millisecond {
			t.Fatalf("the next small request: %+v, want a wait of 9.01 s", e)
		}
	})
}

// X5: a tenant and its credentials have separate limits. A call that one of the two refuses counts
// for neither. Other tenants are not affected.
func TestTenantAndCredential(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		b := newBook(Config{
			Tenant: Limits{Calls: Rate{PerSecond: 1, Burst: 3}}, Credential: Limits{Calls: Rate{PerSecond: 1, Burst: 2}},
			Tenants:     map[string]Limits{"big": {Calls: Rate{PerSecond: 1, Burst: 100}}},
			Credentials: map[string]Limits{"big": {Calls: Rate{PerSecond: 1, Burst: 50}}},
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
			of := ""
			if e := refusedBy(t, b.Spend(step.who, Calls, 1)); e != nil {
				of = e.Of
			}
			if of != step.of {
				t.Errorf("%v: refused by %q, want %q", step.who, of, step.of)
			}
		}
	})
}

// X5: Enter counts what is open now, and refuses what is over the limit. A second call of leave
// changes nothing. With must, Enter refuses nothing, but counts.
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
		t.Error("Exceeds is wrong: ann has two sessions of one, the tenant has two of two")
	}
	if e := refusedBy(t, b.Refuse(ann, Sessions)); e.Of != "credential" {
		t.Errorf("refused by the %s, want by the credential: the tenant has room", e.Of)
	}
	if e := refusedBy(t, errorOf(b.Enter(ann, Sessions, true))); e == nil {
		t.Error("a session was allowed although ann has two of one and the tenant two of two")
	}
	leave()
	leave()
	if _, err := b.Enter(bob, Sessions, false); err != nil {
		t.Fatal(err)
	}
	if e := refusedBy(t, errorOf(b.Enter(Caller{"acme", "cid"}, Sessions, false))); e == nil {
		t.Fatal("a third session was allowed with a limit of two")
	}
	must()
	for _, u := range b.Usage(ann) {
		if want := map[string]int{"tenant": 1, "credential": 0}[u.Of]; u.Limit == Sessions && u.Used != want {
			t.Errorf("%s uses %d, want %d", u.Of, u.Used, want)
		}
	}
}

// errorOf returns the error of Enter.
func errorOf(_ func(), err error) error { return err }

// X5: of many at once as many enter as both the tenant and the credential have room for, and all
// leave together.
func TestSomeEnter(t *testing.T) {
	t.Attr("rules", "X5")
	refused := 0
	b := New(Config{Tenant: Limits{Waits: 10}, Credential: Limits{Waits: 6}}, func(Caller, *Error, bool) { refused++ })
	bob := Caller{"acme", "bob"}
	for _, step := range []struct {
		who     Caller
		n, want int
		of      string // whose limit refuses; empty: none does
	}{{ann, 4, 4, ""}, {ann, 4, 2, "credential"}, {bob, 6, 4, "tenant"}, {ann, 1, 0, "tenant"}, {bob, 0, 0, ""}} {
		n, err := b.EnterSome(step.who, Waits, step.n)
		over, _ := errors.AsType[*Error](err)
		if n != step.want || (over != nil) != (step.of != "") || over != nil && over.Of != step.of {
			t.Errorf("%d of %v enter: %d, %v; want %d and %q", step.n, step.who, n, err, step.want, step.of)
		}
	}
	if refused != 3 {
		t.Errorf("%d refusals, want 3", refused)
	}
	b.Leave(ann, Waits, 6)
	b.Leave(bob, Waits, 4)
	for _, who := range []Caller{ann, bob} {
		for _, u := range b.Usage(who) {
			if u.Used != 0 {
				t.Errorf("%+v is left", u)
			}
		}
	}
}

// X5: the zero configuration has no limits of rates and tasks, and high limits of sessions,
// streams, watches and waits.
func TestDefaults(t *testing.T) {
	t.Attr("rules", "X5")
	b := newBook(Config{})
	for _, l := range []Limit{Calls, Submits, Frames} {
		for range 2 {
			if err := b.Spend(ann, l, 1_000_000); err != nil {
				t.Error(err)
			}
		}
	}
	for _, l := range []Limit{Sessions, Streams, Watches, Waits} {
		for range defaultWatches {
			if _, err := b.Enter(ann, l, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if b.Most("acme", Tasks) != Unlimited {
		t.Error("the zero configuration limits tasks")
	}
}

// X5: what the own limits of a tenant, or of its credentials, leave open is taken from the limits
// of the other tenants, or of their credentials. Only tenants have a limit of tasks.
func TestOwnLimits(t *testing.T) {
	t.Attr("rules", "X5")
	b := newBook(Config{
		Tenant: Limits{Streams: 5, Tasks: 6}, Credential: Limits{Streams: 2},
		Tenants: map[string]Limits{"acme": {Watches: 4}}, Credentials: map[string]Limits{"acme": {Watches: 3}},
	})
	var got []string
	for _, u := range b.Usage(ann) {
		if u.Limit == Streams || u.Limit == Watches || u.Limit == Tasks {
			got = append(got, fmt.Sprintf("%s %v %s", u.Of, u.Limit, u.Most))
		}
	}
	if want := "tenant streams 5, tenant watches 4, tenant tasks 6, credential streams 2, credential watches 3"; strings.Join(got, ", ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// The slowest rate allows the most that may be taken at once only after years: this must not look
// like no wait.
func TestLongestSpan(t *testing.T) {
	now := time.Now()
	r := Rate{PerSecond: leastRate}
	if wait := r.wait(r.take(Debt{}, now, mostBurst), now, 1); wait < longest-48*time.Hour {
		t.Errorf("a wait of %v", wait)
	}
}

// A refund gives back no more than was taken, even if that was more than the longest span.
func TestRefundOfTheLongestSpan(t *testing.T) {
	now := time.Now()
	r, before := Rate{PerSecond: leastRate}, Debt{}.Plus(time.Hour, now)
	if after := r.take(r.take(before, now, mostBurst), now, -mostBurst); after.Owed(now) != time.Hour {
		t.Errorf("the earlier debt is now %v, want 1h", after.Owed(now))
	}
}

// X5: answers that nobody needs are slowed down for the credential that causes them, not for others
// of the tenant.
func TestRejectsOfOneCredential(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		r := NewRejects()
		for range rejectPace.Burst {
			r.Answer(t.Context(), ann)
		}
		if slow, quick := r.Answer(t.Context(), ann), r.Answer(t.Context(), Caller{"acme", "other"}); slow == 0 || quick != 0 {
			t.Errorf("waits of %v and %v, want only the first", slow, quick)
		}
	})
}

// X5: an account is forgotten when it has no debt and counts nothing. Other accounts are not
// forgotten.
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
				t.Fatal("an account with a debt was forgotten")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(b.accounts); n > 2*fewAccounts {
			t.Errorf("%d accounts are in memory, want at most %d", n, 2*fewAccounts)
		}
		if b.Usage(ann)[Streams].Used != 1 {
			t.Error("the account with an open stream was forgotten")
		}
	})
}

// X5: accounts that cannot be forgotten are not all looked at for each call.
func TestBusyAccounts(t *testing.T) {
	t.Attr("rules", "X5")
	b := newBook(Config{})
	for i := range 2*fewAccounts + 1 {
		if _, err := b.Enter(Caller{Tenant: fmt.Sprint(i)}, Streams, false); err != nil {
			t.Fatal(err)
		}
	}
	if b.sweepAt <= len(b.accounts) {
		t.Errorf("%d accounts are looked at again when there are %d", len(b.accounts), b.sweepAt)
	}
}

// X5: each refusal is reported. Once a minute, a report is marked as news.
func TestRefusalsAreReported(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		reports, news := 0, 0
		b := New(Config{Tenant: Limits{Tasks: 4}}, func(_ Caller, e *Error, isNews bool) {
			if reports++; isNews {
				news++
			}
			if text, want := e.Error(), "the tenant's quota of tasks that have not ended is 4: it has 3, which leaves no room for 2 more"; text != want {
				t.Errorf("%q, want %q: a smaller batch may fit", text, want)
			}
		})
		for range 120 {
			if refusedBy(t, b.RefuseTasks(ann, 3, 2)) == nil {
				t.Fatal("Refuse returned no refusal")
			}
			time.Sleep(time.Second)
		}
		if reports != 120 || news != 2 {
			t.Errorf("%d reports, %d of them marked as news, want 120 and 2", reports, news)
		}
	})
}

// X5: a value out of range is refused, and the error names the limit.
func TestValidate(t *testing.T) {
	t.Attr("rules", "X5")
	for _, tt := range []struct {
		limit string
		cfg   Config
	}{
		{"calls", Config{Tenant: Limits{Calls: Rate{PerSecond: 2e6}}}},
		{"calls", Config{Tenant: Limits{Calls: Rate{PerSecond: math.NaN()}}}},
		{"submits", Config{Credential: Limits{Submits: Rate{PerSecond: -1}}}},
		{"frames", Config{Tenants: map[string]Limits{"a": {Frames: Rate{Burst: 5}}}}},
		{"sessions", Config{Credentials: map[string]Limits{"a": {Sessions: -1}}}},
		{"tasks", Config{Credential: Limits{Tasks: 5}}},
		{"tasks", Config{Credentials: map[string]Limits{"a": {Tasks: 5}}}},
		{"calls", Config{Tenant: Limits{Calls: Rate{PerSecond: 1, Burst: mostBurst + 1}}}},
	} {
		if err := tt.cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.limit) {
			t.Errorf("%+v: the error is %v, want one that names %s", tt.cfg, err, tt.limit)
		}
	}
	for _, l := range []Limits{
		{},
		{Calls: Rate{PerSecond: math.Inf(1)}, Tasks: Unlimited},
		{Calls: Rate{PerSecond: leastRate}, Submits: Rate{PerSecond: mostRate, Burst: mostBurst}, Frames: Rate{PerSecond: 1, Burst: 1}, Sessions: 1},
	} {
		each := l
		each.Tasks = 0
		cfg := Config{Tenant: l, Tenants: map[string]Limits{"a": l}, Credential: each, Credentials: map[string]Limits{"a": each}}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%+v: %v, want no error", l, err)
		}
	}
}

// Errors and the usage show a rate as it is set.
func TestRateAsText(t *testing.T) {
	for want, r := range map[string]Rate{
		"50/s": {PerSecond: 50}, "50/s:200": {PerSecond: 50, Burst: 200}, "0.5/s:1": {PerSecond: 0.5, Burst: 1}, "none": {PerSecond: math.Inf(1)},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v is shown as %s, want %s", r, got, want)
		}
	}
	if got := (Rate{}).String(); got != "none" {
		t.Errorf("no rate is shown as %s, want none", got)
	}
}
