package coordinator

import (
	"log/slog"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
)

// newFeed returns the store for standbys to follow. The log tells when commits begin to wait for
// one, and when they no longer do.
func newFeed(st store.Store, o standby.Options, log *slog.Logger) (*standby.Feed, error) {
	told := o.OnWait
	o.OnWait = func(waits bool) {
		if waits {
			log.Info("everything that is acknowledged is on a standby, too")
		} else {
			log.Warn("no standby keeps up: what is acknowledged may be on this machine only", "standby_wait", o.Wait)
		}
		if told != nil {
			told(waits)
		}
	}
	return standby.NewFeed(st, o)
}
