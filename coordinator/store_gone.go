package coordinator

import (
	"sync"
	"time"
)

// storeGone is what is wrong while StoreGone says so. What is acknowledged goes into a file that a start would not find; one that was removed ends with the process.
const storeGone = "the file of the store was moved or removed; what is acknowledged now, a start would not find: take a backup, then stop the coordinator"

// placeEvery is how often the file of the store is looked for.
const placeEvery = time.Second

// watchPlace tells in the log when the file of the store is not in its place any more, and when it is there again. stop ends that.
func (c *Coordinator) watchPlace() (stop func()) {
	if c.cfg.StoreGone == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(placeEvery)
		defer tick.Stop()
		for was := false; ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			gone := c.cfg.StoreGone()
			switch {
			case gone && !was:
				c.cfg.Logger.Error(storeGone)
			case was && !gone:
				c.cfg.Logger.Info("the file of the store is in its place again")
			}
			was = gone
		}
	})
	return func() {
		close(ended)
		watch.Wait()
	}
}
