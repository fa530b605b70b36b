package workertest

import "time"

// RestartAfter is Restart with a coordinator that is away for a while.
func (c *Coordinator) RestartAfter(away time.Duration) {
	c.shutdown()
	time.Sleep(away)
	c.store = c.store.Reopen()
	c.serve()
}
