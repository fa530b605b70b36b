//go:build !race

package tasktoken

import "testing"

// Every lease gets tokens, so issuing one must allocate only the token itself.
func TestIssueAllocatesTheToken(t *testing.T) {
	s, h := New([]byte("key"), DefaultTTL), testHolding()
	if n := testing.AllocsPerRun(100, func() { s.Issue(now, h, now.Serving) }); n > 1 {
		t.Errorf("Issue makes %v allocations, want at most 1", n)
	}
}
