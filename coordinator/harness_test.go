package coordinator

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// rig is a coordinator on bufconn with a client of each gRPC service. It runs on the fake time of a synctest bubble.
type rig struct {
	*Coordinator
	tasks    lessorv1.TaskServiceClient
	workers  lessorv1.WorkerServiceClient
	admin    lessorv1.AdminServiceClient
	health   healthv1.HealthClient
	conn     *grpc.ClientConn
	listener *bufconn.Listener
	stop     context.CancelFunc
	token    string     // credential that sessions send; empty: none
	served   chan error // what Serve returned
	log      *logBuffer
}

// serve runs a test against a coordinator with the store st. nil means a new store in memory.
func serve(t *testing.T, st store.Store, test func(t *testing.T, r *rig)) {
	t.Helper()
	serveWith(t, st, Config{}, test)
}

// noHeartbeats is a configuration for tests whose workers send no heartbeats: 1000 may be missed before the session is reset.
var noHeartbeats = Config{Sessions: session.Config{Health: session.Thresholds{Missed: 1000}}}

// serveWith is like serve, with this configuration.
func serveWith(t *testing.T, st store.Store, cfg Config, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if st == nil {
			st = memstore.New()
		}
		r := newRigWith(t, st, cfg)
		defer func() {
			r.stop()
			if err := <-r.served; err != nil {
				t.Error(err)
			}
			_ = r.conn.Close()
		}()
		test(t, r)
	})
}

func newRig(t *testing.T, st store.Store) *rig {
	t.Helper()
	return newRigWith(t, st, Config{})
}

func newRigWith(t *testing.T, st store.Store, cfg Config) *rig {
	t.Helper()
	r := &rig{served: make(chan error, 2), log: &logBuffer{}}
	var err error
	if cfg.Version = "test"; cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if r.Coordinator, err = New(st, cfg); err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(t.Context())
	r.stop, r.listener = stop, lis
	go func() {
		r.served <- r.Serve(ctx, lis, nil)
		close(r.served)
	}()
	r.conn = dial(t, lis)
	r.tasks, r.workers = lessorv1.NewTaskServiceClient(r.conn), lessorv1.NewWorkerServiceClient(r.conn)
	r.admin, r.health = lessorv1.NewAdminServiceClient(r.conn), healthv1.NewHealthClient(r.conn)
	synctest.Wait()
	return r
}

// startPlain starts a coordinator with a store in memory, outside of a bubble, and returns a connection to it.
func startPlain(t testing.TB, cfg Config) (*Coordinator, *grpc.ClientConn) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := New(memstore.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx, lis, nil) }()
	conn := dial(t, lis)
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, conn
}

func dial(t testing.TB, lis *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///coordinator",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(streamWindow)) // otherwise gRPC may enlarge the window
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// submit submits a task of queue q. change may change its spec; nil changes nothing.
func (r *rig) submit(t *testing.T, change func(*lessorv1.TaskSpec)) *lessorv1.Task {
	t.Helper()
	spec := &lessorv1.TaskSpec{Queue: "q"}
	if change != nil {
		change(spec)
	}
	res, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	return res.GetTask()
}

// lease leases the only task that waits in queue q.
func (r *rig) lease(t *testing.T) *lessorv1.Assignment {
	t.Helper()
	res, err := r.workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
	if err != nil || len(res.GetAssignments()) != 1 {
		t.Fatalf("lease: %v (%v), want one assignment", res, err)
	}
	return res.GetAssignments()[0]
}

func (r *rig) start(t *testing.T, a *lessorv1.Assignment) {
	t.Helper()
	res, err := r.workers.Start(t.Context(), &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
	if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Fatalf("start: %v (%v), want COMMITTED", res, err)
	}
}

func (r *rig) complete(t *testing.T, a *lessorv1.Assignment, output string) *lessorv1.CompleteResponse {
	t.Helper()
	res, err := r.workers.Complete(t.Context(), &lessorv1.CompleteRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Output: []byte(output),
	})
	if err != nil {
		t.Fatalf("complete: %v", err)
	}
	return res
}

func (r *rig) get(t *testing.T, id string) *lessorv1.Task {
	t.Helper()
	res, err := r.tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return res.GetTask()
}

// text returns a string of n bytes.
func text(n int) string { return strings.Repeat("x", n) }

// logBuffer holds the coordinator's log. It has a lock, because handlers may still write while a test reads.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *logBuffer) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

// String returns the whole log.
func (s *logBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Reset empties the log.
func (s *logBuffer) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}
