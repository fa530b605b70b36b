package workertest

import "time"

// RestartAfter stops the coordinator and starts it again after a time.
func (c *Coordinator) RestartAfter(away time.Duration) {
	c.shutdown()
	time.Sleep(away)
	c.store = c.store.Reopen()
	c.serve()
}
