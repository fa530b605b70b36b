package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
)

// A file is either accepted, or refused with an error that names a problem and a line of the file.
func FuzzFile(f *testing.F) {
	for _, file := range []string{
		"addr: x\n", "worker: {run: {queue: [a, b], wait: 1m, label: {a: b}, loud: true}}\n", "serve: {size: 0x10}\n", "a: &a [*a]\n", "worker: &w\n  run: *w\n",
		"? [a, b]\n: c\n", "<<: {addr: x}\naddr: y\n", "addr: !!binary aGk=\n", "---\naddr: a\n---\naddr: b\n", "worker:\n  run:\n    queue: !!set {a, b}\n", "\xff\xfe",
		"serve:\n  size: 99999999999999999999\n", "?", "addr: \"\\0\"\n",
	} {
		f.Add([]byte(file))
	}
	name := filepath.Join(f.TempDir(), "lessor.yaml")
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"get"}, {"serve"}, {"worker", "run"}} {
			g := &testFlags{}
			parser, err := kong.New(g, Environment("LESSOR"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = parser.Parse(append([]string{"--config", name}, args...))
			if err == nil {
				continue
			}
			broken := (*Error)(nil)
			// A value that is left out may begin on the line after the last.
			if !errors.As(err, &broken) || broken.Problem == "" || broken.Line < 0 || broken.Line > bytes.Count(file, []byte("\n"))+bytes.Count(file, []byte("\r"))+2 {
				t.Errorf("%q: the error %v names no problem, or a line that the file does not have", file, err)
			}
		}
	})
}
