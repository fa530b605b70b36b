package lint

import (
	"slices"
	"strings"
	"testing"
)

// TestSecretsAreComparedInConstantTime: if a comparison stops at the first byte that differs, its
// duration shows how much of a forged MAC is right. So each file that makes MACs must compare them
// with hmac.Equal, and must not compare with package bytes, or as text.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	t.Attr("rules", "A7 X1")
	found := 0
	for _, file := range shippedFiles(t) {
		if !slices.Contains(importsOf(t, file), "crypto/hmac") {
			continue
		}
		found++
		text := read(t, file)
		if !strings.Contains(text, "hmac.Equal(") {
			t.Errorf("%s makes MACs and compares none with hmac.Equal", file)
		}
		for _, early := range []string{"bytes.Equal(", "bytes.Compare(", "slices.Equal(", "reflect.DeepEqual(", "string(mac)"} {
			if strings.Contains(text, early) {
				t.Errorf("%s: %s may stop at the first byte that differs; use hmac.Equal", file, early)
			}
		}
	}
	if found == 0 {
		t.Error("no file makes MACs: the test looks for the wrong thing")
	}
}
