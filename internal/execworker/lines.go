package execworker

import (
	"bytes"
	"io"
)

// maxLine is the longest line that is held back until it is complete, in bytes.
const maxLine = 64 << 10

// lineWriter passes on whole lines, so that the lines of commands that run at the same time do not mix.
type lineWriter struct {
	to  io.Writer
	buf []byte
}

// Write holds back what follows the last newline.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	end := bytes.LastIndexByte(l.buf, '\n') + 1
	if len(l.buf)-end > maxLine {
		end = len(l.buf)
	}
	if end > 0 {
		l.write(end)
	}
	return len(p), nil
}

// flush hands on an unfinished last line, finished.
func (l *lineWriter) flush() {
	if len(l.buf) > 0 {
		l.buf = append(l.buf, '\n')
		l.write(len(l.buf))
	}
}

// write passes on the first n bytes. An error is ignored: that the command runs matters more than what it prints here.
func (l *lineWriter) write(n int) {
	_, _ = l.to.Write(l.buf[:n])
	l.buf = append(l.buf[:0], l.buf[n:]...)
}
