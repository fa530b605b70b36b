package coordinator

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/lessor-dev/lessor/coordinator/quota"
)

// logRate is how many lines with the same message the log gets. A large fleet that restarts stays
// below it.
var logRate = quota.Rate{PerSecond: 10, Burst: 1000}

// pacedLog leaves lines out of the log if there are more with the same message than logRate allows:
// whoever may make calls can cause refusals, bad frames and short sessions at any rate, and they
// must not fill the disk. The next line with the message says how many were left out. At level
// debug nothing is left out.
type pacedLog struct {
	slog.Handler
	pace *logPace
}

// logPace is shared by the loggers that are derived from one.
type logPace struct {
	pacer *quota.Pacer

	mu      sync.Mutex
	leftOut map[string]uint64 // since the last line with the message
}

// paced returns a logger that leaves lines out, as pacedLog says.
func paced(log *slog.Logger) *slog.Logger {
	return slog.New(pacedLog{log.Handler(), &logPace{pacer: quota.NewPacer(logRate, 0), leftOut: map[string]uint64{}}})
}

// Handle implements slog.Handler.
func (h pacedLog) Handle(ctx context.Context, line slog.Record) error {
	if h.Enabled(ctx, slog.LevelDebug) {
		return h.Handler.Handle(ctx, line)
	}
	leftOut, ok := h.pace.admit(line.Message)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		line = line.Clone()
		line.AddAttrs(slog.Uint64("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h pacedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return pacedLog{h.Handler.WithAttrs(attrs), h.pace}
}

// WithGroup implements slog.Handler.
func (h pacedLog) WithGroup(name string) slog.Handler {
	return pacedLog{h.Handler.WithGroup(name), h.pace}
}

// admit reports whether a line may be written, and how many with the same message were left out
// before it. Messages are constants, except those of net/http, which all begin with "http:".
func (p *logPace) admit(message string) (leftOut uint64, ok bool) {
	text, _, _ := strings.Cut(message, ":")
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.pacer.Turn(text); !ok {
		p.leftOut[text]++
		return 0, false
	}
	leftOut = p.leftOut[text]
	delete(p.leftOut, text)
	return leftOut, true
}
