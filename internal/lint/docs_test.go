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

// TestDocumentsLinkToExistingFiles checks that the file of each relative link in a document exists. It checks neither fragments (#heading) nor
// addresses on the web.
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

// relativeLinks returns the files that a document links to. It skips blocks and spans of code.
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
