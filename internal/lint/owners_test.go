package lint

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// belongs is what the comment of an owner says: a type of package engine to which the loop leaves a
// part of its memory.
const belongs = "It belongs to the loop."

// The fields of an owner are used only by its own methods, and where it is made. So whoever wants
// to know what changes them reads these methods.
func TestOwnersKeepTheirFields(t *testing.T) {
	const fewest = 10 // owners; otherwise the comments have changed
	p := checkLocally(t, "coordinator/engine")
	owners := ownersOf(p)
	if len(owners) < fewest {
		t.Fatalf("only the comments of %d types end with %q: %v", len(owners), belongs, slices.Collect(maps.Values(owners)))
	}
	used := map[string]bool{}
	for _, file := range p.files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			mayUse := p.ownedBy(f)
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				selection := p.info.Selections[s]
				if selection == nil || selection.Kind() != types.FieldVal {
					return true
				}
				owner, ok := owners[named(selection.Recv())]
				if used[owner] = true; ok && !slices.Contains(mayUse, named(selection.Recv())) {
					t.Errorf("%s uses the field %s of %s: only its methods may, so give it one",
						p.places.Position(s.Pos()), s.Sel.Name, owner)
				}
				return true
			})
		}
	}
	for _, owner := range owners {
		if !used[owner] {
			t.Errorf("nothing uses fields of %s: the test no longer sees them", owner)
		}
	}
}

// locally is a package whose types were checked without those of other packages: an expression
// whose type is not of the package has no type.
type locally struct {
	places *token.FileSet
	files  []*ast.File
	info   types.Info
}

func checkLocally(t *testing.T, dir string) *locally {
	t.Helper()
	p := &locally{
		places: token.NewFileSet(),
		info:   types.Info{Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}},
	}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_faults.go") {
			continue
		}
		file, err := parser.ParseFile(p.places, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, file)
	}
	config := types.Config{
		Importer: noImports{},
		Error:    func(error) {}, // each use of another package is one
	}
	_, _ = config.Check(dir, p.places, p.files, &p.info)
	return p
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not read") }

// ownersOf returns the names of the owners.
func ownersOf(p *locally) map[types.Object]string {
	owners := map[types.Object]string{}
	for _, file := range p.files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE || !strings.HasSuffix(strings.Join(strings.Fields(decl.Doc.Text()), " "), belongs) {
				continue
			}
			name := decl.Specs[0].(*ast.TypeSpec).Name
			owners[p.info.Defs[name]] = name.Name
		}
	}
	return owners
}

// ownedBy returns the types of whose fields a function may make use: a method that of its receiver,
// and other functions those that they return.
func (p *locally) ownedBy(f *ast.FuncDecl) (all []types.Object) {
	signature := p.info.Defs[f.Name].Type().(*types.Signature)
	if r := signature.Recv(); r != nil {
		return []types.Object{named(r.Type())}
	}
	for v := range signature.Results().Variables() {
		all = append(all, named(v.Type()))
	}
	return all
}

// named returns the declaration of a type, or of what it points to; nil if it has no name.
func named(t types.Type) types.Object {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj()
	}
	return nil
}
