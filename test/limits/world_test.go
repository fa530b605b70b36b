package limits

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/worker/producer"
)

// Times of the sessions and of calls.
const (
	beatEvery    = 2 * time.Second // heartbeats of sessions
	sendWithin   = 3 * time.Second
	resourceWait = 5 * time.Second
	patience     = 2 * time.Minute // for the answer to a call, apart from the time for which it asks to wait
)

// world is a coordinator with all who call it.
type world struct {
	*testing.T
	seed    uint64
	rng     *rand.Rand // of the steps
	begun   time.Time
	cfg     coordinator.Config
	log     *logBuffer
	commits time.Duration // the longest commit; 0: they take no time
	stalls  bool          // some take longer all the same
	tenants []*tenant
	sdks    int     // workers of the SDK so far
	modest  *tenant // is none of tenants
	book    *book
	st      *memstore.Store
	now     atomic.Pointer[life] // the coordinator that runs; nil: none does
	starts  atomic.Int32
	kept    atomic.Pointer[backup] // the newest backup; nil: none was made
	full    atomic.Bool            // the disk is
	calm    atomic.Bool            // there are no faults any more
	quiet   atomic.Bool            // workers hold what they get, and say nothing
	busy    sync.WaitGroup         // calls, workers and watchers

	mu      sync.Mutex // guards the journal
	journal []string
}

// tenant is a tenant with its workers.
type tenant struct {
	name    string
	token   atomic.Pointer[credential] // the newest one
	spaces  []string
	peers   []*peer
	sdk     *sdkWorker       // nil: it has none
	submits *producer.Client // nil: it has none
	conn    *grpc.ClientConn // of both
	calls   atomic.Int32     // calls under way, except submits
	ruled   sync.Map         // the queues on which something was set: they stay
	revoked sync.Map         // the ids of the credentials that somebody has asked to revoke
}

func newWorld(t *testing.T, seed uint64, rng *rand.Rand) *world {
	t.Helper()
	w := &world{T: t, seed: seed, rng: rng, begun: time.Now(), log: &logBuffer{}, st: memstore.New()}
	w.book = newBook(w)
	w.commits = pick(rng, 0, 10*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond)
	w.stalls = w.commits > 0 && one(rng, 4)
	w.cfg = coordinator.Config{
		Version: "test", Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelError})),
		Auth:       &gate.Auth{},
		HostTenant: "modest", DiskFull: w.full.Load,
		Sessions: session.Config{
			HeartbeatInterval: beatEvery, IdleTimeout: 6 * beatEvery, SendTimeout: sendWithin, ResourceWait: resourceWait,
		},
		Limits: lease.Limits{Payload: 64 << 10, Output: 1 << 10, Checkpoint: 256, Discarded: 64, Batch: 12},
		Quotas: quota.Config{Tenants: map[string]quota.Limits{}},
	}
	for n := range 6 + rng.IntN(5) {
		tn := w.newTenant(fmt.Sprintf("t%d", n))
		w.tenants = append(w.tenants, tn)
		for n := range 1 + rng.IntN(3) {
			tn.peers = append(tn.peers, newPeer(w, tn, fmt.Sprintf("w%d", n)))
		}
	}
	w.drawQuotas()
	w.modest = w.newTenant("modest")
	w.start(engine.KeepLeases)
	for n, tn := range w.tenants {
		if n%3 == 0 {
			w.giveSDK(tn)
		}
	}
	w.busy.Go(w.asksForLittle)
	return w
}

func (w *world) newTenant(name string) *tenant {
	made, err := coordinator.IssueToken(w.Context(), w.st, auth.DefaultAudience, auth.Request{
		Tenant: name, Role: auth.Operator, Subject: name, Life: 24 * time.Hour,
	})
	if err != nil {
		w.Fatal(err)
	}
	tn := &tenant{name: name, spaces: pick(w.rng, []string{"default"}, []string{"default", "other"})}
	tn.token.Store(&credential{id: made.GetInfo().GetTokenId(), token: made.GetToken()})
	return tn
}

