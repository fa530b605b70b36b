package harness

import (
	"bytes"
	"sync"
)

// buffer keeps what is written to it; several goroutines may use it.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// Lines returns a writer that calls each with every whole line, without its line end. An incomplete
// last line is left out: its process was killed while it wrote. Only one goroutine may write.
func Lines(each func(line string)) *LineWriter { return &LineWriter{each: each} }

// LineWriter is what Lines returns.
type LineWriter struct {
	each func(string)
	rest []byte
}

func (w *LineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		w.each(string(line))
		w.rest = rest
	}
}
