package lint

import (
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// anyModule in an arrow allows every package of other modules.
const anyModule = "*"

// arrows says what the shipped code of a package may import beside the standard library: packages of this repository by
// their directory, those of other modules by their import path. An entry holds for everything below it; for a package, the
// entry with the longest path counts, and there must be one. A package may always import what is below itself.
//
// To add an arrow is a design decision: it belongs into the review, with a reason.
var arrows = map[string][]string{
	// The rules must run unchanged in the engine, in a simulator and in an exhaustive check: no I/O, no clock, no wire types.
	"lease": {},

	// The store knows the records it keeps, not who asks. Only one package knows that today's disk format is bbolt.
	"store":           {"lease"},
	"store/boltstore": {"lease", "store", "go.etcd.io/bbolt", "golang.org/x/sys/unix"}, // the latter tells when a file was made
	"store/memstore":  {"lease", "store", "github.com/tidwall/btree"},
	"store/reserve":   {"store"},
	"store/storetest": {"lease", "store"},

	// Nothing hand-written is below gen, so nothing of ours can be needed there.
	"gen": {"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/planetscale/vtprotobuf"},

	// The process puts the parts of the edge together, and serves what has no package of its own.
	"coordinator": {"lease", "store", "gen", "internal", anyModule},
	// Who may come in is decided without a word of the wire, so that every listener can ask.
	"coordinator/auth": {"lease", "store"},
	// A stranger is known by the address alone: who may come in, and what there is behind the door, is not known here.
	"coordinator/porch": {"coordinator/quota", "coordinator/refusal", anyModule},
	// Who may come in is decided without a word on what is served behind the gate.
	"coordinator/gate": {
		"lease", "store", "gen", "coordinator/audit", "coordinator/auth", "coordinator/convert", "coordinator/engine", "coordinator/porch",
		"coordinator/quota", "coordinator/refusal", anyModule,
	},
	// What somebody uses is counted without a word of what it is.
	"coordinator/quota": {},
	// The engine decides and persists; requests, streams and wire types stay with the edge around it.
	"coordinator/engine": {"lease", "store", "github.com/tidwall/btree"},
	// What is read and written is decided without knowing who asks, and without a call that waits.
	"coordinator/convert": {"lease", "store", "gen", "coordinator/engine", "coordinator/tasktoken", "google.golang.org/grpc", "google.golang.org/protobuf"},
	// A stream is served without a word on who may open one, nor on what else the edge serves.
	"coordinator/session": {
		"lease", "store", "gen", "coordinator/auth", "coordinator/convert", "coordinator/engine", "coordinator/quota", "coordinator/refusal", anyModule,
	},
	// What goes wrong anywhere behind the edge gets its code here.
	"coordinator/refusal": {"lease", "store", "gen", "coordinator/auth", "coordinator/engine", "coordinator/quota", anyModule},
	// The API in JSON is a client of the gRPC services: it can reach neither the engine nor the store.
	"coordinator/httpapi":   {"lease", "gen", anyModule},
	"coordinator/tasktoken": {"lease"},

	// A worker is anybody's program: it knows the wire and nothing of the server. Its test helper starts a real server.
	"worker": {"gen", "internal/wire", anyModule},
	// What lives in a worker is described in the words of the SDK.
	"worker/resource":   {"worker"},
	"worker/workertest": {"worker", "gen", "coordinator", "store", anyModule},

	// What the parts share is below internal. It must not depend on one of them.
	"internal": {"gen", "lease", anyModule},
	// Both ends write and read by it.
	"internal/wire": {"gen", anyModule},
	// Running a program for each task is an ordinary worker on top of the SDK.
	"internal/execworker": {"worker", "gen", "internal", anyModule},
	// The benchmark is a client of a coordinator, and measures the store without one.
	"internal/bench": {"worker", "gen", "internal", "lease", "store", anyModule},

	// Examples show what a user can write, who sees only the public packages.
	"examples": {"gen", "worker", anyModule},

	// The command and the tests of the whole wire everything together.
	"cmd":  {"coordinator", "gen", "internal", "lease", "store", "worker", anyModule},
	"test": {"coordinator", "gen", "internal", "lease", "store", "worker", "cmd", anyModule},
}

// testOnly are packages that must not reach a binary, with what is below them; the same goes for every package whose name
// ends in "test": storetest, workertest, httptest.
var testOnly = []string{
	"testing",
	"github.com/bufbuild/protocompile",
	"github.com/google/go-cmp",
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, file := range shippedFiles(t) {
		owner := arrowOf(path.Dir(file))
		if owner == "" {
			t.Errorf("%s: add %s to arrows, with what it may import", file, path.Dir(file))
			continue
		}
		for _, imported := range importsOf(t, file) {
			if !isStandard(imported) && !allowed(owner, imported) {
				t.Errorf("%s imports %s, but %s may import only %q", file, imported, owner, arrows[owner])
			}
		}
	}
}

func TestShippedCodeImportsNoTestPackage(t *testing.T) {
	for _, file := range shippedFiles(t) {
		if dir := path.Dir(file); strings.HasSuffix(dir, "test") || within(dir, "test") {
			continue // itself a helper of tests
		}
		for _, imported := range importsOf(t, file) {
			if isTestOnly(imported) {
				t.Errorf("%s imports %s, which is for tests", file, imported)
			}
		}
	}
}

// shippedFiles returns all Go files that are not tests. It reads the tree instead of asking the go command, which would
// leave out files of other platforms and behind build tags.
func shippedFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(filesNamed(t, ".", ".go"), func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

// importsOf returns the import paths in a Go file.
func importsOf(t *testing.T, file string) []string {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var imports []string
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imports = append(imports, imported)
	}
	return imports
}

// arrowOf returns the key of arrows that counts for a directory, or "".
func arrowOf(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := arrows[dir]; ok {
			return dir
		}
	}
	return ""
}

func allowed(owner, imported string) bool {
	dir, ours := strings.CutPrefix(imported, module+"/")
	if ours && within(dir, owner) {
		return true
	}
	return slices.ContainsFunc(arrows[owner], func(target string) bool {
		return within(dir, target) || (target == anyModule && !ours)
	})
}

func isTestOnly(imported string) bool {
	return strings.HasSuffix(imported, "test") ||
		slices.ContainsFunc(testOnly, func(dir string) bool { return within(imported, dir) })
}

// isStandard tells packages of the standard library: the first element of any other path has a dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}
