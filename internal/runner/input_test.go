package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
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
		"CR is kept":          {"a\r\nb\r\n", false, []string{"a\r", "b\r"}},
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
	for text, rest := range map[string]error{
		"a\n" + longest + "x\n":   io.EOF,
		"a\n" + longest + "x":     io.EOF,
		"a\n" + longest + longest: errors.New("a line without an end is not read on"),
	} {
		input := io.MultiReader(strings.NewReader(text), iotest.ErrReader(rest))
		_, err := copyInput(t.Context(), filepath.Join(t.TempDir(), "input"), input, false)
		var tooLong *LineTooLongError
		if !errors.As(err, &tooLong) || tooLong.Line != 2 {
			t.Errorf("error %v, want that line 2 is too long", err)
		}
	}
}

func TestALineWithANULIsRefused(t *testing.T) {
	for _, text := range []string{"a\nb\x00c\n", "a\n\x00", "a\n\x00" + strings.Repeat("x", 2*MaxLine)} {
		_, err := copyInput(t.Context(), filepath.Join(t.TempDir(), "input"), strings.NewReader(text), false)
		var nul *NULError
		if !errors.As(err, &nul) || nul.Line != 2 {
			t.Errorf("error %v, want that line 2 contains a NUL byte", err)
		}
	}
}

func TestInputIsCopiedAndHashed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "input")
	a, err := copyInput(t.Context(), path, strings.NewReader("a\n\nb"), false)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "a\nb\n" || a.Lines != 2 {
		t.Errorf("copied %q, %d lines, want %q, 2 lines", got, a.Lines, "a\nb\n")
	}
	for text, same := range map[string]bool{"a\nb\n": true, "b\na\n": false, "ab\n": false, "a\nb\nb\n": false} {
		b, err := copyInput(t.Context(), path, strings.NewReader(text), false)
		if err != nil || (b == a) != same {
			t.Errorf("%q: input %v, %v; want the same as %v: %t", text, b, err, a, same)
		}
	}
}

// endless is an input without an end, in lines of lineBytes.
type endless struct{}

const lineBytes = 1 << 10

func (endless) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat("y", lineBytes-1)+"\n"), nil
}

// An input of which a part cannot be written is an error, even the shortest. One without an end is
// not read on then.
func TestInputIsReadUntilItCannotBeWritten(t *testing.T) {
	for _, input := range []io.Reader{endless{}, strings.NewReader("a\n")} {
		if _, err := copyLines(fullDisk{}, input, false); !errors.Is(err, errDiskFull) {
			t.Errorf("error %v, want %v", err, errDiskFull)
		}
	}
}

// A signal ends the reading of an input. If the read that is under way returns after that, it
// leaves no file: a temporary directory has been removed by then.
func TestInputLeavesNoFileAfterASignal(t *testing.T) {
	dir, stop := t.TempDir(), errors.New("a signal")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, w := io.Pipe()
		time.AfterFunc(time.Second, func() { cancel(stop) })
		if _, err := Open(ctx, dir, testOptions, r, false); !errors.Is(err, stop) {
			t.Errorf("error %v, want %v", err, stop)
		}
		if err := w.Close(); err != nil { // the end of the input
			t.Error(err)
		}
		synctest.Wait()
	})
	wantFiles(t, dir, "lock")
}
