package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// onePoolWith returns a file of one pool with more fields.
func onePoolWith(fields string) string {
	return "pools: [{id: p, command: [sh], " + fields + "}]"
}

// numbers returns a list in YAML of the numbers below n.
func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// manyPools returns a file of n pools.
func manyPools(n int) string {
	var file strings.Builder
	file.WriteString("pools:\n")
	for i := range n {
		fmt.Fprintf(&file, "- {id: p%d, command: [sh]}\n", i)
	}
	return file.String()
}

// workersInAll returns a file of pools that have n workers together, some of them on GPUs.
func workersInAll(n int) string {
	file := "pools:\n- {id: gpu, command: [sh], gpus: " + numbers(256) + "}\n"
	for left := n - 256; left > 0; left -= 256 {
		file += fmt.Sprintf("- {id: p%d, command: [sh], workers: %d}\n", left, min(left, 256))
	}
	return file
}

// Each refusal names the field, and the limit.
func TestRefusedFiles(t *testing.T) {
	t.Attr("rules", "P1")
	dir := t.TempDir()
	for _, test := range []struct{ file, want string }{
		{"", "pools: there are none; the file is empty"},
		{"# nothing\n", "pools: there are none; the file is empty"},
		{"{}", "pools: there are 0; from 1 to 64 are allowed"},
		{"~", "pools: there are 0; from 1 to 64 are allowed"},
		{manyPools(65), "pools: there are 65; from 1 to 64 are allowed"},
		{workersInAll(1025), "pools: have 1025 workers in all; at most 1024 are allowed"},
		{onePool + "\n---\n" + onePool, "a second YAML document follows; the file may have only one"},
		{onePool + "\n---\n[", "a second YAML document follows; the file may have only one"},
		{"pools: [{id: p, command: [sh]}, {id: p, command: [sh]}]", `pools[1].id: there is another pool "p"`},
		{"pools: [{command: [sh]}]", `pools[0].id: "" must have from 1 to 64 letters`},
		{"pools: [{id: a/b, command: [sh]}]", `pools[0].id: "a/b" must have from 1 to 64 letters`},
		{"pools: [{id: \"a\\n\", command: [sh]}]", `pools[0].id: "a\n" must have from 1 to 64 letters`},
		{"pools: [{id: " + strings.Repeat("x", 65) + ", command: [sh]}]", `pools[0].id: "` + strings.Repeat("x", 65) + `" must have from 1 to 64 letters`},
		{"pools: [{id: p}]", "pools[0].command: is required"},
		{`pools: [{id: p, command: [""]}]`, "pools[0].command: is required"},
		{`pools: [{id: p, command: [sh, "a\0b"]}]`, "pools[0].command: cannot have a zero byte"},
		{"pools: [{id: p, command: [no-such-program]}]", `pools[0].command: exec: "no-such-program": executable file not found`},
		{"pools: [{id: p, command: [./no-such-program]}]", "pools[0].command: exec: \"./no-such-program\": stat ./no-such-program: no such file"},
		{onePoolWith("dir: " + dir + "/none"), "pools[0].dir: stat " + dir + "/none: no such file or directory"},
		{onePoolWith("dir: /dev/null"), `pools[0].dir: "/dev/null" is not a directory`},
		{onePoolWith("workers: -1"), "pools[0].workers: -1 must be from 1 to 256"},
		{onePoolWith("workers: 0"), "pools[0].workers: 0 must be from 1 to 256"},
		{onePoolWith("workers: 1.5"), `line 1: "1.5" is not a whole number`},
		{onePoolWith("gpus: []"), "pools[0].gpus: is empty"},
		{onePoolWith("gpus: [-1]"), "pools[0].gpus: -1 must be from 0 to 1023"},
		{onePoolWith("gpus: [0.5]"), `line 1: "0.5" is not a whole number`},
		{onePoolWith("workers: 257"), "pools[0].workers: 257 must be from 1 to 256"},
		{onePoolWith("workers: 1, gpus: [0]"), "pools[0].workers: cannot be set beside gpus"},
		{onePoolWith("gpus: [1024]"), "pools[0].gpus: 1024 must be from 0 to 1023"},
		{onePoolWith("gpus: [1, 2, 1]"), "pools[0].gpus: 1 is there twice"},
		{onePoolWith("gpus: " + numbers(257)), "pools[0].gpus: there are 257; at most 256 are allowed"},
		{onePoolWith("env: {LESSOR_POOL_TOKEN: x}"), "pools[0].env: LESSOR_POOL_TOKEN is set by the supervisor"},
		{onePoolWith("env: {LESSOR_GPU_DEVICE: x}"), "pools[0].env: LESSOR_GPU_DEVICE is set by the supervisor"},
		{onePoolWith("gpus: [0], env: {CUDA_VISIBLE_DEVICES: 1}"), "pools[0].env: CUDA_VISIBLE_DEVICES is set by the supervisor"},
		{onePoolWith(`env: {"": x}`), `pools[0].env: "" cannot be an environment variable`},
		{onePoolWith("env: {a=b: x}"), `pools[0].env: "a=b" cannot be an environment variable`},
		{onePoolWith(`env: {"a\0": x}`), `pools[0].env: "a\x00" cannot be an environment variable`},
		{onePoolWith(`env: {a: "\0"}`), `pools[0].env: "a" cannot be an environment variable`},
		{onePoolWith("restart: never"), `pools[0].restart: "never" must be on_failure or always`},
		{onePoolWith("ready_timeout: -1s"), "pools[0].ready_timeout: -1s must be from 0s to 24h0m0s"},
		{onePoolWith("ready_timeout: 25h"), "pools[0].ready_timeout: 25h0m0s must be from 0s to 24h0m0s"},
		{onePoolWith("drain_timeout: 0s"), "pools[0].drain_timeout: 0s must be from 1s to 24h0m0s"},
		{onePoolWith("drain_timeout: 999ms"), "pools[0].drain_timeout: 999ms must be from 1s to 24h0m0s"},
		{onePoolWith("drain_timeout: 25h"), "pools[0].drain_timeout: 25h0m0s must be from 1s to 24h0m0s"},
		{onePoolWith("restart_backoff: 9ms"), "pools[0].restart_backoff: 9ms must be from 10ms to 24h0m0s"},
		{onePoolWith("restart_backoff_max: 999ms"), "pools[0].restart_backoff_max: 999ms must be from 1s to 24h0m0s"},
		{onePoolWith("restart_backoff_max: 25h"), "pools[0].restart_backoff_max: 25h0m0s must be from 1s to 24h0m0s"},
		{"listen: \"9200\"\n" + onePool, `listen: "9200" is not an address such as 127.0.0.1:9200`},
		{"listen: \":9200\"\n" + onePool, `listen: ":9200" is not on the loopback interface`},
		{"listen: 0.0.0.0:9200\n" + onePool, `listen: "0.0.0.0:9200" is not on the loopback interface`},
		{"listen: example.org:9200\n" + onePool, `listen: "example.org:9200" is not on the loopback interface`},
		{"listen: 127.0.0.1:65536\n" + onePool, `listen: "127.0.0.1:65536" has no port from 0 to 65535`},
		{"listen: \"127.0.0.1:\"\n" + onePool, `listen: "127.0.0.1:" has no port from 0 to 65535`},
	} {
		if _, err := Parse([]byte(test.file)); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.200q: error %v, want %s", test.file, err, test.want)
		}
	}
}

