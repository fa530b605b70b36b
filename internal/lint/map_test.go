package lint

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fileName = regexp.MustCompile(`[a-z0-9_]+\*?\.go`)

// TestMapOfTheCoordinator holds the map in coordinator/doc.go whole: it names each file of the package, alone or by a pattern, and none
// that is not there.
func TestMapOfTheCoordinator(t *testing.T) {
	dir := filepath.Join(root, "coordinator")
	_, drawn, _ := strings.Cut(read(t, "coordinator/doc.go"), "# Where things are")
	named := map[string]bool{"doc.go": true}
	for _, pattern := range fileName.FindAllString(drawn, -1) {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("the map names %s, which is not there", pattern)
		}
		for _, f := range files {
			named[filepath.Base(f)] = true
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, f := range files {
		if name := filepath.Base(f); !named[name] && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("the map in coordinator/doc.go lacks %s: say there what it is for", name)
		}
	}
}
