package docs_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/store/memstore"
)

// server stands for `lessor serve`: a coordinator in this process, on a store that outlives its
// restarts.
type server struct {
	store    *memstore.Store
	listener *bufconn.Listener
	stop     func()
}

// start stops the coordinator that runs, if any, and starts a new one.
func (s *server) start(t *testing.T, cfg coordinator.Config) {
	t.Helper()
	if s.stop == nil {
		s.store = memstore.New()
	} else {
		s.stop()
		s.store = s.store.Reopen()
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Callbacks.URL = "http://127.0.0.1:7421" // where lessor serve listens by default
	co, err := coordinator.New(s.store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.listener = bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- co.Serve(ctx, s.listener, bufconn.Listen(1)) }() // the latter for HTTP; nobody calls it
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(s.stop)
}

// dial makes a new connection, as grpcurl does for every call.
func (s *server) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///coordinator",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // for calls that fail or hold a session; the others close it themselves
	return conn
}
