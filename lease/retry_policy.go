package lease

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// RetryPolicy says how often a task is tried (T3-T5). A zero field is unset: the queue's policy
// fills it in, then the default.
type RetryPolicy struct {
	MaxAttempts    uint32
	MaxLosses      uint32
	InitialBackoff time.Duration
	Multiplier     float64
	MaxBackoff     time.Duration
	NonRetryable   []Category
}

// Defaults of a RetryPolicy.
const (
	DefaultMaxAttempts    = 5
	DefaultMaxLosses      = 3
	DefaultInitialBackoff = time.Second
	DefaultMultiplier     = 2.0
	DefaultMaxBackoff     = 5 * time.Minute
)

// Limits of a RetryPolicy that cannot be configured.
const (
	MaxBudget         = 1_000_000 // of max_attempts and max_losses
	MaxMultiplier     = 100
	MaxInitialBackoff = 24 * time.Hour
	MaxMaxBackoff     = 7 * 24 * time.Hour
)

// Jitter is the fraction by which a backoff is randomly longer or shorter (T3).
const Jitter = 0.2

// IsSet reports whether the policy sets anything.
func (p *RetryPolicy) IsSet() bool {
	return p.MaxAttempts != 0 || p.MaxLosses != 0 || p.InitialBackoff != 0 || p.Multiplier != 0 ||
		p.MaxBackoff != 0 || len(p.NonRetryable) > 0
}

// Or returns p, with the fields that p leaves unset taken from other.
func (p RetryPolicy) Or(other RetryPolicy) RetryPolicy {
	setDefault(&p.MaxAttempts, other.MaxAttempts)
	setDefault(&p.MaxLosses, other.MaxLosses)
	setDefault(&p.InitialBackoff, other.InitialBackoff)
	setDefault(&p.Multiplier, other.Multiplier)
	setDefault(&p.MaxBackoff, other.MaxBackoff)
	if len(p.NonRetryable) == 0 {
		p.NonRetryable = other.NonRetryable
	}
	return p
}

var defaultPolicy = RetryPolicy{
	MaxAttempts: DefaultMaxAttempts, MaxLosses: DefaultMaxLosses,
	InitialBackoff: DefaultInitialBackoff, Multiplier: DefaultMultiplier, MaxBackoff: DefaultMaxBackoff,
}

// withDefaults returns p, with the fields that p leaves unset taken from the queue's policy, and
// then from the defaults (T3). Values that p did not set itself are adjusted so that
// initial_backoff <= max_backoff; a default gives way to a value of the queue.
func (p RetryPolicy) withDefaults(queue RetryPolicy) RetryPolicy {
	whole := p.Or(queue).Or(defaultPolicy)
	if limit := cmp.Or(p.MaxBackoff, queue.MaxBackoff); limit != 0 && p.InitialBackoff == 0 {
		whole.InitialBackoff = min(whole.InitialBackoff, limit)
	}
	whole.MaxBackoff = max(whole.MaxBackoff, whole.InitialBackoff)
	return whole
}

func (p *RetryPolicy) check() *FieldError {
	switch {
	case p.MaxAttempts > MaxBudget:
		return bad("max_attempts", "is %d; the limit is %d", p.MaxAttempts, MaxBudget)
	case p.MaxLosses > MaxBudget:
		return bad("max_losses", "is %d; the limit is %d", p.MaxLosses, MaxBudget)
	case p.InitialBackoff < 0 || p.InitialBackoff > MaxInitialBackoff:
		return bad("initial_backoff", "is %v; the range is 1ns to %v", p.InitialBackoff, MaxInitialBackoff)
	case p.Multiplier != 0 && !(p.Multiplier >= 1 && p.Multiplier <= MaxMultiplier): // also catches NaN
		return bad("backoff_multiplier", "is %v; the range is 1 to %d", p.Multiplier, MaxMultiplier)
	case p.MaxBackoff < 0 || p.MaxBackoff != 0 && p.MaxBackoff < p.InitialBackoff:
		return bad("max_backoff", "is %v; it must be at least initial_backoff (%v)", p.MaxBackoff, p.InitialBackoff)
	case p.MaxBackoff > MaxMaxBackoff:
		return bad("max_backoff", "is %v; the limit is %v", p.MaxBackoff, MaxMaxBackoff)
	}
	for i, c := range p.NonRetryable {
		if c == NoCategory || c > CategoryCancelled {
			return bad(fmt.Sprintf("non_retryable_categories[%d]", i), "is %d, which is not a known category", c)
		}
	}
	return nil
}

// retries reports whether the policy grants another attempt after this failure (T4). It does not
// check max_attempts.
func (p *RetryPolicy) retries(f *Failure) bool {
	switch category := cmp.Or(f.Category, UserCode); {
	case slices.Contains(p.NonRetryable, category):
		return false
	case category == CategoryCancelled: // T7
		return false
	case f.Retryable != nil:
		return *f.Retryable
	default:
		return category.retried()
	}
}

// backoff returns the wait after n earlier waits: initial_backoff * multiplier^n, at most
// max_backoff, and then up to Jitter longer or shorter (T3).
func (p *RetryPolicy) backoff(n uint32, entropy uint64) time.Duration {
	d := float64(p.InitialBackoff) * math.Pow(p.Multiplier, float64(n))
	d = min(d, float64(p.MaxBackoff)) // even if the power is +Inf
	unit := float64(entropy>>11) / (1 << 53)
	d *= 1 - Jitter + 2*Jitter*unit
	return max(time.Duration(d), 1)
}
