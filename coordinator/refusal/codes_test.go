package refusal

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The list of all codes has each constant of codes.go.
func TestAllCodes(t *testing.T) {
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`= "(E\..+)"`).FindAllSubmatch(source, -1)
	for _, m := range found {
		if !slices.Contains(all, string(m[1])) {
			t.Errorf("all has no %s", m[1])
		}
	}
	if len(found) != len(all) {
		t.Errorf("codes.go has %d codes, and the list %d", len(found), len(all))
	}
}
