package pool

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is how much of a line waits for its end. A longer line is printed in pieces, each with the name of the worker.
const maxLine = 64 << 10

// output prints the lines of all workers, one at a time.
type output struct {
	mu sync.Mutex
	to io.Writer
}

// lines prints what is written to it, line by line, with a prefix before each.
type lines struct {
	out    *output
	prefix string
	rest   []byte // of a line that has not ended
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
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	_, _ = l.out.to.Write(append(append([]byte(l.prefix), line...), '\n'))
}
