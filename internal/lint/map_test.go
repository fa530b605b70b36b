package lint

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fileName = regexp.MustCompile(`[a-z0-9_]+\*?\.go`)

// TestMaps checks the map of files in the doc.go of each large package: the map names every file of
// the package, alone or by a pattern, and no file that does not exist.
func TestMaps(t *testing.T) {
	for _, dir := range []string{
		"cmd/lessor",
		"coordinator", "coordinator/convert", "coordinator/engine", "coordinator/gate", "coordinator/httpapi", "coordinator/preauth", "coordinator/refusal",
		"coordinator/service", "coordinator/session", "coordinator/internal/wiretest",
		"internal/bench", "internal/execworker", "internal/pool", "internal/runner", "internal/workercheck",
		"store/boltstore", "web", "worker",
	} {
		t.Run(dir, func(t *testing.T) { checkMap(t, dir) })
	}
}

func checkMap(t *testing.T, dir string) {
	t.Helper()
	at := filepath.Join(root, dir)
	named := map[string]bool{"doc.go": true}
	for _, pattern := range fileName.FindAllString(read(t, dir+"/doc.go"), -1) {
		files, err := filepath.Glob(filepath.Join(at, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("the map names %s, which is not there", pattern)
		}
		for _, f := range files {
			named[filepath.Base(f)] = true
		}
	}
	files, _ := filepath.Glob(filepath.Join(at, "*.go"))
	for _, f := range files {
		if name := filepath.Base(f); !named[name] && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("the map in %s/doc.go lacks %s: say there what it is for", dir, name)
		}
	}
}
