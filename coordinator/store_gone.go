package coordinator

import "time"

// storeGone is the log and readiness message while Config.StoreGone returns true. Changes acknowledged in this time go into a file that the next start
// does not find. A removed file disappears when the process ends.
const storeGone = "the file of the store was moved or removed; changes acknowledged from now on are lost at the next start: take a backup, then stop the coordinator"

// storeCheckInterval is how often StoreGone is called.
const storeCheckInterval = time.Second

// watchStoreFile logs when the file of the store was moved or removed, and when the file is back in its place, until stop is called.
func (c *Coordinator) watchStoreFile() (stop func()) {
	if c.cfg.StoreGone == nil {
		return func() {}
	}
	was := false
	return every(storeCheckInterval, func() {
		gone := c.cfg.StoreGone()
		switch {
		case gone && !was:
			c.cfg.Logger.Error(storeGone)
		case was && !gone:
			c.cfg.Logger.Info("the file of the store is back in its place")
		}
		was = gone
	})
}
