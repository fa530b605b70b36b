package execworker

import (
	"bytes"
	"io"
)

// maxLine is how many bytes of an unfinished line a lineWriter holds back.
const maxLine = 64 << 10

// lineWriter passes on whole lines, so that the lines of commands that run at the same time do not
// mix.
type lineWriter struct {
	to  io.Writer
	buf []byte
}

// Write passes on the whole lines, and holds back the text after the last newline.
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

// flush passes on an unfinished last line with a newline.
func (l *lineWriter) flush() {
	if len(l.buf) > 0 {
		l.buf = append(l.buf, '\n')
		l.write(len(l.buf))
	}
}

// write passes on the first n bytes. It ignores errors: a broken log must not stop the command.
func (l *lineWriter) write(n int) {
	_, _ = l.to.Write(l.buf[:n])
	l.buf = append(l.buf[:0], l.buf[n:]...)
}
