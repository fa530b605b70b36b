package lint

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Prose in comments ends at column 100, with tabs of four columns. Single words, code and
// diagrams, which have two spaces or a tab inside, may be wider.
func TestCommentsAreNotWide(t *testing.T) {
	const most = 100
	for _, path := range append(filesNamed(t, ".", ".go"), filesNamed(t, "proto", ".proto")...) {
		if strings.HasPrefix(path, "gen/") {
			continue
		}
		number := 0
		for line := range strings.Lines(read(t, path)) {
			number++
			line = strings.TrimRight(line, "\n")
			prose, ok := strings.CutPrefix(strings.TrimSpace(line), "// ")
			if !ok || strings.Contains(prose, "  ") || strings.Contains(prose, "\t") || !strings.Contains(prose, " ") {
				continue
			}
			if width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); width > most {
				t.Errorf("%s:%d: the comment is %d columns wide; the limit is %d", path, number, width, most)
			}
		}
	}
}
