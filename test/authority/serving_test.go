//go:build faults

package authority

import "time"

// serving measures for how long a coordinator has served since some moment, from both sides: at most from the launch of each process to its
// end, at least from its first answer to its kill.
type serving struct{ lives []life }

// life is one process of the coordinator. What has not happened yet is the zero time.
type life struct{ launched, answered, killed, ended time.Time }

func (s *serving) launch() { s.lives = append(s.lives, life{launched: time.Now()}) }

func (s *serving) last() *life { return &s.lives[len(s.lives)-1] }

// atMost is the longest time for which it can have served between two moments.
func (s *serving) atMost(from, to time.Time) (d time.Duration) {
	for _, l := range s.lives {
		d += overlap(from, to, l.launched, l.ended)
	}
	return d
}

// atLeast is the shortest.
func (s *serving) atLeast(from, to time.Time) (d time.Duration) {
	for _, l := range s.lives {
		d += overlap(from, to, l.answered, l.killed)
	}
	return d
}

// starts counts the starts since a moment.
func (s *serving) starts(from time.Time) (n int) {
	for _, l := range s.lives {
		if l.launched.After(from) {
			n++
		}
	}
	return n
}

// overlap is how much of from..to lies in begin..end; an end that is zero has not come.
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
