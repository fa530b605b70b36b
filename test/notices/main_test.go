package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Everything that is compiled into the command has its licence among the notices: a new dependency
// without one makes this test fail, not a release.
func TestNoticesOfTheCommand(t *testing.T) {
	parts, err := linked("github.com/lessor-dev/lessor/cmd/lessor")
	if err != nil {
		t.Fatal(err)
	}
	text, err := notices(parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(parts, part{name: "Go go1"}, part{name: "google.golang.org/grpc v1"}, part{name: "go.etcd.io/bbolt v1"}) {
		if !strings.Contains(string(text), "\n"+p.name) {
			t.Errorf("nothing about %s", p.name)
		}
	}
	if strings.Contains(string(text), "go.uber.org/goleak") {
		t.Error("it names a module that only tests use")
	}
}

// A part has the texts of its root and of the packages that are compiled in, and no others. Equal
// texts are there once. A part without any is an error.
func TestNoticesOfParts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/LICENSE": "terms", "a/NOTICE.txt": "made by a", "a/in/x/Licence.md": "terms of x", "a/out/LICENSE": "terms of out", "a/in/x/license.go": "package x",
		"b/COPYING": "terms", "c/main.go": "package c",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := part{
		name: "a v1", root: filepath.Join(dir, "a"),
		dirs: []string{filepath.Join(dir, "a/in/x"), filepath.Join(dir, "a/in")},
	}
	b := part{name: "b v2", root: filepath.Join(dir, "b"), dirs: []string{filepath.Join(dir, "b")}}
	text, err := notices([]part{a, b})
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("=", 80) + "\n\n"
	want := line + "a v1: LICENSE\nb v2: COPYING\n\nterms\n\n" + line + "a v1: NOTICE.txt\n\nmade by a\n\n" + line + "a v1: in/x/Licence.md\n\nterms of x\n\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if text, err := notices([]part{a, {name: "c v3", root: filepath.Join(dir, "c")}}); err == nil {
		t.Errorf("c has no licence, and the notices are\n%s", text)
	}
}
