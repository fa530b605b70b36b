package lease

import (
	"fmt"
	"maps"
	"slices"
)

// Settings are what an operator sets on a queue (T13). The zero value limits nothing. Settings are shared and never written to.
type Settings struct {
	Paused      bool               // nothing is granted; what is leased goes on
	MaxInflight uint32             // live leases at once; 0: no limit. A lowered limit revokes nothing
	Rate        Rate               // grants in time
	Retry       RetryPolicy        // for tasks that do not set theirs; zero fields: the defaults
	Weights     map[string]float64 // turns of a fairness key beside the others (T12); 1 where it has none
}

// Ends of the ranges of Settings.
const (
	MaxRate    = 1_000_000
	MinRate    = 1.0 / (24 * 60 * 60)
	MaxWeights = 1000
	MinWeight  = 0.001
	MaxWeight  = 1000
)

// Check finds what is wrong with settings. It returns a *FieldError, whose paths begin within the queue.
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
		return bad("rate_limit.per_second", "is missing; rate_limit.burst means nothing without it")
	case r.PerSecond != 0 && !(r.PerSecond >= MinRate && r.PerSecond <= MaxRate): // also catches NaN
		return bad("rate_limit.per_second", "is %v; the range is once a day (%.3g) to %d", r.PerSecond, MinRate, MaxRate)
	case r.Burst > MaxRate:
		return bad("rate_limit.burst", "is %d; the limit is %d", r.Burst, MaxRate)
	case len(s.Weights) > MaxWeights:
		return bad("fairness_weights", "has %d entries; the limit is %d", len(s.Weights), MaxWeights)
	}
	if err := s.Retry.check(); err != nil {
		return err.Under("retry_policy")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Weights)) {
		field := fmt.Sprintf("fairness_weights[%q]", clip(key, 40))
		if err := CheckID(field, key, l); err != nil {
			return err
		}
		if w := s.Weights[key]; !(w >= MinWeight && w <= MaxWeight) {
			return bad(field, "is %v; the range is %v to %v", w, MinWeight, MaxWeight)
		}
	}
	return nil
}

// Weight of a fairness key.
func (s *Settings) Weight(fairness string) float64 {
	if w, ok := s.Weights[fairness]; ok {
		return w
	}
	return 1
}

// Queue is what a grant depends on beside the task.
type Queue struct {
	Settings *Settings // nil: none are set
	Leased   uint64    // live leases of its tasks, counted from the leases
	Bucket   Bucket
}

// Holders are the live leases of a space that share a concurrency key (T11).
type Holders struct {
	Count uint32
	Limit uint32 // the smallest among theirs; 0: there are none
}

// Room reports whether a task with such a limit may join them: the smallest limit in force wins, its own included.
func (h Holders) Room(limit uint32) bool {
	if h.Count > 0 {
		limit = min(limit, h.Limit)
	}
	return h.Count < limit
}

// Block is why a READY task may not be granted, whoever asks for it.
type Block uint8

// The blocks. The first four hold up the whole queue.
const (
	NoBlock Block = iota
	BlockedByPause
	BlockedByInflight
	BlockedByRate
	BlockedByKey
)

// blocked judges whether a READY task may be granted (T11, T13).
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

// Blocked judges whether the queue grants anything at now (T13).
func (q Queue) Blocked(now Instant) Block {
	c := q.Settings
	switch {
	case c == nil:
		return NoBlock
	case c.Paused:
		return BlockedByPause
	case c.MaxInflight != 0 && q.Leased >= uint64(c.MaxInflight):
		return BlockedByInflight
	case c.Rate.PerSecond != 0 && c.Rate.Next(q.Bucket, now) > now:
		return BlockedByRate
	}
	return NoBlock
}

// park takes a READY task out of its line, for it is blocked by its concurrency key; the grants after it need not look at it again (T2).
func (s *step) park() {
	if !s.task.Parked {
		s.write().Parked = true
	}
}

// unpark puts it back in its old place.
func (s *step) unpark(c Unpark) {
	if t := s.open(c.Task); t != nil && t.Parked {
		s.write().Parked = false
	}
}
