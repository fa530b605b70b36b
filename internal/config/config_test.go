package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/pipe"
)

// testFlags has flags of the application, of a command, of a command within a command, and flags
// that are shared by commands.
type testFlags struct {
	Config File `env:"LESSOR_CONFIG"`

	Serve struct {
		Data string `default:"/default"`
		Size int
		Mode string `enum:"slow,fast" default:"slow"`
		Hue  string
	} `cmd:"" bare:""`
	Get struct {
		Addr string `shared:"" default:"default:1"`
		All  bool   `typed:""`
		Loud bool
		Hue  string
	} `cmd:""`
	Addr struct { // has the name of a shared flag
		Show struct {
			Color string
			Hue   string
		} `cmd:""`
	} `cmd:""`
	Worker struct {
		Run struct {
			Addr  string `shared:"" default:"default:1"`
			Queue []string
			Wait  time.Duration
			Label map[string]string
			Loud  bool
			Limit map[string]int
			Has   map[string]float64
			Ports []int
			Colon string
			Hue   string
		} `cmd:""`
	} `cmd:""`
}

func parseTest(t *testing.T, file string, args ...string) (*testFlags, error) {
	t.Helper()
	if file != "" {
		name := filepath.Join(t.TempDir(), "lessor.yaml")
		if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", name}, args...)
	}
	g := &testFlags{}
	parser, err := kong.New(g, Environment("LESSOR"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return g, err
}

func TestCommandLineOverridesEnvironmentOverridesFile(t *testing.T) {
	const file = "serve: {data: /file}\naddr: file:1\n"
	for name, test := range map[string]struct {
		env, flag, file, want string
	}{
		"default":          {want: "/default"},
		"file":             {file: file, want: "/file"},
		"environment":      {file: file, env: "/env", want: "/env"},
		"command line":     {file: file, env: "/env", flag: "/flag", want: "/flag"},
		"flag over file":   {file: file, flag: "/flag", want: "/flag"},
		"env over default": {env: "/env", want: "/env"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"serve"}
			if test.env != "" {
				t.Setenv("LESSOR_DATA", test.env)
			}
			if test.flag != "" {
				args = append(args, "--data", test.flag)
			}
			g, err := parseTest(t, test.file, args...)
			if err != nil {
				t.Fatal(err)
			}
			if g.Serve.Data != test.want {
				t.Errorf("got %q, want %q", g.Serve.Data, test.want)
			}
		})
	}
}

func TestEnvironmentNamesFollowThePath(t *testing.T) {
	t.Setenv("LESSOR_WORKER_RUN_WAIT", "3s")
	t.Setenv("LESSOR_ADDR", "env:1")
	t.Setenv("LESSOR_WORKER_RUN_QUEUE", "a,b")
	g, err := parseTest(t, "", "worker", "run")
	if err != nil {
		t.Fatal(err)
	}
	run := g.Worker.Run
	if run.Wait != 3*time.Second || run.Addr != "env:1" || len(run.Queue) != 2 {
		t.Errorf("got %+v, want wait 3s, addr env:1 and two queues", run)
	}
}

// A variable that was left over does not set a flag that is only for the command line.
func TestNoVariableSetsATypedFlag(t *testing.T) {
	t.Setenv("LESSOR_GET_ALL", "true")
	if g, err := parseTest(t, "", "get"); err != nil || g.Get.All {
		t.Errorf("all = %t, %v; want false", g.Get.All, err)
	}
	if g, err := parseTest(t, "", "get", "--all"); err != nil || !g.Get.All {
		t.Errorf("on the command line: all = %t, %v; want true", g.Get.All, err)
	}
}

func TestFileMayHoldEveryKindOfValue(t *testing.T) {
	g, err := parseTest(t, `
# a comment
addr: file:1
worker:
  run:
    queue: [a, "b,c"]
    wait: 1m
    label: {team: blue, size: 3}
    loud: true
`, "worker", "run")
	if err != nil {
		t.Fatal(err)
	}
	run := g.Worker.Run
	if run.Addr != "file:1" || len(run.Queue) != 2 || run.Queue[1] != "b,c" || run.Wait != time.Minute ||
		run.Label["size"] != "3" || !run.Loud {
		t.Errorf("got %+v, want the values of the file", run)
	}
}

// A key may be a flag and a section: --token, and the commands of lessor token.
func TestFlagWithTheNameOfASection(t *testing.T) {
	g, err := parseTest(t, "addr: {show: {color: red}}", "addr", "show")
	if err != nil || g.Addr.Show.Color != "red" {
		t.Errorf("as a section: color %q, %v; want red", g.Addr.Show.Color, err)
	}
	g, err = parseTest(t, "addr: file:1", "get")
	if err != nil || g.Get.Addr != "file:1" {
		t.Errorf("as a flag: addr %q, %v; want file:1", g.Get.Addr, err)
	}
}

