//go:build !race

package lint

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// platforms are where CI does not run, and users do.
var platforms = []struct {
	os, arch string
	packages string
}{
	{"darwin", "arm64", "./..."},
	{"windows", "amd64", "./worker/..."}, // the coordinator and the command want Unix
}

// What is built on Linux alone is built for others by nobody until a user tries it. Compiling it for them would compile every dependency once more;
// checking its types takes their declarations alone. The race detector, which makes that six times slower, has nothing to find in it.
func TestOtherPlatforms(t *testing.T) {
	for _, p := range platforms {
		t.Run(p.os, func(t *testing.T) {
			t.Parallel()
			check := typeCheck{sizes: types.SizesFor("gc", p.arch), checked: map[string]*types.Package{"unsafe": types.Unsafe}}
			for _, pkg := range listFor(t, p.os, p.arch, p.packages) {
				for _, err := range check.pkg(pkg) {
					t.Error(err)
				}
			}
		})
	}
}

// listed is what `go list` says of a package. Those that it imports come before it.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string // by the path in the source: what is meant, where that is another one
	Module     *struct{ Main bool }
}

func (l *listed) own() bool { return l.Module != nil && l.Module.Main }

func listFor(t *testing.T, goos, goarch, packages string) (all []*listed) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", packages)
	list.Dir = root
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		case l.ImportPath == "unsafe" || strings.HasSuffix(l.ImportPath, ".test"): // the one is built in, the main package of a test generated
		default:
			all = append(all, &l)
		}
	}
}

// typeCheck checks packages one after the other; of those of others the declarations alone.
type typeCheck struct {
	files   token.FileSet
	sizes   types.Sizes
	checked map[string]*types.Package
}

func (c *typeCheck) pkg(l *listed) (wrong []error) {
	var files []*ast.File
	for _, name := range l.GoFiles {
		file, err := parser.ParseFile(&c.files, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer: importer(func(path string) (*types.Package, error) {
			if meant, ok := l.ImportMap[path]; ok {
				path = meant
			}
			if pkg := c.checked[path]; pkg != nil {
				return pkg, nil
			}
			return nil, errors.New("not listed: " + path)
		}),
		IgnoreFuncBodies: !l.own(),
		Sizes:            c.sizes,
		Error:            func(err error) { wrong = append(wrong, err) },
	}
	c.checked[l.ImportPath], _ = config.Check(l.ImportPath, &c.files, files, nil)
	if !l.own() { // what is wrong there shows in what is ours, if it matters
		return nil
	}
	return wrong
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
