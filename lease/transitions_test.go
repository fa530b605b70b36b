package lease

import (
	"math"
	"testing"
	"time"
)

// entropyLow, entropyMid and entropyHigh make the shortest wait, the plain one and the longest.
const (
	entropyLow  = 0
	entropyMid  = 1 << 63
	entropyHigh = math.MaxUint64
)

// T3: initial times multiplier^n, at most max, give or take 20 %.
func TestBackoff(t *testing.T) {
	t.Attr("rules", "T3")
	p := RetryPolicy{InitialBackoff: time.Second, Multiplier: 2, MaxBackoff: 5 * time.Minute}
	for n, plain := range map[uint32]time.Duration{
		0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 8: 256 * time.Second,
		9: 5 * time.Minute, 100: 5 * time.Minute,
		1_000_000: 5 * time.Minute, math.MaxUint32: 5 * time.Minute, // the power is infinite
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

// A wait of nothing would make a busy loop of a failing task.
func TestBackoffIsNeverZero(t *testing.T) {
	t.Attr("rules", "T3")
	p := RetryPolicy{InitialBackoff: 1, Multiplier: 1, MaxBackoff: 1}
	if got := p.backoff(0, entropyLow); got != 1 {
		t.Errorf("the shortest backoff is %v, want 1ns", got)
	}
}

// The range of T3 that Spec.Fill lets through stays within what a Duration holds.
func TestBackoffAtTheEndsOfItsRange(t *testing.T) {
	t.Attr("rules", "T3")
	p := RetryPolicy{InitialBackoff: MaxInitialBackoff, Multiplier: MaxMultiplier, MaxBackoff: MaxMaxBackoff}
	if got, limit := p.backoff(MaxBudget, entropyHigh), time.Duration(1.2*float64(MaxMaxBackoff)); got <= MaxMaxBackoff || got > limit {
		t.Errorf("the longest backoff is %v, want at most %v", got, limit)
	}
}

// T4: the policy's list, then the worker's word, then the category.
func TestRetries(t *testing.T) {
	t.Attr("rules", "T4")
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
			t.Errorf("%+v: retries = %v", c, got)
		}
	}
}