// drawQuotas gives some tenants quotas that are small, and takes those of others away.
func (w *world) drawQuotas() {
	w.cfg.Quotas.Tenants = map[string]quota.Limits{}
	for _, tn := range w.tenants {
		if one(w.rng, 3) {
			w.cfg.Quotas.Tenants[tn.name] = smallQuotas(w.rng)
		}
	}
}

// smallQuotas returns quotas that the steps of a history exceed, and that leave room for the
// workers that come at its end.
func smallQuotas(rng *rand.Rand) (l quota.Limits) {
	if one(rng, 2) {
		l.Calls = quota.Rate{PerSecond: 20, Burst: uint32(5 + rng.IntN(20))}
	}
	if one(rng, 2) {
		l.Submits = quota.Rate{PerSecond: 10, Burst: uint32(5 + rng.IntN(20))}
	}
	if one(rng, 2) {
		l.Frames = quota.Rate{PerSecond: 10, Burst: uint32(5 + rng.IntN(20))}
	}
	l.Sessions, l.Streams, l.Watches, l.Waits, l.Tasks = 2+rng.IntN(3), 2+rng.IntN(4), 1+rng.IntN(2), 1+rng.IntN(6),
		5+rng.IntN(60)
	return l
}

// life is the coordinator between a start and its end.
type life struct {
	*coordinator.Coordinator
	listener *bufconn.Listener
	web      *bufconn.Listener
	stop     context.CancelFunc
	served   chan error
	clients  map[string]*client // by tenant
}

// client has the connection of a tenant.
type client struct {
	conn    *grpc.ClientConn
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.WorkerServiceClient
	admin   lessorv1.AdminServiceClient
	auth    lessorv1.AuthServiceClient
	web     *http.Client
}

// start starts a coordinator on the store.
func (w *world) start(recovery engine.Recovery) {
	w.Helper()
	w.slowDown()
	cfg := w.cfg
	cfg.Recovery = recovery
	c, err := coordinator.New(w.st, cfg)
	if err != nil {
		w.Fatal(err)
	}
	l := &life{
		Coordinator: c, listener: bufconn.Listen(1 << 20), web: bufconn.Listen(32 << 10), served: make(chan error, 1),
		clients: map[string]*client{},
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() { l.served <- c.Serve(ctx, l.listener, l.web) }()
	for _, tn := range append(w.tenants[:len(w.tenants):len(w.tenants)], w.modest) {
		l.clients[tn.name] = w.dial(l)
	}
	w.starts.Add(1)
	w.now.Store(l)
	synctest.Wait()
}

// slowDown makes the commits of the store take time.
func (w *world) slowDown() {
	if w.commits == 0 || w.calm.Load() {
		w.st.SetHook(nil)
		return
	}
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	w.st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		d := upTo(rng, w.commits)
		if w.stalls && one(rng, 300) {
			d += upTo(rng, 3*time.Second)
		}
		time.Sleep(d)
		apply()
		return nil
	})
}

func (w *world) dial(l *life) *client {
	conn, err := grpc.NewClient("passthrough:///coordinator",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		w.Fatal(err)
	}
	return &client{
		conn, lessorv1.NewTaskServiceClient(conn), lessorv1.NewWorkerServiceClient(conn), lessorv1.NewAdminServiceClient(conn),
		lessorv1.NewAuthServiceClient(conn), dialWeb(l),
	}
}

