package bench

import (
	"context"
	"time"
)

// patience is how long a run that was stopped waits for each of these: that its workers give their
// tasks back, and that the coordinator answers a call that deletes tasks.
const patience = 5 * time.Second

// patient returns a context for what has to be done even if ctx ends. It ends when that takes
// longer than patience from then on, or with Kill.
func (c *Config) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	more, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer end()
		select {
		case <-ctx.Done():
		case <-more.Done():
			return
		}
		select {
		case <-time.After(patience):
		case <-c.Kill:
		case <-more.Done():
		}
	}()
	return more, end
}
