package runner

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func linesOf(t *testing.T, text string, nulls bool) []string {
	t.Helper()
	var lines []string
	r := newLineReader(iotest.OneByteReader(strings.NewReader(text)), nulls)
	for {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
}

func TestLinesAreReadAsXargsReadsThem(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		nulls bool
		want  []string
	}{
		"nothing":             {"", false, nil},
		"lines":               {"a\nb c\n", false, []string{"a", "b c"}},
		"last without end":    {"a\nb", false, []string{"a", "b"}},
		"empty ones are none": {"\n\na\n\nb\n\n", false, []string{"a", "b"}},
		"blanks are kept":     {" a \n\t\n", false, []string{" a ", "\t"}},
		"NUL":                 {"a\nb\x00c\x00", true, []string{"a\nb", "c"}},
		"NUL keeps empty":     {"\x00a\x00\x00", true, []string{"", "a", ""}},
	} {
		if got := linesOf(t, test.text, test.nulls); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestLongestLineIsReadAndALongerOneRefused(t *testing.T) {
	longest := strings.Repeat("x", MaxLine)
	if got := linesOf(t, "a\n"+longest+"\n", false); len(got) != 2 || len(got[1]) != MaxLine {
		t.Errorf("got %d lines, want 2, the second with %d bytes", len(got), MaxLine)
	}
	for _, text := range []string{"a\n" + longest + "x\n", "a\n" + longest + "x", "a\n" + longest + longest} {
		_, err := copyInput(filepath.Join(t.TempDir(), "input"), strings.NewReader(text), false)
		var tooLong *LineTooLongError
		if !errors.As(err, &tooLong) || tooLong.Line != 2 {
			t.Errorf("error %v, want that line 2 is too long", err)
		}
	}
}

func TestInputIsCopiedAndHashed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "input")
	a, err := copyInput(path, strings.NewReader("a\n\nb"), false)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "a\nb\n" || a.Lines != 2 {
		t.Errorf("copied %q, %d lines, want %q, 2 lines", got, a.Lines, "a\nb\n")
	}
	for text, same := range map[string]bool{"a\nb\n": true, "b\na\n": false, "ab\n": false, "a\nb\nb\n": false} {
		b, err := copyInput(path, strings.NewReader(text), false)
		if err != nil || (b == a) != same {
			t.Errorf("%q: input %v, %v; want the same as %v: %t", text, b, err, a, same)
		}
	}
}
