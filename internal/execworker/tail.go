package execworker

import (
	"bytes"
	"strings"
)

// tailBytes is how much of standard error is reported with a failure.
const tailBytes = 8 << 10

// tail keeps the end of what is written to it.
type tail struct{ buf []byte }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[max(0, len(p)-tailBytes):]...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// lastLine returns the last line that is not blank, or "" if there is none.
func (t *tail) lastLine() string {
	text := bytes.TrimSpace(t.buf)
	return strings.ToValidUTF8(string(bytes.TrimSpace(text[bytes.LastIndexByte(text, '\n')+1:])), "\uFFFD")
}

// lastLines returns the last lines that fit into limit bytes; of a longer last line, its end.
func (t *tail) lastLines(limit int) string {
	text := strings.ToValidUTF8(string(bytes.TrimSpace(t.buf)), "\uFFFD")
	if len(text) <= limit {
		return text
	}
	rest := text[len(text)-limit:]
	if end := strings.IndexByte(rest, '\n'); end >= 0 && text[len(text)-limit-1] != '\n' {
		rest = rest[end+1:]
	}
	return strings.ToValidUTF8(rest, "")
}
