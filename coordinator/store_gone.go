package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// storeGone is the log and readiness message while Config.StoreGone returns true. What is committed
// in this time goes into a file that the next start does not find. A removed file disappears when
// the process ends.
const storeGone = "the file of the store was moved or removed: no tasks are accepted or granted, and what running ones report is lost at the next start; " +
	"take a backup, then stop the coordinator"

// storeCheckInterval is how often the store is checked, and Config.StoreGone is called.
const storeCheckInterval = time.Second

// storeFile notices when the file of the store was moved or removed, and when it is back in its
// place. Meanwhile no tasks are accepted or granted, and the log says so. Running tasks may report:
// a backup has what they report, while a refusal would have them run again.
type storeFile struct {
	check func() bool // Config.StoreGone
	log   *slog.Logger
	gone  atomic.Bool // what look found last
}

func (f *storeFile) look() {
	gone := f.check()
	was := f.gone.Swap(gone)
	switch {
	case gone && !was:
		f.log.Error(storeGone)
	case was && !gone:
		f.log.Info("the file of the store is back in its place")
	}
}

// untilStoreFails returns when the store has failed, or ctx is done. A read or the check after a
// start may have found damage. The engine would only learn of that from its next commit, and an
// idle one makes none. Once the engine is told to stop, its last commit returns why the store has
// failed.
func (c *Coordinator) untilStoreFails(ctx context.Context) error {
	tick := time.NewTicker(storeCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := c.feed.View(func(store.Reader) error { return nil })
		if errors.As(err, new(*store.CommitError)) {
			return nil
		}
	}
}
