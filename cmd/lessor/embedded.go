package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// embedded is a coordinator inside of this process. It listens on a socket that only this user can reach: on a port of
// the loopback, everybody on the machine could submit tasks, and commands of theirs would run as this user.
type embedded struct {
	target string // for dial
	store  store.Store
	socket string // directory
	stop   context.CancelFunc
	ended  chan struct{}
	err    error // valid once ended is closed
}

// maxSocketPath is the longest path of a socket that every system takes, in bytes.
const maxSocketPath = 100

// startEmbedded serves the store in storeDir on a socket in socketDir, or in a temporary directory where the path would
// be too long. Leases of an earlier process are ended at once: it cannot live, since the store was not in use.
func startEmbedded(storeDir, socketDir string, log *slog.Logger) (*embedded, error) {
	st, err := boltstore.Open(storeDir, boltstore.Options{})
	if err != nil {
		return nil, storeError(storeDir, err)
	}
	e := &embedded{store: st, ended: make(chan struct{})}
	lis, err := e.listen(socketDir)
	if err != nil {
		return nil, errors.Join(fail(exitCannotStart, "", "cannot listen on a socket: %v", err), st.Close())
	}
	co, err := coordinator.New(st, coordinator.Config{Logger: log, Version: buildVersion(), RecoveryInvalidate: true})
	if err != nil {
		return nil, errors.Join(err, lis.Close(), st.Close())
	}
	e.target = "unix:" + lis.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go func() {
		defer close(e.ended)
		e.err = serveError(co.Serve(ctx, lis, nil))
	}()
	return e, nil
}

// listen opens the socket, of which one may be left by a process that was killed.
func (e *embedded) listen(dir string) (net.Listener, error) {
	const name = "grpc"
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	err := os.Mkdir(dir, 0o700)
	if path, _ := filepath.Abs(dir); len(path)+len(name) > maxSocketPath {
		dir, err = os.MkdirTemp("", "lessor-")
	} else {
		dir = path
	}
	if err != nil {
		return nil, err
	}
	e.socket = dir
	return net.Listen("unix", filepath.Join(dir, name))
}

// close stops the coordinator in order and lets the store go.
func (e *embedded) close() error {
	e.stop()
	<-e.ended
	return errors.Join(e.err, e.store.Close(), os.RemoveAll(e.socket))
}
