package engine

import (
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// The loop takes one operation, then two, four, and so on, and again one after an operation that
// took long.
func TestIntakeTakesMoreEachTime(t *testing.T) {
	in := newIntake(newInbox())
	for range 200 {
		if err := in.inbox.put("t", op{run: func() {}}); err != nil {
			t.Fatal(err)
		}
	}
	takes := func(most int) (n int) {
		in.first(most)
		for n = len(in.taken); in.begun(); in.shift(0) {
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
	in.shift(0)
	in.first(3).run()
	if left := in.close(ErrStore); len(left) != 2 {
		t.Errorf("%d operations are left, want the one that runs and the one that waits", len(left))
	}
}

// T12: batches are smaller for a while after operations of several tenants. A tenant that is alone
// has large ones, also while metrics are read.
func TestBatchesOfSeveralTenantsAreSmaller(t *testing.T) {
	t.Attr("rules", "T12")
	in := newIntake(newInbox())
	for _, step := range []struct {
		tenant string
		at     lease.Instant
		want   int
	}{
		{"", 0, maxBatchChanges},
		{"a", 0, maxBatchChanges},
		{"", 0, maxBatchChanges},
		{"a", 0, maxBatchChanges},
		{"b", 1, maxSharedChanges},
		{"b", lease.Instant(sharedFor), maxSharedChanges},
		{"b", 1 + lease.Instant(sharedFor), maxBatchChanges},
		{"a", 2 + lease.Instant(sharedFor), maxSharedChanges},
	} {
		if err := in.inbox.put(step.tenant, op{}); err != nil {
			t.Fatal(err)
		}
		in.first(1)
		in.shift(step.at)
		if got := in.mostChanges(step.at); got != step.want {
			t.Errorf("after an operation of %q at %d ns a batch is full with %d changes, want %d",
				step.tenant, step.at, got, step.want)
		}
	}
}
