package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestPackagesWithGoroutinesCheckForLeaks checks that each package whose code or tests start
// goroutines has a TestMain that checks for leaked ones, with goleak itself or with harness.Main,
// which does it for the tests of the whole system.
func TestPackagesWithGoroutinesCheckForLeaks(t *testing.T) {
	starts, tested, checks := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, file := range filesNamed(t, ".", ".go") {
		dir, text := path.Dir(file), read(t, file)
		if startsGoroutine(t, file, text) {
			starts[dir] = file
		}
		if strings.HasSuffix(file, "_test.go") {
			tested[dir] = true
			checks[dir] = checks[dir] || strings.Contains(text, "goleak.") || strings.Contains(text, "harness.Main(")
		}
	}
	for dir, file := range starts {
		if tested[dir] && !checks[dir] {
			t.Errorf("%s starts a goroutine, and no TestMain of %s checks for goroutines that are left: add main_test.go", file, dir)
		}
	}
	if len(starts) < 10 {
		t.Errorf("%d packages start goroutines, which is too few to be true", len(starts))
	}
}

// TestSequentialPackagesStartNoGoroutine checks that the code of the packages that make race leaves
// out, although their tests look for leaks, starts no goroutine.
func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	list := regexp.MustCompile(`(?s)SEQUENTIAL := \$\(addprefix github.com/lessor-dev/lessor/,(.*?)\)`).FindStringSubmatch(read(t, "Makefile"))
	if list == nil {
		t.Fatal("the Makefile has no list of them")
	}
	for _, dir := range strings.Fields(strings.ReplaceAll(list[1], `\`, "")) {
		for _, file := range filesNamed(t, dir, ".go") {
			if !strings.HasSuffix(file, "_test.go") && startsGoroutine(t, file, read(t, file)) {
				t.Errorf("%s starts a goroutine: take %s out of SEQUENTIAL in the Makefile", file, dir)
			}
		}
	}
}

// startsGoroutine looks for go statements and for methods named Go, such as that of sync.WaitGroup.
func startsGoroutine(t *testing.T, name, text string) (found bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			found = found || n.Sel.Name == "Go"
		}
		return !found
	})
	return found
}
