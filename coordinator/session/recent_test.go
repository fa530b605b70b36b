package session

import "testing"

// W6: the frames that are remembered are always the last maxRecent ones.
func TestRecentRemembersTheLastFrames(t *testing.T) {
	t.Attr("rules", "W6")
	var r recent
	for sum := range uint64(3 * maxRecent) {
		r.add(sum)
		if oldest := sum + 1 - min(sum+1, maxRecent); !r.has(oldest) || !r.has(sum) || oldest > 0 && r.has(oldest-1) {
			t.Fatalf("after frame %d, the remembered frames are not those from %d on", sum, oldest)
		}
	}
	if len(r.hashes) != maxRecent {
		t.Errorf("%d frames are remembered, want %d", len(r.hashes), maxRecent)
	}
}
