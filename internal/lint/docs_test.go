package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(<?([^)\s>]+)`)
	fencedBlock  = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan     = regexp.MustCompile("`[^`\n]*`")
)

// TestDocumentsLinkToExistingFiles follows each relative link of each document, as far as the file; fragments and
// addresses on the web are not looked at.
func TestDocumentsLinkToExistingFiles(t *testing.T) {
	for _, doc := range filesNamed(t, ".", ".md") {
		for _, target := range relativeLinks(read(t, doc)) {
			file := filepath.Join(root, filepath.FromSlash(path.Join(path.Dir(doc), target)))
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, target)
			}
		}
	}
}

// relativeLinks returns the targets of links to files. What stands in code is text, not a link.
func relativeLinks(markdown string) []string {
	prose := codeSpan.ReplaceAllString(fencedBlock.ReplaceAllString(markdown, ""), "")
	var targets []string
	for _, match := range markdownLink.FindAllStringSubmatch(prose, -1) {
		target, _, _ := strings.Cut(match[1], "#")
		if target != "" && !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
			targets = append(targets, target)
		}
	}
	return targets
}
