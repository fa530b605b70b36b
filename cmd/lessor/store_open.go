package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/internal/runner"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/reserve"
)

// withStore opens the store in dir, or makes one, calls use with it, and closes it. If the disk is
// full, it opens the store with the space of the disk reserve. It makes none in the directory of a
// lessor run, which could not be resumed any more.
func withStore(dir string, log *slog.Logger, use func(*boltstore.Store) error) (err error) {
	if !boltstore.Exists(dir) && runner.Holds(dir) {
		return fail(exitCannotStart, "name another directory; the tasks of a run are in the directory store below it", "data directory %s belongs to lessor run", dir)
	}
	opts := boltstore.Options{Logger: log}
	st, err := boltstore.Open(dir, opts)
	if noSpace(err) && reserve.Release(boltstore.DiskDir(dir)) == nil {
		st, err = boltstore.Open(dir, opts)
	}
	if err != nil {
		return storeError(dir, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return use(st)
}

// longOpening is how long the opening of a store may take before the process answers health probes.
// Callers who connect before that wait. It is longer than the opening waits for another process to
// close the store, so that a start on a store in use logs nothing but the error.
const longOpening = 2 * boltstore.DefaultLockTimeout

// whileOpening handles signals, health probes and the patience of a service manager while the store
// is being opened, until opened is called. The opening may take minutes if the store is checked.
// Nothing needs a graceful stop yet, so the first signal ends the process.
func whileOpening(a *app, cfg coordinator.Config, httpLis net.Listener) (opened func()) {
	release := context.AfterFunc(a.ctx, func() {
		cfg.Logger.Info("stopped while the store was being opened", "cause", context.Cause(a.ctx))
		os.Exit(a.end(nil))
	})
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
			return
		case <-time.After(longOpening):
		}
		cfg.Logger.Info("opening the store takes long; it may have to be checked first")
		if tcp, ok := httpLis.(*net.TCPListener); ok {
			defer coordinator.AnswerProbes(cfg, tcp)()
		}
		tellOpening(cfg.Logger, done)
	}()
	return sync.OnceFunc(func() {
		if !release() {
			select {} // the process ends
		}
		close(done)
		<-ended
	})
}
