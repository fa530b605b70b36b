package keyindex

import (
	"fmt"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// A filter says yes to all hashes that it has, and to few others; one that was not read yet to all.
func TestFilter(t *testing.T) {
	const n = 1 << 16
	f := newFilter(n)
	for i := range n {
		f.add(store.HashOfKey(1, fmt.Sprint(i)))
	}
	for i := range n {
		if !f.has(store.HashOfKey(1, fmt.Sprint(i))) {
			t.Fatalf("the filter does not have hash %d, which was added", i)
		}
	}
	wrong := 0
	for i := range n {
		if f.has(store.HashOfKey(2, fmt.Sprint(i))) {
			wrong++
		}
	}
	if most := n / 500; wrong > most || wrong == 0 {
		t.Errorf("the filter says yes to %d of %d other hashes, want 1 to %d", wrong, n, most)
	}
	if bytes := len(f) * 64; bytes > 2*n+64 {
		t.Errorf("the filter of %d hashes has %d bytes, want 2 for each", n, bytes)
	}
	if !filter(nil).has(store.KeyHash{}) {
		t.Error("a filter that was not read says no")
	}
}