// An alias stands for what its anchor names: a value, a list, a table or a section.
func TestFileMayHaveAliases(t *testing.T) {
	g, err := parseTest(t, "addr: &a host:1\nserve: {data: *a}\nworker: {run: {queue: &q [x, *a], ports: &n [1], label: {k: *a}}}\n", "worker", "run")
	if run := g.Worker.Run; err != nil || run.Addr != "host:1" || !slices.Equal(run.Queue, []string{"x", "host:1"}) || run.Label["k"] != "host:1" {
		t.Errorf("got %+v (%v), want the address, the second queue and the label to be host:1", run, err)
	}
	if g, err = parseTest(t, "worker: &w {}\nserve: *w\n", "serve"); err != nil || g.Serve.Data != "/default" {
		t.Errorf("an alias of an empty section: data %q (%v), want the default", g.Serve.Data, err)
	}
	if _, err = parseTest(t, "addr: *self\nserve: &self {data: *self}\n", "serve"); err == nil {
		t.Error("an alias before its anchor was accepted")
	}
	if _, err = parseTest(t, "serve: &self {data: *self}\n", "serve"); err == nil {
		t.Error("an alias of the section that it is in was accepted")
	}
}

func TestListsAndTablesOfNumbersFromTheFile(t *testing.T) {
	g, err := parseTest(t, "worker: {run: {limit: {a: 2}, has: {gb: 1.5, cores: 4}, ports: [1, 2]}}", "worker", "run")
	run := g.Worker.Run
	if err != nil || !maps.Equal(run.Limit, map[string]int{"a": 2}) || !maps.Equal(run.Has, map[string]float64{"gb": 1.5, "cores": 4}) ||
		!slices.Equal(run.Ports, []int{1, 2}) {
		t.Errorf("got %+v, %v; want the values of the file", run, err)
	}
}

func TestEnvironmentNamesTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lessor.yaml")
	if err := os.WriteFile(name, []byte("addr: file:1"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LESSOR_CONFIG", name)
	g, err := parseTest(t, "", "get")
	if err != nil || g.Get.Addr != "file:1" {
		t.Errorf("addr = %q, %v; want file:1", g.Get.Addr, err)
	}
}

func TestEmptyNameOfTheFileIsRefusedOnTheCommandLine(t *testing.T) {
	t.Setenv("LESSOR_CONFIG", "")
	if _, err := parseTest(t, "", "get"); err != nil {
		t.Errorf("with an empty LESSOR_CONFIG: %v; want that no file is read", err)
	}
	if _, err := parseTest(t, "", "--config", "", "get"); err == nil || err.Error() != "--config: must not be empty" {
		t.Errorf("with an empty --config: %v; want that it must not be empty", err)
	}
}

func TestInvalidFileIsRefusedWithItsLine(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"unknown key":           {"addr: x\nadr: y\n", `lessor.yaml:2: unknown key "adr"; a similar one is addr`},
		"unknown key deeper":    {"worker:\n  run:\n    jobz: 4\n", `lessor.yaml:3: unknown key "worker.run.jobz"`},
		"unknown key of one":    {"size: 4\n", `lessor.yaml:1: unknown key "size"; a similar one is serve.size`},
		"unknown key of some":   {"loud: true\n", `lessor.yaml:1: unknown key "loud"; similar ones are get.loud, worker.run.loud`},
		"unknown key of many":   {"hue: red\n", `lessor.yaml:1: unknown key "hue"; similar ones are addr.show.hue, get.hue, serve.hue and 1 more`},
		"known on top":          {"serve: {addr: x}\n", `lessor.yaml:1: unknown key "serve.addr"; a similar one is addr`},
		"similar in its place":  {"worker: {run: {color: red}}\n", `lessor.yaml:1: unknown key "worker.run.color"; a similar one is worker.run.colon`},
		"similar elsewhere":     {"adr.show.color: red\n", `lessor.yaml:1: unknown key "adr.show.color"; a similar one is addr.show.color`},
		"unknown section":       {"server:\n  size: 4\n", `lessor.yaml:1: unknown key "server"; a similar one is serve`},
		"unknown section below": {"worker: {runs: {jobs: 4}}\n", `lessor.yaml:1: unknown key "worker.runs"; a similar one is worker.run`},
		"section elsewhere":     {"run: {jobs: 4}\n", `lessor.yaml:1: unknown key "run"; a similar one is worker.run`},
		"a value is no section": {"server: x\n", `lessor.yaml:1: unknown key "server"`},
		"only for commands":     {"serve: {all: true}\n", `lessor.yaml:1: unknown key "serve.all"`},
		"of another command":    {"worker: {run: {wait: soon}}", `lessor.yaml:1: key "worker.run.wait": expected duration but got "soon": time: invalid duration "soon"`},
		"not a number":          {"serve:\n  size: many\n", `lessor.yaml:2: key "serve.size": expected a valid 64 bit int but got "many"`},
		"not one of the words":  {"serve:\n  mode: swift\n", `lessor.yaml:2: key "serve.mode": "swift" is not one of slow, fast`},
		"no value":              {"addr:\n", `lessor.yaml:1: key "addr": has no value`},
		"no value in a list":    {"worker: {run: {queue: [a, ~]}}", `lessor.yaml:1: key "worker.run.queue": entry 2 has no value`},
		"no value in a table":   {"worker:\n  run:\n    has:\n      a:\n", `lessor.yaml:4: key "worker.run.has": "a" has no value`},
		"twice":                 {"addr: a\naddr: b\n", `lessor.yaml:2: key "addr" appears twice`},
		"twice in a table":      {"worker:\n  run:\n    label:\n      a: b\n      a: c\n", `lessor.yaml:4: key "worker.run.label": "a" appears twice, in lines 4 and 5`},
		"value for a section":   {"worker: 4\n", `lessor.yaml:1: section "worker" must hold keys and values`},
		"a list on top":         {"- a\n", `lessor.yaml:1: the file must hold keys and values`},
		"an empty entry":        {"worker: {run: {queue: [a, '']}}", `lessor.yaml:1: key "worker.run.queue": entry 2 is empty`},
		"nested list":           {"worker: {run: {queue: [[a]]}}", `lessor.yaml:1: key "worker.run.queue": must be a list of plain values`},
		"nested table":          {"worker: {run: {label: {a: {b: c}}}}", `lessor.yaml:1: key "worker.run.label": must be a table of plain values`},
		"the file names itself": {"config: other.yaml\n", `lessor.yaml:1: unknown key "config"`},
		"a list for a text":     {"addr: [x]\n", `lessor.yaml:1: key "addr": must be a single value`},
		"a table for a number":  {"serve: {size: {a: b}}\n", `lessor.yaml:1: key "serve.size": must be a single value`},
		"a table for a list":    {"worker: {run: {queue: {a: b}}}", `lessor.yaml:1: key "worker.run.queue": must be a list, not a table`},
		"a list for a table":    {"worker: {run: {label: [a]}}", `lessor.yaml:1: key "worker.run.label": must be a table, not a list`},
		"no whole numbers":      {"worker: {run: {limit: {a: 1.5}}}", `lessor.yaml:1: key "worker.run.limit": must hold whole numbers`},
		"no numbers":            {"worker: {run: {has: {a: b}}}", `lessor.yaml:1: key "worker.run.has": must hold numbers`},
		"for the command line":  {"get:\n  all: true\n", `lessor.yaml:2: key "get.all": --all is read only from the command line`},
		"a second document":     {"addr: a\n---\nadr: b\n", `lessor.yaml:2: a second YAML document begins here; the file may have only one`},
		"broken after the end":  {"addr: a\n---\na: b: c\n", `lessor.yaml: not YAML: line 3: mapping values are not allowed in this context`},
		"not YAML":              {"a: b: c\n", `lessor.yaml: not YAML: mapping values are not allowed in this context`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseTest(t, test.file, "get")
			var broken *Error
			if !errors.As(err, &broken) {
				t.Fatalf("got %v", err)
			}
			broken.File = filepath.Base(broken.File)
			if broken.Error() != test.want {
				t.Errorf("got  %s\nwant %s", broken, test.want)
			}
		})
	}
}

func TestMissingFileIsNamedInTheError(t *testing.T) {
	_, err := parseTest(t, "", "--config", "no-such.yaml", "get")
	var broken *Error
	if !errors.As(err, &broken) || broken.Error() != "no-such.yaml: no such file or directory" {
		t.Errorf("error %v, want that no-such.yaml does not exist", err)
	}
}

func TestPipeIntoWhichNobodyWritesIsAnError(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := parseTest(t, "", "--config", name, "get")
		var broken *Error
		if !errors.As(err, &broken) || broken.File != name || broken.Problem != pipe.ErrNoWriter.Error() {
			t.Errorf("error %v, want that nobody writes into %s", err, name)
		}
	})
}

func TestEmptyFileChangesNothing(t *testing.T) {
	g, err := parseTest(t, "# nothing yet\n", "get")
	if err != nil || g.Get.Addr != "default:1" {
		t.Errorf("addr = %q, %v; want the default, default:1", g.Get.Addr, err)
	}
}