// shutDown stops the coordinator in order, or kills it: then nothing more reaches the store.
func (w *world) shutDown(kill bool) {
	w.Helper()
	l := w.now.Swap(nil)
	w.book.stopped()
	if kill {
		w.st = w.st.Reopen()
	}
	began := time.Now()
	l.stop()
	if err := <-l.served; err != nil && !kill {
		w.Errorf("the coordinator ended with %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		w.Errorf("the coordinator took %v to stop", took)
	}
	for _, c := range l.clients {
		_ = c.conn.Close()
	}
	_, _ = l.listener.Close(), l.web.Close()
}

// restarts stops the coordinator in order or kills it, and starts it again, at times with other
// quotas.
func (w *world) restarts(*tenant) {
	kill := one(w.rng, 2)
	w.note("restart, kill %v", kill)
	w.log.allow(kill)
	w.shutDown(kill)
	time.Sleep(upTo(w.rng, 3*time.Second))
	if one(w.rng, 3) {
		w.drawQuotas()
	}
	w.start(engine.KeepLeases)
	w.log.allow(false)
	w.note("the coordinator is back")
}

// isCurrent reports whether a client is one of the coordinator that runs.
func (w *world) isCurrent(tn *tenant, c *client) bool {
	l := w.now.Load()
	return l != nil && l.clients[tn.name] == c
}

// withToken returns a context with the credential of the tenant, and the credential.
func (tn *tenant) withToken(ctx context.Context) (context.Context, *credential) {
	c := tn.token.Load()
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token), c
}

// ask makes a call of a tenant in a goroutine of its own. It may take as long as it asks to wait,
// and patience.
func (w *world) ask(tn *tenant, what string, wait time.Duration, call func(ctx context.Context, c *client) error) {
	w.busy.Go(func() { _ = w.call(tn, what, wait, call) })
}

// call is ask in the goroutine of the caller. It returns the error of the call.
func (w *world) call(tn *tenant, what string, wait time.Duration, call func(ctx context.Context, c *client) error) error {
	l := w.now.Load()
	if l == nil {
		return status.Error(codes.Unavailable, "the coordinator does not run")
	}
	ctx, with := tn.withToken(context.Background())
	ctx, cancel := context.WithTimeout(ctx, wait+patience)
	defer cancel()
	if !strings.Contains(what, "Submit") {
		tn.calls.Add(1)
		defer tn.calls.Add(-1)
	}
	began := time.Now()
	err := call(ctx, l.clients[tn.name])
	if took := time.Since(began); took > time.Second+wait {
		w.note("%s: %s took %v", tn.name, what, took)
	}
	w.check(tn, with, what, err)
	return err
}

// check fails the test if an answer is none that a correct caller gets.
func (w *world) check(tn *tenant, with *credential, what string, err error) {
	w.count(what, status.Code(err).String())
	switch code := status.Code(err); code {
	case codes.OK, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists, codes.ResourceExhausted, codes.Canceled, codes.Unavailable:
	case codes.Internal:
		if !w.log.allows() { // otherwise the coordinator is being killed: its store is closed under it
			w.problem("%s: %s: %v", tn.name, what, err)
		}
	case codes.Unauthenticated:
		if !with.revoked.Load() {
			w.problem("%s: %s with a credential that nobody has revoked: %v", tn.name, what, err)
		}
	default:
		w.problem("%s: %s: %v", tn.name, what, err)
	}
}

// problem fails the test, unless it has failed already.
func (w *world) problem(format string, args ...any) {
	w.note("PROBLEM "+format, args...)
	if !w.Failed() {
		w.Errorf(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, fmt.Sprintf("%8.3fs ", time.Since(w.begun).Seconds())+fmt.Sprintf(format, args...))
}

// counted has how often each call had each answer, in all histories.
var counted struct {
	sync.Mutex
	n map[string]int
}

func (w *world) count(what, answer string) {
	counted.Lock()
	defer counted.Unlock()
	if counted.n == nil {
		counted.n = map[string]int{}
	}
	counted.n[what+": "+answer]++
}

// fate returns the source of the choices that belong to a name, so that they do not depend on the
// order in which goroutines run.
func (w *world) fate(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// logBuffer has the errors that the coordinator logs. While it is killed they are allowed.
type logBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	allowed bool
}

// Write implements io.Writer.
func (s *logBuffer) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allowed && !bytes.Contains(line, []byte("panic")) {
		return len(line), nil
	}
	return s.text.Write(line)
}

func (s *logBuffer) allow(errors bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = errors
}

func (s *logBuffer) allows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allowed
}

func (s *logBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
