package lease

import (
	"fmt"
	"maps"
	"slices"
)

// Settings are what an operator sets on a queue (T13). The zero value limits nothing. Goroutines
// share Settings and must not write to them.
type Settings struct {
	Paused      bool               // no task of the queue is granted; live leases go on
	PausedAt    Wall               // since when Paused is set; 0: it is not, or nobody knows. Not set by an operator
	MaxInflight uint32             // live leases at once; 0: no limit. A lowered limit revokes nothing
	Rate        Rate               // limit on the rate of grants
	Retry       RetryPolicy        // for the fields that a task does not set itself; a zero field means the default
	Weights     map[string]float64 // share of turns of each fairness key (T12); a key without an entry has 1
}

// Limits of Settings.
const (
	MaxRate    = 1_000_000
	MinRate    = 1.0 / (24 * 60 * 60)
	MaxWeights = 1000
	MinWeight  = 0.001
	MaxWeight  = 1000
)

// Check returns nil or a *FieldError. The path of the field starts at the settings, for example
// "rate_limit.burst".
func (s *Settings) Check(l Limits) error {
	if err := s.check(l); err != nil {
		return err
	}
	return nil
}

func (s *Settings) check(l Limits) *FieldError {
	switch r := s.Rate; {
	case s.MaxInflight > MaxConcurrency:
		return bad("max_inflight", "is %d; the limit is %d", s.MaxInflight, MaxConcurrency)
	case r.PerSecond == 0 && r.Burst != 0:
		return bad("rate_limit.per_second", "is missing; rate_limit.burst needs it")
	case r.PerSecond != 0 && !(r.PerSecond >= MinRate && r.PerSecond <= MaxRate): // also catches NaN
		return bad("rate_limit.per_second",
			"is %v grants a second; the range is %.3g (one a day) to %d", r.PerSecond, MinRate, MaxRate)
	case r.Burst > MaxRate:
		return bad("rate_limit.burst", "is %d; the limit is %d", r.Burst, MaxRate)
	case len(s.Weights) > MaxWeights:
		return bad("fairness_weights", "has %d entries; the limit is %d", len(s.Weights), MaxWeights)
	}
	if err := s.Retry.check(); err != nil {
		return err.Under("retry_policy")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Weights)) {
		err := CheckID("", key, l)
		if w := s.Weights[key]; err == nil && !(w >= MinWeight && w <= MaxWeight) {
			err = bad("", "is %v; the range is %v to %v", w, MinWeight, MaxWeight)
		}
		if err != nil {
			err.Field = fmt.Sprintf("fairness_weights[%q]", Clip(key, 40))
			return err
		}
	}
	return nil
}

// Weight returns the weight of a fairness key: 1 unless one is set.
func (s *Settings) Weight(fairness string) float64 {
	if w, ok := s.Weights[fairness]; ok {
		return w
	}
	return 1
}

// Queue is the state of a queue on which grants depend.
type Queue struct {
	Settings *Settings // nil: nothing was set
	Leased   uint64    // number of live leases of the queue's tasks
	Bucket   Bucket
}

// Holders are the live leases of a space that share a concurrency key (T11).
type Holders struct {
	Count uint32
	Limit uint32 // the smallest concurrency_limit among their tasks; 0 if there are no holders
}

// Room reports whether one more task with the given concurrency_limit may get a lease. The smallest
// limit counts: limit, or that of a holder.
func (h Holders) Room(limit uint32) bool {
	if h.Count > 0 {
		limit = min(limit, h.Limit)
	}
	return h.Count < limit
}

// Block says why a READY task may not be granted to any worker.
type Block uint8

// The blocks. BlockedByPause, BlockedByInflight and BlockedByRate block the whole queue.
const (
	NoBlock Block = iota
	BlockedByPause
	BlockedByInflight
	BlockedByRate
	BlockedByKey
)

// blocked returns why a READY task may not be granted (T11, T13), or NoBlock; for behind see
// Grant.Behind.
func (s *step) blocked(t *Task, behind bool) Block {
	q := s.view.Queue(t.ID.Space, t.Spec.Queue)
	if b := q.Blocked(s.now.Serving); b != NoBlock {
		return b
	}
	if k := t.Spec.ConcurrencyKey; k != "" && (behind || !s.view.Holders(t.ID.Space, k).Room(t.Spec.ConcurrencyLimit)) {
		return BlockedByKey
	}
	return NoBlock
}

// Blocked returns what blocks the whole queue at now (T13), or NoBlock. If several things do, it
// returns the first in the order of the constants.
func (q Queue) Blocked(now Instant) Block {
	switch {
	case q.paused():
		return BlockedByPause
	case q.full():
		return BlockedByInflight
	case q.usedUp(now):
		return BlockedByRate
	}
	return NoBlock
}

func (q Queue) paused() bool { return q.Settings != nil && q.Settings.Paused }

// full reports whether the queue has max_inflight live leases.
func (q Queue) full() bool {
	return q.Settings != nil && q.Settings.MaxInflight != 0 && q.Leased >= uint64(q.Settings.MaxInflight)
}

// usedUp reports whether the rate limit of the queue holds grants back at now.
func (q Queue) usedUp(now Instant) bool {
	return q.Settings != nil && q.Settings.Rate.PerSecond != 0 && q.Settings.Rate.Next(q.Bucket, now) > now
}

// park takes a READY task out of its line because its concurrency key has no room. So later grants
// need not examine the task again (T2).
func (s *step) park() {
	if !s.task.Parked {
		s.write().Parked = true
	}
}

// unpark puts a parked task back in its line, in its old place.
func (s *step) unpark(c Unpark) {
	if t := s.open(c.Task); t != nil && t.Parked {
		s.write().Parked = false
	}
}
