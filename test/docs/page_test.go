package docs_test

import (
	"os"
	"strings"
	"testing"
)

// block is a heading or a fenced block of the page.
type block struct {
	line int    // in the page, from 1
	kind string // the language of the fence, or "heading"
	text string
}

// readPage splits a page into its headings and fenced blocks; the text between them is left out.
func readPage(t *testing.T, name string) []block {
	t.Helper()
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	open := false
	for i, line := range strings.SplitAfter(string(page), "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open:
			open = false
		case fence:
			open = true
			blocks = append(blocks, block{line: i + 1, kind: strings.TrimSpace(language)})
		case open:
			blocks[len(blocks)-1].text += line
		case strings.HasPrefix(line, "#"):
			blocks = append(blocks, block{line: i + 1, kind: "heading", text: line})
		}
	}
	return blocks
}
