package quota

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Pacer lets something that should be rare happen one at a time for each of many keys, however often it is asked for. It is safe for concurrent
// use.
type Pacer struct {
	rate Rate
	most time.Duration

	mu    sync.Mutex
	paid  map[string]time.Time
	swept time.Time // when those that owe nothing were last looked for
}

// Bounds of the keys that a pacer remembers. Beyond the second all others share one.
const (
	fewKeys    = 4096
	mostKeys   = 65536
	sweepEvery = time.Second
)

// NewPacer makes a pacer of turns that are at most so far away.
func NewPacer(r Rate, most time.Duration) *Pacer {
	return &Pacer{rate: r, most: most, paid: map[string]time.Time{}}
}

// Turn takes the next turn of a key and tells how far it is away; ok is false where that is too far: then none was taken, and wait is how long it takes
// until one is at hand.
func (p *Pacer) Turn(key string) (wait time.Duration, ok bool) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	key = p.known(key, now)
	if wait = p.rate.wait(p.paid[key], now, 1); wait > p.most {
		return wait, false
	}
	p.paid[key] = p.rate.take(p.paid[key], now, 1)
	return wait, true
}

// known is the key by which turns are remembered.
func (p *Pacer) known(key string, now time.Time) string {
	if _, ok := p.paid[key]; ok {
		return key
	}
	if len(p.paid) >= fewKeys && now.Sub(p.swept) >= sweepEvery {
		maps.DeleteFunc(p.paid, func(_ string, paid time.Time) bool { return !paid.After(now) })
		p.swept = now
	}
	if len(p.paid) >= mostKeys {
		return ""
	}
	return key
}

// Pause waits for a turn that is that far away, or until ctx ends.
func Pause(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}
