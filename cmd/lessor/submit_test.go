package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A forgotten --payload @- is noticed by what waits in standard input. That must be left there, and
// an open pipe must not be waited for: both may belong to a script.
func TestHasUnread(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	pipe := func(text string, end bool) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if end {
			_ = w.Close()
		}
		return r
	}
	atEnd := open(name)
	if _, err := atEnd.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	linux := runtime.GOOS == "linux"
	for _, c := range []struct {
		name string
		in   *os.File
		want bool
	}{
		{"a file", open(name), true},
		{"the end of a file", atEnd, false},
		{"a directory", open(filepath.Dir(name)), false},
		{"nothing", open(os.DevNull), false},
		{"a pipe with text", pipe("text", false), linux},
		{"a pipe with text and an end", pipe("text", true), linux},
		{"an open pipe", pipe("", false), false},
		{"a pipe that has ended", pipe("", true), false},
	} {
		if got := hasUnread(c.in); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
		if !c.want {
			continue
		}
		if text := make([]byte, 4); linux {
			if _, err := io.ReadFull(c.in, text); err != nil || string(text) != "text" {
				t.Errorf("%s has %q (%v) left, want all of it", c.name, text, err)
			}
		}
	}
	if hasUnread(nil) {
		t.Error("no file has something unread")
	}
}
