package pool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// Each line has the worker before it, however the writes cut it; one that has not ended is printed
// at the end.
func TestOutputIsPrintedByLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, test := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"a\n"}, "> a\n"},
		{[]string{"a\nb\n\nc\n"}, "> a\n> b\n> \n> c\n"},
		{[]string{"a", "b", "\n", "c\nd", "e"}, "> ab\n> c\n> de\n"},
		{[]string{"unfinished"}, "> unfinished\n"},
		{[]string{"", "a\r\n", "\xff\x00\n"}, "> a\r\n> \xff\x00\n"},
		{[]string{long, "\n"}, "> " + long + "\n"},
		{[]string{long, "y\n"}, "> " + long + "y\n"}, // its end is there, and need not wait
		{[]string{"a", long + long + "b"}, "> a" + long[1:] + "\n> x" + long[1:] + "\n> xb\n"},
	} {
		var out bytes.Buffer
		l := &lines{out: newOutput(&out), prefix: "> "}
		for _, text := range test.writes {
			if n, err := io.WriteString(l, text); n != len(text) || err != nil {
				t.Errorf("wrote %d bytes of %d (%v)", n, len(text), err)
			}
			if len(l.rest) > maxLine {
				t.Errorf("%d bytes wait for the end of the line, want at most %d", len(l.rest), maxLine)
			}
		}
		l.end()
		l.end() // has nothing left to print
		if out.String() != test.want {
			t.Errorf("%.80q is printed as %.80q (%d bytes), want %.80q (%d)",
				test.writes, out.String(), out.Len(), test.want, len(test.want))
		}
	}
}

// What a finished process leaves behind is not printed with what the next one says.
func TestOutputOfTheNextProcess(t *testing.T) {
	var out bytes.Buffer
	l := &lines{out: newOutput(&out), prefix: "> "}
	for range 2 {
		_, _ = io.WriteString(l, "line\nrest")
		l.end()
	}
	if want := strings.Repeat("> line\n> rest\n", 2); out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// Lines of different workers do not mix.
func TestOutputOfManyWorkers(t *testing.T) {
	const workers, count = 4, 100
	var out bytes.Buffer
	shared := newOutput(&out)
	var all sync.WaitGroup
	for i := range workers {
		l := &lines{out: shared, prefix: fmt.Sprint(i, " ")}
		all.Go(func() {
			for range count {
				_, _ = io.WriteString(l, "says ")
				_, _ = io.WriteString(l, "this\n")
			}
		})
	}
	all.Wait()
	for i := range workers {
		if n := strings.Count("\n"+out.String(), fmt.Sprintf("\n%d says this", i)); n != count {
			t.Errorf("%d lines of worker %d, want %d", n, i, count)
		}
	}
}

// fullDisk is a writer that fails.
type fullDisk struct{ writes int }

func (f *fullDisk) Write([]byte) (int, error) {
	f.writes++
	return 0, errors.New("no space left on device")
}

// A process may go on printing when nobody takes its output.
func TestOutputThatFails(t *testing.T) {
	disk := &fullDisk{}
	l := &lines{out: newOutput(disk)}
	for range 2 {
		if n, err := io.WriteString(l, "line\n"); n != 5 || err != nil {
			t.Errorf("wrote %d bytes (%v), want 5", n, err)
		}
	}
	if disk.writes != 2 {
		t.Errorf("%d writes, want 2: there may be space again", disk.writes)
	}
}
