package pool

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// logPatience is how long a line of the log may take.
const logPatience = time.Second

// patient is a handler for a log that perhaps nobody takes, such as a pipe into a pager: a supervisor still has to supervise then. While a line takes longer
// than logPatience, others are dropped and counted.
type patient struct {
	slog.Handler
	*shared
}

// shared is what the handlers of one log have in common.
type shared struct {
	turn    chan struct{} // who puts an element in may write
	stuck   atomic.Bool   // the line that is being written takes too long
	dropped atomic.Int64
}

func newPatient(log *slog.Logger) *slog.Logger {
	return slog.New(patient{log.Handler(), &shared{turn: make(chan struct{}, 1)}})
}

// Handle implements slog.Handler.
func (p patient) Handle(ctx context.Context, r slog.Record) error {
	if !p.take() {
		p.dropped.Add(1)
		return nil
	}
	written := make(chan error, 1)
	go func() {
		defer func() { <-p.turn }()
		if n := p.dropped.Swap(0); n > 0 {
			lost := slog.NewRecord(time.Now(), slog.LevelWarn, "the log was not taken; lines are missing", 0)
			lost.Add("lines", n)
			_ = p.Handler.Handle(ctx, lost)
		}
		err := p.Handler.Handle(ctx, r)
		p.stuck.Store(false)
		written <- err
	}()
	late := time.NewTimer(logPatience)
	defer late.Stop()
	select {
	case err := <-written:
		return err
	case <-late.C:
		p.stuck.Store(true)
		return nil
	}
}

// take takes a turn, or returns false if none comes.
func (p patient) take() bool {
	select {
	case p.turn <- struct{}{}:
		return true
	default:
	}
	if p.stuck.Load() {
		return false
	}
	late := time.NewTimer(logPatience)
	defer late.Stop()
	select {
	case p.turn <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// WithAttrs implements slog.Handler.
func (p patient) WithAttrs(attrs []slog.Attr) slog.Handler {
	return patient{p.Handler.WithAttrs(attrs), p.shared}
}

// WithGroup implements slog.Handler.
func (p patient) WithGroup(name string) slog.Handler {
	return patient{p.Handler.WithGroup(name), p.shared}
}
