package workertest

import (
	"context"
	"time"
)

// WaitContext returns the context of calls that wait.
func (c *Coordinator) WaitContext() context.Context { return c.waitCtx }

// RestartAfter stops the coordinator and starts it again after a time.
func (c *Coordinator) RestartAfter(away time.Duration) {
	c.shutdown()
	time.Sleep(away)
	c.store = c.store.Reopen()
	c.serve()
}

// ShortenWaitLimit changes WaitLimit, of which each day takes seconds. It returns what the limit
// was.
func (c *Coordinator) ShortenWaitLimit(to time.Duration) (was time.Duration) {
	was, c.waitLimit = c.waitLimit, to
	return was
}
