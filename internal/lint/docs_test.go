package lint

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	markdownLink = regexp.MustCompile(`\]\(<?([^)\s>]+)`)
	fencedBlock  = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan     = regexp.MustCompile("`[^`\n]*`")

	headingLine   = regexp.MustCompile(`(?m)^#{1,6} +(.*?)(?: +#+)? *$`)
	linkInHeading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

	goTest       = regexp.MustCompile("go test [^`\n]*?(\\./\\S+) [^`\n]*?-run '?([\\w|]+)")
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)`)
)

// TestDocumentsLinkToWhatExists checks that the file of each relative link in a document exists,
// and the heading of each link to a heading (#heading). It does not check addresses on the web.
func TestDocumentsLinkToWhatExists(t *testing.T) {
	headings := make(map[string]map[string]bool) // by document
	docs := filesNamed(t, ".", ".md")
	for _, doc := range docs {
		headings[doc] = anchors(read(t, doc))
	}
	for _, doc := range docs {
		for _, target := range relativeLinks(read(t, doc)) {
			file, heading, _ := strings.Cut(target, "#")
			linked := doc
			if file != "" {
				linked = path.Join(path.Dir(doc), file)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(linked))); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, target)
			} else if known := headings[linked]; heading != "" && known != nil && !known[heading] {
				t.Errorf("%s links to %s, but %s has no such heading", doc, target, linked)
			}
		}
	}
}

// relativeLinks returns what a document links to in the repository, with fragments. It skips blocks
// and spans of code.
func relativeLinks(markdown string) []string {
	prose := codeSpan.ReplaceAllString(fencedBlock.ReplaceAllString(markdown, ""), "")
	var targets []string
	for _, match := range markdownLink.FindAllStringSubmatch(prose, -1) {
		if target := match[1]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
			targets = append(targets, target)
		}
	}
	return targets
}

// anchors returns the names by which links find the headings of a document on GitHub: in lower
// case, with hyphens for spaces, and without any other punctuation than hyphens and underscores. If
// a heading occurs again, a number is added to its name.
func anchors(markdown string) map[string]bool {
	names, times := make(map[string]bool), make(map[string]int)
	for _, match := range headingLine.FindAllStringSubmatch(fencedBlock.ReplaceAllString(markdown, ""), -1) {
		name := strings.Map(anchorRune, strings.ToLower(strings.TrimSpace(linkInHeading.ReplaceAllString(match[1], "$1"))))
		times[name]++
		if n := times[name] - 1; n > 0 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		names[name] = true
	}
	return names
}

func anchorRune(r rune) rune {
	switch {
	case r == ' ':
		return '-'
	case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
		return r
	}
	return -1
}

func TestAnchors(t *testing.T) {
	const doc = "# The `--data` flag\n\n## A_b, c.d: [e](f.md#g) & 1\n\n```sh\n# a comment\n```\n\n## Again\n\n### Again ###\n"
	want := []string{"a_b-cd-e--1", "again", "again-1", "the---data-flag"}
	if got := slices.Sorted(maps.Keys(anchors(doc))); !slices.Equal(got, want) {
		t.Errorf("the anchors are %q, want %q", got, want)
	}
}

// TestDocumentsNameTestsThatExist checks that each `go test ./PACKAGE -run NAME` in a document runs
// a test of that package. With a wrong name go test succeeds without running anything.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	commands, tests := 0, map[string][]string{} // names of the tests, by package
	for _, doc := range filesNamed(t, ".", ".md") {
		for _, command := range goTest.FindAllStringSubmatch(read(t, doc), -1) {
			commands++
			if tests[command[1]] == nil {
				tests[command[1]] = testsOf(t, command[1])
			}
			if !slices.ContainsFunc(tests[command[1]], regexp.MustCompile(command[2]).MatchString) {
				t.Errorf("%s: %s runs no test of %s", doc, command[0], command[1])
			}
		}
	}
	if commands == 0 {
		t.Error("no document has a go test command; docs/testing/faults.md should")
	}
}

func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, function := range testFunction.FindAllStringSubmatch(string(content), -1) {
			names = append(names, function[1])
		}
	}
	return names
}
