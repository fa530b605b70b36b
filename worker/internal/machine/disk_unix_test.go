//go:build linux || darwin

package machine

import "testing"

// W9: the part of the disk that is reserved for root does not count. A file system without blocks,
// such as proc, has no gauge.
func TestDiskUse(t *testing.T) {
	t.Attr("rules", "W9")
	if pct, ok := diskUse(100, 40, 20); !ok || pct != 75 {
		t.Errorf("60 blocks used and 20 available: %v %% (%v), want 75", pct, ok)
	}
	if pct, ok := diskUse(0, 0, 0); ok {
		t.Errorf("no blocks: %v %%, want none", pct)
	}
}