// All that is wrong is said at once.
func TestAllProblemsAreSaid(t *testing.T) {
	t.Attr("rules", "P1")
	_, err := Parse([]byte("listen: x\npools: [{id: a b, command: [sh]}, {id: p, workers: -1, restart: no}]"))
	for _, field := range []string{"listen", "pools[0].id", "pools[1].command", "pools[1].workers", "pools[1].restart"} {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+field+": ") {
			t.Errorf("error %v, want a line for %s", err, field)
		}
	}
}

// goName matches names that only people who know Go understand.
var goName = regexp.MustCompile(`pool\.|time\.|!!|uint32|\b(int|string|struct)\b|\[\]|map\[|\n`)

// What package yaml finds is said with the line, and in words for people who do not know Go.
func TestRefusedYAML(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"polls: []", "line 1: field polls not found"},
		{"pools:\n- {id: p, cmd: [sh]}", "line 2: field cmd not found"},
		{"pools:\n- {id: p, id: q}", `line 2: mapping key "id" already defined at line 2`},
		{"pools:\n- {id: p, command: sh}", "line 2: cannot unmarshal text `sh` into a list"},
		{"pools: {id: p}", "line 1: cannot unmarshal table into a list"},
		{"pools:\n-\n- {id: p, command: [sh], workers: 2}", "line 2: an item of a list has no value"},
		{"pools:\n- {id: p, command: [ls, ~]}", "line 2: an item of a list has no value"},
		{onePoolWith("gpus: [0, null]"), "line 1: an item of a list has no value"},
		{"pools: [p]", "line 1: cannot unmarshal text `p`"},
		{"[]", "line 1: cannot unmarshal list"},
		{"text", "line 1: cannot unmarshal text `text`"},
		{onePoolWith("id2: [1]"), "line 1: field id2 not found"},
		{onePoolWith("dir: [1]"), "line 1: cannot unmarshal list"},
		{onePoolWith("env: [1]"), "line 1: cannot unmarshal list"},
		{onePoolWith("env: {a: [1]}"), "line 1: cannot unmarshal list"},
		{onePoolWith("workers: many"), "line 1: \"many\" is not a whole number"},
		{onePoolWith("gpus: 1.5"), "line 1: cannot unmarshal number `1.5`"},
		{onePoolWith("workers: true"), "line 1: \"true\" is not a whole number"},
		{onePoolWith("gpus: 0"), "line 1: cannot unmarshal number `0` into a list"},
		{onePoolWith("restart: {}"), "line 1: cannot unmarshal table"},
		{onePoolWith("ready_timeout: 30"), "line 1: cannot unmarshal number `30` into a duration such as 30s"},
		{onePoolWith("ready_timeout: soon"), "line 1: cannot unmarshal text `soon` into a duration such as 30s"},
		{"pools: [", "line 1: did not find expected node content"},
		{"pools: *a", "unknown anchor 'a' referenced"},
		{"pools: [{id: p, command: [sh, &a ~]}]", "line 1: an item of a list has no value"},
		{"pools: [{id: p, env: {a: &a ~}, command: [sh, *a]}]", "line 1: an item of a list has no value"},
		{"pools: &a [*a]", "line 1: cannot unmarshal list"},
		{"\xff", "invalid leading UTF-8 octet"},
	} {
		_, err := Parse([]byte(test.file))
		if err == nil || !strings.Contains(err.Error(), test.want) || goName.MatchString(err.Error()) {
			t.Errorf("%q: error %v, want %s, in one line without names of Go", test.file, err, test.want)
		}
	}
}

