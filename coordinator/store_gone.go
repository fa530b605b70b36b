package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// storeGone is the log and readiness message while Config.StoreGone returns true. Changes acknowledged in this time go into a file that the next start
// does not find. A removed file disappears when the process ends.
const storeGone = "the file of the store was moved or removed; changes acknowledged from now on are lost at the next start: take a backup, then stop the coordinator"

// storeCheckInterval is how often the store is checked, and StoreGone is called.
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

// untilStoreFails returns when the store has failed, or ctx is done. A read or the check after a start may have found damage. The engine would only learn of
// that from its next commit, and an idle one makes none. Once the engine is told to stop, its last commit returns why the store has failed.
func (c *Coordinator) untilStoreFails(ctx context.Context) error {
	tick := time.NewTicker(storeCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := c.edge.store.View(func(store.Reader) error { return nil })
		if errors.As(err, new(*store.CommitError)) {
			return nil
		}
	}
}
