package execworker

import (
	"bytes"
	"io"
)

// maxLine is the longest line that is held back until it is complete, in bytes.
const maxLine = 64 << 10

// lineWriter hands whole lines on, so that the lines of commands that run side by side do not mix.
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

// write hands the first n bytes on. What the command says matters less than that it runs: an error is not its failure.
func (l *lineWriter) write(n int) {
	_, _ = l.to.Write(l.buf[:n])
	l.buf = append(l.buf[:0], l.buf[n:]...)
}
