//go:build platforms

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
	"sync"
	"testing"
)

// platforms lists platforms on which users build, but CI does not.
var platforms = []struct {
	os, arch string
	packages string
}{
	{"darwin", "arm64", "./..."},
	{"freebsd", "amd64", "./..."},
	{"windows", "amd64", "./worker/..."}, // the coordinator and the command need Unix
}

// A mistake in code for another platform would show only when a user builds it there. Compiling for
// these platforms would also compile all dependencies again. Checking the types of our packages
// needs only the declarations of the dependencies.
func TestOtherPlatforms(t *testing.T) {
	var parsed parsedFiles
	for _, p := range platforms {
		t.Run(p.os, func(t *testing.T) {
			t.Parallel()
			check := typeCheck{
				parsed: &parsed, sizes: types.SizesFor("gc", p.arch),
				checked: map[string]*types.Package{"unsafe": types.Unsafe},
			}
			for _, pkg := range listFor(t, p.os, p.arch, p.packages) {
				for _, err := range check.pkg(pkg) {
					t.Error(err)
				}
			}
		})
	}
}

// listed is what `go list` tells about a package. The packages that it imports come before it in
// the list.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string // maps an import path in the source to the path of the package, if the two differ
	Module     *struct{ Main bool }
}

func (l *listed) own() bool { return l.Module != nil && l.Module.Main }

func listFor(t *testing.T, goos, goarch, packages string) (all []*listed) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,ImportMap,Module", packages)
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
		case l.ImportPath == "unsafe" || strings.HasSuffix(l.ImportPath, ".test"):
			// unsafe is built in, the main packages of tests are generated
		default:
			all = append(all, &l)
		}
	}
}

// parsedFiles parses each file once: most are the same on all platforms, and in a package and its
// test.
type parsedFiles struct {
	places token.FileSet
	byName sync.Map // of func() (*ast.File, error)
}

func (p *parsedFiles) file(name string) (*ast.File, error) {
	parse, _ := p.byName.LoadOrStore(name, sync.OnceValues(func() (*ast.File, error) {
		return parser.ParseFile(&p.places, name, nil, parser.SkipObjectResolution)
	}))
	return parse.(func() (*ast.File, error))()
}

// typeCheck checks the types of one package after the other: all code of our packages, only the
// declarations of others.
type typeCheck struct {
	parsed  *parsedFiles
	sizes   types.Sizes
	checked map[string]*types.Package
}

func (c *typeCheck) pkg(l *listed) (wrong []error) {
	var files []*ast.File
	for _, name := range l.GoFiles {
		file, err := c.parsed.file(filepath.Join(l.Dir, name))
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
	c.checked[l.ImportPath], _ = config.Check(l.ImportPath, &c.parsed.places, files, nil)
	if !l.own() { // a mistake in a dependency matters only if our code then fails the check
		return nil
	}
	return wrong
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
