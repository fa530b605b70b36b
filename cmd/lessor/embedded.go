package main

import (
	"cmp"
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
	// alive ends when the coordinator does, with the reason.
	alive context.Context
}

// errStopped is the reason of an end in order.
var errStopped = errors.New("the coordinator was stopped")

// maxSocketPath is the longest path of a socket that every system takes, in bytes.
const maxSocketPath = 100

// startEmbedded serves the store in storeDir on a socket in socketDir, or in a temporary directory where the path would
// be too long. Leases of an earlier process are ended at once: it cannot live, since the store was not in use.
func startEmbedded(storeDir, socketDir string, log *slog.Logger) (*embedded, error) {
	st, err := boltstore.Open(storeDir, boltstore.Options{})
	if err != nil {
		return nil, storeError(storeDir, err)
	}
	e := &embedded{store: st}
	lis, err := e.listen(socketDir)
	if err != nil {
		return nil, errors.Join(fail(exitCannotStart, "", "cannot listen on a socket: %v", err), st.Close())
	}
	co, err := coordinator.New(st, coordinator.Config{Logger: log, Version: buildVersion(), RecoveryInvalidate: true})
	if err != nil {
		return nil, errors.Join(err, lis.Close(), st.Close())
	}
	e.target = "unix:" + lis.Addr().String()
	serving, stop := context.WithCancel(context.Background())
	alive, ended := context.WithCancelCause(context.Background())
	e.stop, e.alive = stop, alive
	go func() { ended(cmp.Or(serveError(co.Serve(serving, lis, nil)), errStopped)) }()
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
	<-e.alive.Done()
	err := context.Cause(e.alive)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, e.store.Close(), os.RemoveAll(e.socket))
}
