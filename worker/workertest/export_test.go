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