// The limits themselves are allowed.
func TestAcceptedFiles(t *testing.T) {
	t.Attr("rules", "P1")
	for _, file := range []string{
		manyPools(64),
		workersInAll(1024),
		"pools: [{id: " + strings.Repeat("x", 64) + ", command: [sh]}]",
		onePoolWith("workers: 256"),
		onePoolWith("gpus: " + numbers(256)),
		onePoolWith("gpus: [1023]"),
		onePoolWith("ready_timeout: 24h, drain_timeout: 24h, restart_backoff: 24h"),
		onePoolWith("ready_timeout: 0s, drain_timeout: 1s, restart_backoff: 10ms, restart_backoff_max: 10ms"),
		onePoolWith("restart: always, env: {CUDA_VISIBLE_DEVICES: 1, EMPTY: }"),
		"listen: \"[::1]:0\"\n" + onePool,
		"listen: localhost:65535\n" + onePool,
	} {
		if _, err := Parse([]byte(file)); err != nil {
			t.Errorf("%.200q: %v", file, err)
		}
	}
}

// What the file leaves out has the documented default.
func TestDefaults(t *testing.T) {
	t.Attr("rules", "P1")
	for _, test := range []struct {
		file          string
		backoff, most time.Duration
	}{{onePool, time.Second, time.Minute}, {onePoolWith("restart_backoff: 2m"), 2 * time.Minute, 2 * time.Minute}} {
		c, err := Parse([]byte(test.file))
		if err != nil {
			t.Fatal(err)
		}
		want := &Config{Listen: "127.0.0.1:9200", Pools: []Entry{{
			ID: "p", Command: []string{"sh"}, Workers: 1, DrainTimeout: 40 * time.Second, Restart: OnFailure,
			RestartBackoff: test.backoff, RestartBackoffMax: test.most,
		}}}
		if !reflect.DeepEqual(c, want) {
			t.Errorf("%q: got %+v, want %+v", test.file, c, want)
		}
	}
}

