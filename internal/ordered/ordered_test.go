package ordered_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/internal/ordered"
)

// Next finds the least item that is greater, whether the one before it is in the set or not; items
// that are the same replace each other.
func TestNext(t *testing.T) {
	type item struct{ key, value int }
	random := rand.New(rand.NewPCG(1, 2))
	set := ordered.NewSet(func(a, b item) bool { return a.key < b.key })
	var want []item // in order
	for step := range 2000 {
		put := item{random.IntN(600), step}
		at, found := slices.BinarySearchFunc(want, put.key, func(i item, key int) int { return i.key - key })
		if found {
			want = slices.Delete(want, at, at+1)
		}
		want = slices.Insert(want, at, put)
		if replaced, ok := set.Set(put); ok != found || ok && replaced.key != put.key {
			t.Fatalf("step %d: set %v: replaced %v, %t", step, put, replaced, ok)
		}
		if step%5 == 0 {
			gone := random.IntN(len(want))
			set.Delete(want[gone])
			want = slices.Delete(want, gone, gone+1)
		}
	}
	var have []item
	for i, ok := set.Min(); ok && len(have) <= len(want); i, ok = set.Next(i) {
		have = append(have, i)
	}
	if !slices.Equal(have, want) || !slices.Equal(slices.Collect(set.Scan), want) {
		t.Errorf("the items are\n%v, want\n%v", have, want)
	}
	for key := -1; key <= 600; key++ {
		i, ok := set.Next(item{key: key})
		at := slices.IndexFunc(want, func(i item) bool { return i.key > key })
		if ok != (at >= 0) || ok && i != want[at] {
			t.Errorf("after %d comes %v, %t", key, i, ok)
		}
	}
}
