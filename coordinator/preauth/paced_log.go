package preauth

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// tellInterval is how often the log tells of one kind of event. Anybody can cause them at any rate.
const tellInterval = 10 * time.Second

// pacedLog logs some of the events that anybody can cause. At level debug it logs all.
type pacedLog struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[event]told
}

// event is what counts as the same: the message and the kind.
type event struct{ message, kind string }

type told struct {
	at      time.Time
	leftOut uint64 // since then
}

func newPacedLog(log *slog.Logger) *pacedLog { return &pacedLog{log: log, told: map[event]told{}} }

// tell logs an event if it is the first of its kind for a while, with how many before it were left
// out.
func (p *pacedLog) tell(level slog.Level, message, kind string, attrs ...slog.Attr) {
	leftOut, tell := p.turn(event{message, kind})
	if !tell {
		level = slog.LevelDebug
	}
	if tell && leftOut > 0 {
		attrs = append(attrs, slog.Uint64("left_out", leftOut))
	}
	p.log.LogAttrs(context.Background(), level, message, attrs...)
}

// turn reports whether the log should tell of an event, and how many before it were left out.
func (p *pacedLog) turn(e event) (leftOut uint64, tell bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.told[e]
	now := time.Now()
	if !last.at.IsZero() && now.Sub(last.at) < tellInterval {
		last.leftOut++
		p.told[e] = last
		return 0, false
	}
	p.told[e] = told{at: now}
	return last.leftOut, true
}
