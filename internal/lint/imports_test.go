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

// anyModule in an arrow allows all packages of other modules.
const anyModule = "*"

// arrows says what the shipped code of a directory may import beside the standard library: packages
// of this repository by their directory, packages of other modules by their import path. An entry
// also allows everything below it. For a package, the entry of the longest path counts, and there
// must be one. A package may always import what is below itself.
//
// A new arrow is a design decision: the review must see a reason for it.
var arrows = map[string][]string{
	// The engine, a simulator and an exhaustive check all run the rules unchanged. So the rules
	// have no I/O, no clock and no wire types.
	"lease": {},

	// The store knows the records that it keeps, but not who asks for them. Only boltstore knows
	// that the format on disk is bbolt's.
	"store":           {"lease", "internal/turn"},
	"store/boltstore": {"store", "go.etcd.io/bbolt", "golang.org/x/sys/unix"}, // unix tells when a file was made
	"store/memstore":  {"store", "github.com/tidwall/btree"},
	"store/reserve":   {"store"},
	// The indexes of idempotency keys and of timers keep their newest entries in memory, in order.
	"store/keyindex":   {"lease", "store", "internal/ordered"},
	"store/timerindex": {"lease", "store", "internal/ordered"},
	"store/storetest":  {"store"},

	// gen has only generated code, which imports nothing of ours.
	"gen": {"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/planetscale/vtprotobuf"},

	// The coordinator is the process: it puts the parts together, and listens.
	"coordinator": {
		"lease", "store", "gen", "internal/bubble", "internal/every", "internal/httpserver", "internal/httpstatus", "internal/turn", "internal/uncompressed",
		"internal/wire", "web", anyModule,
	},
	// Tests look at the parts of a coordinator, and at nothing else of it.
	"coordinator/internal/inside": {
		"coordinator/engine", "coordinator/gate", "coordinator/quota", "coordinator/service", "coordinator/session", "coordinator/submitlimit",
		"google.golang.org/grpc",
	},
	// It is for tests of whole coordinators.
	"coordinator/internal/wiretest": {"lease", "store", "gen", "coordinator", "internal/certs", "internal/detail", "internal/wire", anyModule},
	// The authentication uses no wire types, so that every listener can use it.
	"coordinator/auth": {"lease", "store", "internal/turn"},
	// Package preauth serves callers that are not authenticated, and knows only their addresses. It
	// knows neither the credentials nor what is behind the gate.
	"coordinator/preauth": {"coordinator/quota", "coordinator/refusal", "internal/turn", anyModule},
	// Package recvlimit counts bytes on connections, and knows neither callers nor calls.
	"coordinator/recvlimit": {anyModule},
	// The gate decides who may make which call, and knows nothing of how the calls are served. It
	// tells credentials and task tokens apart.
	"coordinator/gate": {
		"lease", "store", "gen", "coordinator/audit", "coordinator/auth", "coordinator/convert", "coordinator/engine", "coordinator/preauth",
		"coordinator/quota", "coordinator/refusal", "coordinator/tasktoken", "internal/every", "internal/turn", anyModule,
	},
	// The quotas count what a tenant uses, and know nothing of what it is.
	"coordinator/quota": {},
	// Requests are decoded before it is known what they are good for.
	"coordinator/reqcodec": {
		"lease", "gen", "coordinator/convert", "coordinator/gate", "coordinator/preauth", "coordinator/refusal", "internal/wire", anyModule,
	},
	// The room for submits and the bound on unread answers know how large messages are, and nothing
	// of what they say.
	"coordinator/submitlimit": {
		"gen", "coordinator/engine", "coordinator/gate", "coordinator/preauth", "coordinator/recvlimit", "coordinator/refusal", "coordinator/reqcodec", anyModule,
	},
	"coordinator/sendlimit": {"gen", "coordinator/refusal", "internal/wire", anyModule},
	// The engine decides and stores. Requests, streams and wire types stay in the edge around it.
	"coordinator/engine": {"lease", "store", "internal/ordered"},
	// Requests are parsed and answers are made without knowing who asks, and without calls that
	// wait.
	"coordinator/convert": {
		"lease", "store", "gen", "coordinator/auth", "coordinator/engine", "coordinator/tasktoken", "coordinator/tracing", "internal/traceparent",
		"internal/turn", "google.golang.org/grpc", "google.golang.org/protobuf",
	},
	// The services serve calls that were let in. They know neither the process nor its listeners,
	// and not the JSON API and the page, which are their clients.
	"coordinator/service": {
		"lease", "store", "gen", "coordinator/auth", "coordinator/convert", "coordinator/engine", "coordinator/gate", "coordinator/quota", "coordinator/refusal",
		"coordinator/reqcodec", "coordinator/sendlimit", "coordinator/session", "coordinator/submitlimit", "coordinator/tracing", "internal/every",
		"internal/traceparent", "internal/turn", "internal/wire", anyModule,
	},
	// Spans are made of versions of tasks, and of nothing else.
	"coordinator/tracing": {"lease", "gen", "internal/traceparent", "go.opentelemetry.io/otel"},
	// A session does not know who may open one, nor what else the edge serves.
	"coordinator/session": {
		"lease", "store", "gen", "coordinator/auth", "coordinator/convert", "coordinator/engine", "coordinator/quota", "coordinator/refusal",
		"internal/turn", "internal/wire", "internal/words", anyModule,
	},
	// All errors of the edge and of what is behind it get their code here.
	"coordinator/refusal": {"lease", "store", "gen", "internal/detail", "coordinator/auth", "coordinator/engine", "coordinator/quota", anyModule},
	// The JSON API is a client of the gRPC services. It can reach neither the engine nor the store.
	"coordinator/httpapi": {
		"lease", "gen", "internal/detail", "internal/httpserver", "internal/httpstatus", "internal/strictjson", "internal/turn", "internal/words",
		anyModule,
	},
	"coordinator/tasktoken": {"lease"},

	// The page is a client of the gRPC services. It can reach neither the engine nor the store.
	"web": {"gen", "internal/httpstatus", "internal/words", "google.golang.org/grpc", "google.golang.org/protobuf"},

	// A worker is a user's program. It knows the wire format and nothing of the server, and brings
	// no other modules than these. Only its test helper starts a real server.
	"worker": {
		"gen", "internal/await", "internal/detail", "internal/pipe", "internal/traceparent", "internal/wire", "internal/words",
		"go.opentelemetry.io/otel", "google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
	},
	// Only those who import it depend on Prometheus.
	"worker/workermetrics": {"worker", "gen", "internal/words", "github.com/prometheus/client_golang/prometheus"},
	// Resources of a worker use the types of the SDK.
	"worker/resource": {"worker"},
	// Any program can say that it is ready, without gRPC.
	"worker/readiness":  {},
	"worker/workertest": {"worker", "gen", "coordinator", "store", "internal/bubble", anyModule},

	// Code that the coordinator, the worker and the command share is in internal. It depends on
	// none of them.
	"internal": {"gen", anyModule},
	// A coordinator for tests of handlers is started with it.
	"internal/bubble": {},
	// It knows nothing but the time.
	"internal/every": {},
	// The engine and the indexes of the store keep in it what has an order. They do not see the
	// tree, nor do those who see them.
	"internal/ordered": {"github.com/tidwall/btree"},
	// Servers of the coordinator and of the command refuse compressed calls with it.
	"internal/uncompressed": {"google.golang.org/grpc"},
	// The SDK and the command both give calls up with it.
	"internal/await": {},
	// The coordinator, the SDK and the command carry traces on with it.
	"internal/traceparent": {"go.opentelemetry.io/otel/trace"},
	// It knows nothing of tasks.
	"internal/otlp": {"go.opentelemetry.io/otel", "github.com/go-logr/logr"},
	// The coordinator and the SDK both encode and decode with it, and take frames of a stream
	// alike.
	"internal/wire": {anyModule},
	// The coordinator makes errors with it; the SDK and the command read them.
	"internal/detail": {"google.golang.org/genproto", "google.golang.org/grpc"},
	// Servers of the coordinator and of the command bound their clients with it. It knows nothing
	// of what they serve.
	"internal/httpserver": {},
	// The JSON API, the page and the other pages of the coordinator all answer with it.
	"internal/httpstatus": {"google.golang.org/grpc/codes"},
	// The SDK and the command both read files with it.
	"internal/pipe": {},
	// Words only reads messages.
	"internal/words": {"gen", "google.golang.org/protobuf"},
	// The JSON API and the pools both read bodies with it. It knows nothing of what they mean.
	"internal/strictjson": {},
	// It knows nothing of tasks.
	"internal/process": {},
	// A supervisor and its processes agree on names; else it knows nothing of workers.
	"internal/pool": {"gen", "internal", "worker/readiness", anyModule},
	// Running a program for each task is an ordinary worker that uses the SDK.
	"internal/execworker": {"worker", "internal"},
	// Workers are checked against a real coordinator.
	"internal/workercheck": {"coordinator", "gen", "internal/detail", "internal/process", "internal/uncompressed", "store/memstore", anyModule},
	// The benchmark is a client of a coordinator. It also measures a store without a coordinator.
	"internal/bench": {"worker", "gen", "lease", "store", "internal/httpserver", anyModule},

	// Examples show what users can write, who can import only the public packages.
	"examples": {"gen", "worker", anyModule},

	// The command puts everything together, and so do the tests of the whole system.
	"cmd":  {"coordinator", "gen", "internal", "lease", "store", "worker", anyModule},
	"test": {"coordinator", "gen", "internal", "lease", "store", "worker", "cmd", anyModule},
}

// testOnly lists packages that shipped code must not import, with everything below them. The same
// holds for each package whose name ends in "test", such as storetest, workertest and httptest.
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
			continue // is itself a helper for tests
		}
		for _, imported := range importsOf(t, file) {
			if isTestOnly(imported) {
				t.Errorf("%s imports %s, which is for tests", file, imported)
			}
		}
	}
}

// shippedFiles returns all Go files that are not tests. It reads the tree, because the go command
// would leave out files for other platforms and files behind build tags.
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

// isStandard reports whether a path is that of a package of the standard library: it has no dot
// before the first slash.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}
