package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// tests holds the results of all tests of a stream.
type tests struct {
	declared map[string][]string // by rule, the names of the tests that declared it
	void     map[string]bool     // names of tests that do not count: skipped, partly skipped, or failed
	passed   map[string]bool
	failed   []string          // tests and packages; also tests that did not end, of a package that failed
	output   map[string][]byte // of tests that failed or have not ended
}

// event is a line of `go test -json`, with the fields that are used here.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that does not build
	Test       string
	Elapsed    float64
	Key, Value string // of an attribute
	Output     string
}

// module is the prefix of all package names; it is left out in the output.
const module = "github.com/lessor-dev/lessor/"

func (e *event) name() string {
	return strings.TrimSpace(strings.TrimPrefix(e.Package+e.ImportPath, module) + " " + e.Test)
}

// attribute is the key by which a test declares its rules.
const attribute = "rules"

// readTests reads the stream to its end, and prints meanwhile which packages have passed, and what
// tests have printed that failed.
func readTests(stream io.Reader, out io.Writer) (*tests, error) {
	t := &tests{
		declared: map[string][]string{}, void: map[string]bool{}, passed: map[string]bool{},
		output: map[string][]byte{},
	}
	for lines := json.NewDecoder(stream); ; {
		var e event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return t, nil
		case err != nil:
			return nil, fmt.Errorf("not the output of go test -json: %w", err)
		}
		told := len(t.failed)
		t.take(&e)
		for _, name := range t.failed[told:] {
			fmt.Fprintf(out, "%s", t.output[name])
		}
		if e.Action == "pass" && e.Test == "" {
			fmt.Fprintf(out, "ok   %-40s %.1fs\n", e.name(), e.Elapsed)
		}
	}
}

func (t *tests) take(e *event) {
	switch name := e.name(); e.Action {
	case "attr":
		if e.Key == attribute {
			t.declare(e)
		}
	case "output", "build-output":
		t.output[name] = append(t.output[name], e.Output...)
	case "pass":
		t.passed[name] = true
		delete(t.output, name)
	case "skip":
		t.discount(e)
		delete(t.output, name)
	case "fail", "build-fail":
		t.discount(e)
		if e.Test == "" {
			t.failed = append(t.failed, t.unended(name)...)
		}
		t.failed = append(t.failed, name)
	}
}

// unended returns the tests of a failed package that have not ended: one of them ended the process.
func (t *tests) unended(pkg string) (names []string) {
	for name := range t.output {
		if strings.HasPrefix(name, pkg+" ") && !slices.Contains(t.failed, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (t *tests) declare(e *event) {
	for _, id := range strings.Fields(e.Value) {
		if !slices.Contains(t.declared[id], e.name()) {
			t.declared[id] = append(t.declared[id], e.name())
		}
	}
}

// discount takes a test, and the tests above it, out of the count.
func (t *tests) discount(e *event) {
	for test := e.Test; test != ""; test = test[:max(0, strings.LastIndexByte(test, '/'))] {
		above := event{Package: e.Package, Test: test}
		t.void[above.name()] = true
	}
}

// of returns the names of the tests that checked a rule, sorted.
func (t *tests) of(id string) []string {
	var names []string
	for _, name := range t.declared[id] {
		if t.passed[name] && !t.void[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
