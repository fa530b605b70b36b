package pool

import (
	"bytes"
	"io"
)

// maxLine is how much of a line waits for its end. A longer line is printed in pieces, each with
// the name of the worker.
const maxLine = 64 << 10

// output prints the lines of all workers, one at a time.
type output struct {
	to   io.Writer
	turn chan struct{} // who puts an element in may print
}

func newOutput(to io.Writer) *output { return &output{to: to, turn: make(chan struct{}, 1)} }

// lines prints what is written to it, line by line, with a prefix before each.
type lines struct {
	out    *output
	prefix string
	rest   []byte // of a line that has not ended
	// late: once closed, no line is waited for, because the process has ended, and nobody takes
	// what it has said.
	late <-chan struct{}
}

// Write never fails: a supervisor whose output nobody takes any more still has to supervise.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		l.print(append(l.rest, p[:i]...))
		l.rest, p = l.rest[:0], p[i+1:]
	}
	for len(l.rest)+len(p) > maxLine {
		take := maxLine - len(l.rest)
		l.print(append(l.rest, p[:take]...))
		l.rest, p = l.rest[:0], p[take:]
	}
	l.rest = append(l.rest, p...)
	return n, nil
}

// end prints a line that has not ended.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.print(l.rest)
		l.rest = nil
	}
}

func (l *lines) print(line []byte) {
	select {
	case l.out.turn <- struct{}{}:
	case <-l.late:
		return
	}
	text := append(append([]byte(l.prefix), line...), '\n')
	printed := make(chan struct{})
	go func() { // it may take forever: a pipe that nobody reads, a terminal that is held
		defer close(printed)
		defer func() { <-l.out.turn }()
		_, _ = l.out.to.Write(text)
	}()
	select {
	case <-printed:
	case <-l.late:
	}
}
