package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// source is the part of a package's source that pages are compared with.
type source struct {
	constants, variables map[string]ast.Expr
	tests                map[string]string // by a test's name, the text of its file
}

// readSource reads packages, given by their directories below the root of the repository, as one.
func readSource(t *testing.T, dirs ...string) *source {
	t.Helper()
	var names []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no files in %s (%v)", dir, err)
		}
		names = append(names, found...)
	}
	s := &source{constants: map[string]ast.Expr{}, variables: map[string]ast.Expr{}, tests: map[string]string{}}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.add(file, strings.HasSuffix(name, "_test.go"), string(text))
	}
	return s
}

func (s *source) add(file *ast.File, test bool, text string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if test && strings.HasPrefix(d.Name.Name, "Test") {
				s.tests[d.Name.Name] = text
			}
		case *ast.GenDecl:
			switch {
			case test:
			case d.Tok == token.CONST:
				addValues(s.constants, d.Specs)
			case d.Tok == token.VAR:
				addValues(s.variables, d.Specs)
			}
		}
	}
}

func addValues(to map[string]ast.Expr, specs []ast.Spec) {
	for _, spec := range specs {
		values := spec.(*ast.ValueSpec)
		for i, name := range values.Names {
			if i < len(values.Values) {
				to[name.Name] = values.Values[i]
			}
		}
	}
}

// codes returns the constants that are error codes: their names, by the code.
func (s *source) codes() map[string]string {
	codes := map[string]string{}
	for name, value := range s.constants {
		// else a prefix of codes
		if lit, ok := value.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, `"E.`) && !strings.HasSuffix(lit.Value, `."`) {
			codes[strings.Trim(lit.Value, `"`)] = name
		}
	}
	return codes
}

// units are those of package time, in nanoseconds.
var units = map[string]int64{"Microsecond": 1e3, "Millisecond": 1e6, "Second": 1e9, "Minute": 60e9, "Hour": 3600e9}

// number evaluates an expression of numbers, units of time, products and shifts.
func (s *source) number(e ast.Expr) (int64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseInt(e.Value, 0, 64)
	case *ast.SelectorExpr:
		if n, ok := units[e.Sel.Name]; ok {
			return n, nil
		}
	case *ast.BinaryExpr:
		return s.combine(e)
	}
	return 0, fmt.Errorf("not understood: %T", e)
}

func (s *source) combine(e *ast.BinaryExpr) (int64, error) {
	x, err := s.number(e.X)
	if err != nil {
		return 0, err
	}
	y, err := s.number(e.Y)
	if err != nil {
		return 0, err
	}
	switch e.Op {
	case token.MUL:
		return x * y, nil
	case token.SHL:
		return x << y, nil
	}
	return 0, fmt.Errorf("not understood: %v", e.Op)
}

// moves returns the transitions of a table of states, by the states' names in the code.
func (s *source) moves(t *testing.T, variable string) (arrows [][2]string) {
	t.Helper()
	table, ok := s.variables[variable].(*ast.CompositeLit)
	if !ok {
		t.Fatalf("there is no table %s", variable)
	}
	for _, row := range table.Elts {
		from := row.(*ast.KeyValueExpr)
		for _, cell := range from.Value.(*ast.CompositeLit).Elts {
			to := cell.(*ast.KeyValueExpr).Value.(*ast.Ident).Name
			if name := from.Key.(*ast.Ident).Name; name != to {
				arrows = append(arrows, [2]string{name, to})
			}
		}
	}
	return arrows
}
