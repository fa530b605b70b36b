package main

import (
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// retryFlags are the retry policy of a task or a queue.
type retryFlags struct {
	MaxAttempts       uint32        `type:"positive" placeholder:"N" help:"Failures after which a task is FAILED (5); 1 is no retry."`
	MaxLosses         uint32        `type:"positive" placeholder:"N" help:"Lost leases after which a task is FAILED (3)."`
	InitialBackoff    time.Duration `type:"positive" placeholder:"DURATION" help:"Wait after the first failure (1s)."`
	BackoffMultiplier float64       `type:"positive" placeholder:"F" help:"Factor from one wait to the next (2)."`
	MaxBackoff        time.Duration `type:"positive" placeholder:"DURATION" help:"Longest wait between attempts (5m)."`
}

// policy returns the policy, without what no flag sets: nil if none is set, because a spec with an
// empty policy is not the same as one without.
func (f retryFlags) policy() *lessorv1.RetryPolicy {
	if f == (retryFlags{}) {
		return nil
	}
	return &lessorv1.RetryPolicy{
		MaxAttempts:       f.MaxAttempts,
		MaxLosses:         f.MaxLosses,
		InitialBackoff:    span(f.InitialBackoff),
		BackoffMultiplier: f.BackoffMultiplier,
		MaxBackoff:        span(f.MaxBackoff),
	}
}
