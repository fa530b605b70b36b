package runner

import (
	"fmt"
	"io"
	"sync"
)

// Screen is where a run writes: outputs to out, everything for people to err. It removes the
// progress bar while it writes, so that the bar does not mix with either. Its methods are safe for
// concurrent use. Unless out and err are the same, outputs do not wait for an err that nobody
// takes: it may have no more than a log.
type Screen struct {
	out, err io.Writer
	same     Sharing

	outMu  sync.Mutex
	broken bool // an output could not be written

	mu  sync.Mutex // locked after outMu
	bar string
	// midLine is true if the last output did not end its line on the terminal.
	midLine bool
}

// Sharing says whether out and err of a screen are the same.
type Sharing int

// How out and err of a screen may be shared.
const (
	Apart        Sharing = iota
	SameFile             // nothing must be written into the middle of an output
	SameTerminal         // it also shows the bar
)

// NewScreen returns a screen.
func NewScreen(out, err io.Writer, same Sharing) *Screen {
	return &Screen{out: out, err: err, same: same}
}

// outputFailed reports whether an output could not be written. If more were written, there would be
// a gap.
func (s *Screen) outputFailed() bool {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	return s.broken
}

// output calls write with out.
func (s *Screen) output(write func(io.Writer) error) (err error) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	defer func() { s.broken = s.broken || err != nil }()
	if s.same != Apart {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	if s.same != SameTerminal {
		return write(s.out)
	}
	s.hideLocked()
	last := &lastByte{to: s.out}
	err = write(last)
	if last.any {
		s.midLine = last.byte != '\n'
	}
	s.showLocked()
	return err
}

// Write writes whole lines to err.
func (s *Screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideLocked()
	if s.midLine {
		s.drawLocked("\n")
		s.midLine = false
	}
	defer s.showLocked()
	return s.err.Write(lines)
}

// Note writes one line to err.
func (s *Screen) Note(format string, args ...any) {
	_, _ = fmt.Fprintf(s, format+"\n", args...)
}

// setBar shows text as the progress bar; an empty text removes the bar.
func (s *Screen) setBar(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == s.bar {
		return
	}
	s.hideLocked()
	s.bar = text
	s.showLocked()
}

// hideLocked clears the bar's line.
func (s *Screen) hideLocked() {
	if s.bar != "" && !s.midLine {
		s.drawLocked("\r\x1b[K")
	}
}

// showLocked draws the bar again. It does not while an output has not ended its line, because the
// bar would be drawn into that line.
func (s *Screen) showLocked() {
	if s.bar != "" && !s.midLine {
		s.drawLocked(s.bar)
	}
}

// drawLocked writes to err and ignores errors.
func (s *Screen) drawLocked(text string) { _, _ = io.WriteString(s.err, text) }

// lastByte remembers the last byte that was written.
type lastByte struct {
	to   io.Writer
	any  bool
	byte byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.any, l.byte = true, p[len(p)-1]
	}
	return l.to.Write(p)
}
