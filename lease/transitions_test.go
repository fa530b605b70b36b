package lease

import (
	"math"
	"testing"
	"time"
)

// The entropy with which backoff returns its shortest wait (20 % less), the wait without jitter,
// and its longest (20 % more).
const (
	entropyLow  = 0
	entropyMid  = 1 << 63
	entropyHigh = math.MaxUint64
)

// T3: the backoff after n earlier ones is initial_backoff * backoff_multiplier^n, at most
// max_backoff, plus or minus 20 %.
func TestBackoff(t *testing.T) {
	t.Attr("rules", "T3")
	p := RetryPolicy{InitialBackoff: time.Second, Multiplier: 2, MaxBackoff: 5 * time.Minute}
	for n, plain := range map[uint32]time.Duration{
		0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 8: 256 * time.Second,
		9: 5 * time.Minute, 100: 5 * time.Minute,
		1_000_000: 5 * time.Minute, math.MaxUint32: 5 * time.Minute, // here the power overflows to +Inf
	} {
		for _, c := range []struct {
			entropy uint64
			factor  float64
		}{{entropyLow, 0.8}, {entropyMid, 1}, {entropyHigh, 1.2}} {
			want := time.Duration(float64(plain) * c.factor)
			if got := p.backoff(n, c.entropy); (got - want).Abs() > time.Microsecond {
				t.Errorf("backoff(%d) with entropy %#x = %v, want %v", n, c.entropy, got, want)
			}
		}
	}
}

// T3: a backoff is at least 1 ns, also if jitter would round it down to 0: 0 means that the task is
// READY at once.
func TestBackoffIsNeverZero(t *testing.T) {
	t.Attr("rules", "T3")
	p := RetryPolicy{InitialBackoff: 1, Multiplier: 1, MaxBackoff: 1}
	if got := p.backoff(0, entropyLow); got != 1 {
		t.Errorf("the shortest backoff is %v, want 1ns", got)
	}
}

// T3: the greatest policy that Spec.Fill accepts gives a backoff of at most max_backoff plus 20 %,
// and does not overflow a time.Duration.
func TestBackoffAtTheEndsOfItsRange(t *testing.T) {
	t.Attr("rules", "T3")
	p := RetryPolicy{InitialBackoff: MaxInitialBackoff, Multiplier: MaxMultiplier, MaxBackoff: MaxMaxBackoff}
	if got, limit := p.backoff(MaxBudget, entropyHigh), time.Duration(1.2*float64(MaxMaxBackoff)); got <= MaxMaxBackoff || got > limit {
		t.Errorf("the longest backoff is %v, want it above %v and at most %v", got, MaxMaxBackoff, limit)
	}
}

// T4: whether a failure is retried is decided by the policy's non_retryable_categories, then by the
// worker's retryable, then by the category.
func TestWhichFailuresAreRetried(t *testing.T) {
	t.Attr("rules", "T4")
	said := func(retryable *bool) any {
		if retryable == nil {
			return "unset"
		}
		return *retryable
	}
	type row struct {
		category  Category
		retryable *bool
		never     []Category
		want      bool
	}
	for _, c := range []row{
		{NoCategory, nil, nil, true},
		{UserCode, nil, nil, true},
		{DataQuality, nil, nil, false},
		{Infrastructure, nil, nil, true},
		{Configuration, nil, nil, false},
		{Timeout, nil, nil, true},
		{CategoryCancelled, nil, nil, false},

		{UserCode, no(), nil, false},
		{DataQuality, yes(), nil, true},
		{Configuration, yes(), nil, true},
		{CategoryCancelled, yes(), nil, false}, // T7: never

		{UserCode, nil, []Category{UserCode}, false},
		{NoCategory, nil, []Category{UserCode}, false}, // read as USER_CODE
		{UserCode, yes(), []Category{Timeout, UserCode}, false},
		{UserCode, nil, []Category{Timeout}, true},
	} {
		p := RetryPolicy{NonRetryable: c.never}
		if got := p.retries(&Failure{Category: c.category, Retryable: c.retryable}); got != c.want {
			t.Errorf("category %v, retryable %v, non_retryable_categories %v: retries = %v, want %v",
				c.category, said(c.retryable), c.never, got, c.want)
		}
	}
}
