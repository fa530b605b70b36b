package lease

import (
	"math"
	"testing"
	"time"
)

// Add stops at the ends of the range of int64: a deadline that is far ahead must not wrap around to
// the past.
func TestClockAdditionDoesNotOverflow(t *testing.T) {
	for _, c := range []struct {
		at   Instant
		d    time.Duration
		want Instant
	}{
		{10, 5, 15},
		{10, -15, -5},
		{0, math.MaxInt64, math.MaxInt64},
		{1, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, -1, math.MaxInt64 - 1},
		{-1, math.MinInt64, math.MinInt64},
		{-2, math.MinInt64, math.MinInt64},
		{math.MinInt64, -1, math.MinInt64},
	} {
		if got := c.at.Add(c.d); got != c.want {
			t.Errorf("Instant %d + %d = %d, want %d", c.at, c.d, got, c.want)
		}
		if got := Wall(c.at).Add(c.d); got != Wall(c.want) {
			t.Errorf("Wall %d + %d = %d, want %d", c.at, c.d, got, c.want)
		}
	}
}

// WallOf converts a time to nanoseconds since 1970. The zero time is 0, which means no time, and a
// time outside of the range is the end of the range.
func TestWallOf(t *testing.T) {
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		in   time.Time
		want Wall
	}{
		{time.Time{}, 0},
		{year(1971), Wall(365 * 24 * time.Hour)},
		{year(1969), -Wall(365 * 24 * time.Hour)},
		{year(9999), math.MaxInt64}, // users write 9999 for "never": it must not wrap around to the past
		{year(1), 0},                // the zero time
		{year(2), math.MinInt64},
	} {
		if got := WallOf(c.in); got != c.want {
			t.Errorf("WallOf(%v) = %d, want %d", c.in, got, c.want)
		}
	}
	now := year(2031).Add(5)
	if got := WallOf(now).Time(); !got.Equal(now) {
		t.Errorf("WallOf(%v).Time() = %v, want the same time", now, got)
	}
	if !Wall(0).Time().IsZero() {
		t.Errorf("Wall(0).Time() = %v, want the zero time: 0 means that there is no time", Wall(0).Time())
	}
}

// WallAt converts a serving time to the wall time at the same moment, and back moves both clocks to
// an earlier moment.
func TestNow(t *testing.T) {
	now := Now{Serving: 100, Wall: 5000}
	if got := now.WallAt(90); got != 4990 {
		t.Errorf("WallAt(90) = %d, want 4990", got)
	}
	if got := now.back(30); got != (Now{Serving: 70, Wall: 4970}) {
		t.Errorf("back(30) = %v, want both clocks 30 ns earlier: {70 4970}", got)
	}
}
