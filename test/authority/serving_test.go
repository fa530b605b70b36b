//go:build faults

package authority

import "time"

// serving measures how long a coordinator has served since some moment, with an upper and a lower
// bound: at most from the launch of each process to its end, at least from its first answer to its
// kill.
type serving struct{ lives []life }

// life is one process of the coordinator. A zero time has not come yet.
type life struct{ launched, answered, killed, ended time.Time }

func (s *serving) launch() { s.lives = append(s.lives, life{launched: time.Now()}) }

func (s *serving) last() *life { return &s.lives[len(s.lives)-1] }

// atMost returns the longest time that the coordinator can have served between two moments.
func (s *serving) atMost(from, to time.Time) (d time.Duration) {
	for _, l := range s.lives {
		d += overlap(from, to, l.launched, l.ended)
	}
	return d
}

// atLeast returns the shortest time that it can have served.
func (s *serving) atLeast(from, to time.Time) (d time.Duration) {
	for _, l := range s.lives {
		d += overlap(from, to, l.answered, l.killed)
	}
	return d
}

// starts counts the starts after a moment.
func (s *serving) starts(from time.Time) (n int) {
	for _, l := range s.lives {
		if l.launched.After(from) {
			n++
		}
	}
	return n
}

// overlap returns how much of from..to lies in begin..end; a zero end means that it has not ended.
func overlap(from, to, begin, end time.Time) time.Duration {
	if begin.IsZero() {
		return 0
	}
	if begin.After(from) {
		from = begin
	}
	if !end.IsZero() && end.Before(to) {
		to = end
	}
	return max(0, to.Sub(from))
}
