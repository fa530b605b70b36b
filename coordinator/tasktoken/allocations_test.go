//go:build !race

package tasktoken

import "testing"

// Every lease gets tokens, so issuing one must allocate only the token itself.
func TestIssueAllocatesTheToken(t *testing.T) {
	s, h := New([]byte("key"), DefaultTTL), testHolding()
	if n := testing.AllocsPerRun(100, func() { s.Issue(now, h, "kfrqxw2m8n3t5v7ya", now.Serving) }); n > 1 {
		t.Errorf("Issue makes %v allocations, want at most 1", n)
	}
}
