package wiretest

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

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/internal/inside"
	"github.com/lessor-dev/lessor/coordinator/recvlimit"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// Rig is a coordinator on bufconn with a client of each gRPC service. It runs on the fake time of a
// synctest bubble.
type Rig struct {
	inside.Parts
	Tasks    lessorv1.TaskServiceClient
	Workers  lessorv1.WorkerServiceClient
	Admin    lessorv1.AdminServiceClient
	Health   healthv1.HealthClient
	Conn     *grpc.ClientConn
	Listener *bufconn.Listener
	Stop     context.CancelFunc
	Token    string     // credential that sessions send; empty: none
	Served   chan error // what Serve returned
	Log      *LogBuffer
}

// Serve runs a test against a coordinator with the store st. nil means a new store in memory.
func Serve(t *testing.T, st store.Store, test func(t *testing.T, r *Rig)) {
	t.Helper()
	ServeWith(t, st, coordinator.Config{}, test)
}

// NoHeartbeats is a configuration for tests whose workers send no heartbeats: 1000 may be missed
// before the session is reset.
var NoHeartbeats = coordinator.Config{Sessions: session.Config{Health: session.Thresholds{Missed: 1000}}}

// ServeWith is like Serve, with this configuration.
func ServeWith(t *testing.T, st store.Store, cfg coordinator.Config, test func(t *testing.T, r *Rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if st == nil {
			st = memstore.New()
		}
		r := NewWith(t, st, cfg)
		defer func() {
			r.Stop()
			if err := <-r.Served; err != nil {
				t.Error(err)
			}
			_ = r.Conn.Close()
		}()
		test(t, r)
	})
}

// New starts a coordinator in the bubble of the caller, which ends it with Close.
func New(t *testing.T, st store.Store) *Rig {
	t.Helper()
	return NewWith(t, st, coordinator.Config{})
}

// NewWith is like New, with this configuration.
func NewWith(t *testing.T, st store.Store, cfg coordinator.Config) *Rig {
	t.Helper()
	r := &Rig{Served: make(chan error, 2), Log: &LogBuffer{}}
	if cfg.Version = "test"; cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewJSONHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := coordinator.New(st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Parts = inside.Of(c)
	lis := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(t.Context())
	r.Stop, r.Listener = stop, lis
	go func() {
		r.Served <- c.Serve(ctx, lis, nil)
		close(r.Served)
	}()
	r.Conn = Dial(t, lis)
	r.Tasks, r.Workers = lessorv1.NewTaskServiceClient(r.Conn), lessorv1.NewWorkerServiceClient(r.Conn)
	r.Admin, r.Health = lessorv1.NewAdminServiceClient(r.Conn), healthv1.NewHealthClient(r.Conn)
	synctest.Wait()
	return r
}

// StartPlain starts a coordinator with a store in memory, outside of a bubble, and returns its
// parts and a connection to it.
func StartPlain(t testing.TB, cfg coordinator.Config) (inside.Parts, *grpc.ClientConn) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := coordinator.New(memstore.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx, lis, nil) }()
	conn := Dial(t, lis)
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return inside.Of(c), conn
}

// Dial returns a connection to a listener, which the caller closes.
func Dial(t testing.TB, lis *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///coordinator",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(recvlimit.Window)) // otherwise gRPC may enlarge the window
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Submit submits a task of queue q. change may change its spec; nil changes nothing.
func (r *Rig) Submit(t *testing.T, change func(*lessorv1.TaskSpec)) *lessorv1.Task {
	t.Helper()
	spec := &lessorv1.TaskSpec{Queue: "q"}
	if change != nil {
		change(spec)
	}
	res, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	return res.GetTask()
}

// Lease leases the only task that waits in queue q.
func (r *Rig) Lease(t *testing.T) *lessorv1.Assignment {
	t.Helper()
	res, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
	if err != nil || len(res.GetAssignments()) != 1 {
		t.Fatalf("lease: %v (%v), want one assignment", res, err)
	}
	return res.GetAssignments()[0]
}

// Start reports by a unary call that the task of a begins.
func (r *Rig) Start(t *testing.T, a *lessorv1.Assignment) {
	t.Helper()
	res, err := r.Workers.Start(t.Context(),
		&lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
	if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Fatalf("start: %v (%v), want COMMITTED", res, err)
	}
}

// Complete reports by a unary call that the task of a has succeeded.
func (r *Rig) Complete(t *testing.T, a *lessorv1.Assignment, output string) *lessorv1.CompleteResponse {
	t.Helper()
	res, err := r.Workers.Complete(t.Context(), &lessorv1.CompleteRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Output: []byte(output),
	})
	if err != nil {
		t.Fatalf("complete: %v", err)
	}
	return res
}

// Get returns a task with all its details.
func (r *Rig) Get(t *testing.T, id string) *lessorv1.Task {
	t.Helper()
	res, err := r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return res.GetTask()
}

// Text returns a string of n bytes.
func Text(n int) string { return strings.Repeat("x", n) }

// LogBuffer holds the coordinator's log. It has a lock, because handlers may still write while a
// test reads.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *LogBuffer) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

// String returns the whole log.
func (s *LogBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Reset empties the log.
func (s *LogBuffer) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}

// Unserved makes a coordinator with a store in memory that has no listener; only its engine runs.
// Tests call its handlers directly. end stops it, and returns how the engine has ended.
func Unserved(t testing.TB, cfg coordinator.Config) (c inside.Parts, end func() error) {
	t.Helper()
	made, err := coordinator.New(memstore.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c = inside.Of(made)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.Engine.Run(ctx) }()
	return c, func() error {
		c.EndCalls()
		stop()
		return <-ran
	}
}

// Codec decodes messages as a coordinator does.
func Codec() session.Codec {
	return session.Codec{CodecV2: reqcodec.NewCodec(convert.Codec{CodecV2: wire.NewCodec()})}
}

// Stopped makes a coordinator whose engine has stopped, which nothing else knows yet.
func Stopped(t testing.TB) inside.Parts {
	t.Helper()
	made, err := coordinator.New(memstore.New(), coordinator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := inside.Of(made)
	t.Cleanup(c.EndCalls)
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if err := c.Engine.Run(stopped); err != nil {
		t.Fatal(err)
	}
	return c
}