// A file may say once what its pools share.
func TestAliases(t *testing.T) {
	c, err := Parse([]byte("pools:\n- &a {id: a, command: [sh], env: &e {X: y}, workers: 2}\n- {<<: *a, id: b}\n- {id: c, command: [sh], env: *e}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Pools[1]; b.ID != "b" || b.Workers != 2 || c.Pools[2].Env["X"] != "y" {
		t.Errorf("got %+v, want b to be as a, and c with its env", c.Pools)
	}
}

// A program with a slash is relative to dir, and without dir to where the supervisor runs. One
// without a slash comes from PATH, and never from "." in it: the system would not start that.
func TestProgramIsFound(t *testing.T) {
	t.Attr("rules", "P1")
	work, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{filepath.Join(work, "here"), filepath.Join(dir, "there")} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Chdir(work)
	t.Setenv("PATH", ".:"+os.Getenv("PATH"))
	for _, test := range []struct {
		program, dir string
		found        bool
	}{
		{"./here", "", true},
		{"./here", ".", true},
		{"./here", dir, false},
		{"./there", dir, true},
		{"./there", "", false},
		{filepath.Join(work, "here"), dir, true},
		{"sh", dir, true},
		{"here", "", false},
		{"there", dir, false},
	} {
		_, err := Parse(fmt.Appendf(nil, "pools: [{id: p, command: [%q], dir: %q}]", test.program, test.dir))
		if (err == nil) != test.found {
			t.Errorf("%s in %q: error %v, want found: %v", test.program, test.dir, err, test.found)
		}
	}
}

// A file is refused, with a reason, or what it says is within the limits.
func FuzzParse(f *testing.F) {
	for _, file := range []string{
		"", onePool, slowStart, manyPools(2), onePoolWith("gpus: [0, 1], env: {A: b}"), "pools: &a [*a]", "? [a]\n: b", "<<: {listen: x}", "\xff\xfe", "---\n---\n",
		onePoolWith("workers: 99999999999999999999"), onePoolWith("ready_timeout: 1e9h"), "pools: !!binary aGk=",
		"listen: !!set {a, b}", "pools: [~]", "\"\\0\": 1",
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := Parse(file)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("%q is refused without a reason", file)
			}
			return
		}
		if n := len(c.Pools); n < 1 || n > maxPools {
			t.Errorf("%q: %d pools", file, n)
		}
		for _, p := range c.Pools {
			if n := len(p.places()); n < 1 || n > maxWorkers || len(p.Command) == 0 || p.RestartBackoff > p.RestartBackoffMax || p.DrainTimeout < time.Second {
				t.Errorf("%q: pool %+v with %d workers", file, p, n)
			}
		}
	})
}
