package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// embedded is a coordinator within this process. It listens on a socket that only this user can
// reach. If it listened on a loopback port, every user of the machine could submit tasks, and their
// commands would run as this user.
type embedded struct {
	store  store.Store
	socket string // path
	stop   context.CancelFunc
	// alive ends when the coordinator ends, with the reason as its cause.
	alive context.Context
}

// errStopped is the cause of alive if the coordinator was told to stop.
var errStopped = errors.New("the coordinator was stopped")

// maxSocketPath is the longest path of a socket that every system accepts, in bytes.
const maxSocketPath = 100

// startEmbedded serves the store in storeDir on a socket in socketDir, or in a temporary directory
// if the path would be too long. It ends the leases of an earlier process at once. That process
// cannot be alive, because the store was not in use. It calls gone once, if the store is moved or
// removed.
func startEmbedded(
	storeDir, socketDir string, log *slog.Logger, spans trace.TracerProvider, gone func(),
) (*embedded, error) {
	st, err := boltstore.Open(storeDir, boltstore.Options{Logger: log})
	if err != nil {
		return nil, storeError(storeDir, err)
	}
	socket, lis, err := listenSocket(socketDir)
	if err != nil {
		return nil, errors.Join(fail(exitCannotStart, "", "cannot listen on a socket: %v", err), st.Close())
	}
	cfg := embeddedConfig(log)
	cfg.TracerProvider = spans
	tell := sync.OnceFunc(gone)
	cfg.StoreGone = func() bool {
		if st.Gone() {
			tell()
		}
		return false // what the coordinator would log is for those who can take a backup
	}
	co, err := coordinator.New(st, cfg)
	if err != nil {
		return nil, errors.Join(startError(storeDir, err), lis.Close(), os.RemoveAll(filepath.Dir(socket)), st.Close())
	}
	serving, stop := context.WithCancel(context.Background())
	alive, ended := context.WithCancelCause(context.Background())
	e := &embedded{store: st, socket: socket, stop: stop, alive: alive}
	go func() { ended(cmp.Or(serveError(co.Serve(serving, lis, nil)), errStopped)) }()
	return e, nil
}

// embeddedConfig has health thresholds that no memory and no disk reaches (session.NeverFull),
// because no other worker could do the work.
func embeddedConfig(log *slog.Logger) coordinator.Config {
	return coordinator.Config{
		Logger: log, Version: buildVersion(), Recovery: engine.InvalidateLeases,
		Sessions: session.Config{Health: session.NeverFull},
	}
}

// listenSocket opens the socket. It first removes a socket that a killed process has left.
func listenSocket(dir string) (path string, lis net.Listener, err error) {
	const name = "grpc"
	if err := os.RemoveAll(dir); err != nil {
		return "", nil, err
	}
	if len(dir)+len("/"+name) > maxSocketPath {
		dir, err = os.MkdirTemp("", "lessor-")
	} else {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, name)
	if lis, err = net.Listen("unix", path); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return path, lis, nil
}

// dial returns a client of the coordinator. The path of the socket is not part of gRPC's target, in
// which some characters have a meaning.
func (e *embedded) dial() (*client, error) {
	dialSocket := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", e.socket)
	}
	return dial("passthrough:///embedded", grpc.WithContextDialer(dialSocket), grpc.WithStreamInterceptor(e.refuseIfEnded))
}

// refuseIfEnded refuses each stream for good once the coordinator has ended. Otherwise the worker
// would try for as long as it drains, 35 s by default, to deliver its reports to a coordinator that
// does not come back.
func (e *embedded) refuseIfEnded(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if e.alive.Err() == nil {
		return open(ctx, desc, conn, method, opts...)
	}
	ended := status.New(codes.Unimplemented, "the coordinator has ended")
	// a worker believes only a coordinator
	if told, err := ended.WithDetails(&errdetails.ErrorInfo{Domain: detail.Domain, Reason: "COORDINATOR_ENDED"}); err == nil {
		ended = told
	}
	return nil, ended.Err()
}

// close stops the coordinator gracefully, and closes the store.
func (e *embedded) close() error {
	e.stop()
	<-e.alive.Done()
	err := context.Cause(e.alive)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, e.store.Close(), os.RemoveAll(filepath.Dir(e.socket)))
}
