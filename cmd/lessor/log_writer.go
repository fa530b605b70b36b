package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// logRoom is how many bytes of a log may wait for being written: some thousand lines.
const logRoom = 1 << 20

// logWriter writes a log that perhaps nobody takes, such as a pipe into a pager that stands still.
// Its Write returns at once, so that nothing waits for its log: a goroutine, which runs while there
// is something to write, writes line by line. Lines that come while logRoom bytes wait are dropped
// and counted, and so are those that cannot be written; where they are missing, the log says so as
// soon as somebody takes it. All methods are safe for concurrent use.
type logWriter struct {
	to    io.Writer
	form  func(io.Writer) slog.Handler // of the log
	total atomic.Uint64                // lines dropped since the start

	mu      sync.Mutex
	waiting []byte
	dropped uint64        // after what waits
	ended   chan struct{} // closed when the goroutine ends; nil: none runs

	// Only the goroutine uses these.
	untold uint64 // lines of which the log has yet to say that they are missing
	torn   bool   // what was written last is the beginning of a line
}

func newLogWriter(to io.Writer, form func(io.Writer) slog.Handler) *logWriter {
	return &logWriter{to: to, form: form}
}

// Write takes whole lines. It never fails.
func (w *logWriter) Write(lines []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// a gap ends only where the log says so
	if w.dropped > 0 || len(w.waiting) > 0 && len(w.waiting)+len(lines) > logRoom {
		n := uint64(bytes.Count(lines, []byte("\n")))
		w.dropped += n
		w.total.Add(n)
		return len(lines), nil
	}
	w.waiting = append(w.waiting, lines...)
	if w.ended == nil {
		w.ended = make(chan struct{})
		go w.write()
	}
	return len(lines), nil
}

// write writes until nothing waits.
func (w *logWriter) write() {
	for {
		lines, dropped := w.take()
		if len(lines) == 0 {
			return
		}
		for line := range bytes.Lines(lines) { // one at a time: lines of several processes in a pipe do not mix
			if !w.tell() || !w.print(line) {
				w.untold++
				w.total.Add(1)
			}
		}
		w.untold += dropped
		w.tell()
	}
}

// take returns what waits. If it is nothing, the goroutine must end.
func (w *logWriter) take() (lines []byte, dropped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, dropped = w.waiting, w.dropped
	w.waiting, w.dropped = nil, 0
	if len(lines) == 0 {
		close(w.ended)
		w.ended = nil
	}
	return lines, dropped
}

// tell says that lines are missing, if some are. It returns false if that cannot be written.
func (w *logWriter) tell() bool {
	if w.untold == 0 {
		return true
	}
	var line bytes.Buffer
	if w.torn {
		line.WriteByte('\n')
	}
	record := slog.NewRecord(time.Now(), slog.LevelWarn,
		"lines of the log were dropped: nobody took them, or they could not be written", 0)
	record.Add("lines", w.untold)
	_ = w.form(&line).Handle(context.Background(), record)
	if !w.print(line.Bytes()) {
		return false
	}
	w.untold = 0
	return true
}

func (w *logWriter) print(line []byte) bool {
	n, err := w.to.Write(line)
	w.torn = err != nil && (n > 0 || w.torn)
	return err == nil
}

// flush waits until everything is written, but at most for patience. A nil log has nothing to
// write.
func (w *logWriter) flush(patience time.Duration) {
	if w == nil {
		return
	}
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ended == nil {
		return
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
}
