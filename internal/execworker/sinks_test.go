package execworker

import (
	"strings"
	"testing"
)

func TestTailKeepsTheLastLine(t *testing.T) {
	for name, test := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":         {nil, ""},
		"blank":           {[]string{"\n\n \n"}, ""},
		"one":             {[]string{"oops"}, "oops"},
		"blanks at end":   {[]string{"a\nb\n\n  \n"}, "b"},
		"in pieces":       {[]string{"first\nsec", "ond\n"}, "second"},
		"after very much": {[]string{strings.Repeat("x", 3*tailBytes), "\nend\n"}, "end"},
		"not UTF-8":       {[]string{"a\nb\xffc"}, "b\uFFFDc"},
	} {
		var tail tail
		for _, s := range test.writes {
			_, _ = tail.Write([]byte(s))
		}
		if got := tail.lastLine(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if len(tail.buf) > tailBytes {
			t.Errorf("%s: the tail holds %d bytes, want at most %d", name, len(tail.buf), tailBytes)
		}
	}
}

// writes records what each call of Write was given.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

func TestLineWriterWritesWholeLines(t *testing.T) {
	var got writes
	l := &lineWriter{to: &got}
	for _, s := range []string{"a", "b\nc", "d\ne\nf"} {
		_, _ = l.Write([]byte(s))
	}
	l.flush()
	l.flush()
	want := []string{"ab\n", "cd\ne\n", "f\n"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLineWriterBoundsALineWithoutEnd(t *testing.T) {
	var got writes
	l := &lineWriter{to: &got}
	for range 3 {
		_, _ = l.Write([]byte(strings.Repeat("x", maxLine)))
	}
	if len(got) == 0 || len(l.buf) > maxLine {
		t.Errorf("%d bytes are held back after %d writes, want at most %d after at least 1", len(l.buf), len(got), maxLine)
	}
}
