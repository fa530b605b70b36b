package quota

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Pacer limits the rate of events that should be rare, separately for each of many keys: each event
// gets a turn, which may be in the future. It is safe for concurrent use.
type Pacer struct {
	rate Rate
	most time.Duration

	mu    sync.Mutex
	debts map[string]Debt
	swept time.Time // when keys that owe nothing were last removed
}

// Bounds of the keys that a pacer remembers. From fewKeys on it removes keys that owe nothing.
// Beyond mostKeys all further keys share one.
const (
	fewKeys    = 4096
	mostKeys   = 65536
	sweepEvery = time.Second
)

// NewPacer returns a pacer of rate r, which gives no turn that is further away than most.
func NewPacer(r Rate, most time.Duration) *Pacer {
	return &Pacer{rate: r, most: most, debts: map[string]Debt{}}
}

// Turn takes the next turn of a key and returns the time until that turn. If this time would be too
// long, ok is false and no turn is taken; wait is then the time until the turn would have come.
func (p *Pacer) Turn(key string) (wait time.Duration, ok bool) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	key = p.known(key, now)
	if wait = p.rate.wait(p.debts[key], now, 1); wait > p.most {
		return wait, false
	}
	p.debts[key] = p.rate.take(p.debts[key], now, 1)
	return wait, true
}

// known returns the key under which the turns of key are remembered.
func (p *Pacer) known(key string, now time.Time) string {
	if _, ok := p.debts[key]; ok {
		return key
	}
	if len(p.debts) >= fewKeys && now.Sub(p.swept) >= sweepEvery {
		maps.DeleteFunc(p.debts, func(_ string, d Debt) bool { return d.Owed(now) == 0 })
		p.swept = now
	}
	if len(p.debts) >= mostKeys {
		return ""
	}
	return key
}

// Pause sleeps for wait, or until ctx ends.
func Pause(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}
