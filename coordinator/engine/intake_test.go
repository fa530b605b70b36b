package engine

import (
	"slices"
	"testing"
)

// The loop takes one operation, then two, four, and so on, and again one after an operation that took long.
func TestIntakeTakesMoreEachTime(t *testing.T) {
	in := newIntake(newInbox())
	for range 200 {
		if err := in.inbox.put("t", op{run: func() {}}); err != nil {
			t.Fatal(err)
		}
	}
	takes := func(most int) (n int) {
		in.first(most)
		for n = len(in.taken); in.begun(); in.shift() {
		}
		return n
	}
	var taken []int
	for range 6 {
		taken = append(taken, takes(100))
	}
	in.slowDown()
	taken = append(taken, takes(100), takes(1), takes(100))
	if want := []int{1, 2, 4, 8, 16, 16, 1, 1, 4}; !slices.Equal(taken, want) {
		t.Errorf("the loop takes %v operations, want %v", taken, want)
	}
}

// An operation whose run has failed was taken, but still needs an answer.
func TestIntakeKeepsWhatRuns(t *testing.T) {
	in := newIntake(newInbox())
	for range 3 {
		if err := in.inbox.put("t", op{run: func() {}}); err != nil {
			t.Fatal(err)
		}
	}
	in.first(3).run()
	in.shift()
	in.first(3).run()
	if left := in.close(ErrStore); len(left) != 2 {
		t.Errorf("%d operations are left, want the one that runs and the one that waits", len(left))
	}
}
