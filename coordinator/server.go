package coordinator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/inside"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	"github.com/lessor-dev/lessor/coordinator/service"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/coordinator/submitlimit"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	"github.com/lessor-dev/lessor/coordinator/tracing"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/every"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
)

const (
	gracefulStop = 10 * time.Second       // time for calls under way to end
	lastWords    = 500 * time.Millisecond // time for the last answer to reach its client
	lastCommits  = 3 * time.Second        // time for the last commits to reach the standbys
)

// Coordinator is the authority on tasks, leases and results over one store. Make one with New and run it with Serve.
type Coordinator struct {
	cfg         Config
	engine      *engine.Engine
	services    *service.Services
	assigner    *convert.Assigner
	health      *health.Server
	grpc        *grpc.Server
	calls       *calls
	http        *http.Server
	gate        *gate.Gate
	trail       *audit.Trail
	connLimiter *preauth.ConnLimiter
	ready       atomic.Bool
	stopAll     context.CancelFunc // ends streams and waits
	feed        *standby.Feed
	endFollows  context.CancelFunc // ends the streams of standbys
	storeFile   *storeFile
	parts       inside.Parts // for tests
}

// New returns a coordinator over a store, and reads the state of the store. The caller closes the store after Serve has returned.
func New(st store.Store, cfg Config) (*Coordinator, error) {
	cfg.fill()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Logger = paced(cfg.Logger)
	storeFile := &storeFile{check: cfg.StoreGone, log: cfg.Logger}
	cfg.StoreGone = storeFile.gone.Load
	feed, err := newFeed(st, cfg.Standbys, cfg.Logger)
	if err != nil {
		return nil, err
	}
	st = feed
	m := newMetrics()
	tracer := tracing.New(cfg.TracerProvider)
	events := m.events()
	if tracer != nil {
		events.Changed = tracer.Changed
	}
	events = withWarnings(events, cfg.Logger)
	quotas, refusals := newQuotas(&cfg)
	m.registry.MustRegister(refusals)
	eng, err := engine.Open(st, engine.Config{
		Limits: cfg.Limits, Recovery: cfg.Recovery, ResourceWait: cfg.Sessions.ResourceWait, Events: events,
		DiskFull: cfg.DiskFull, DiskSpent: cfg.DiskSpent, StoreGone: cfg.StoreGone, MaxTasks: func(tenant string) int { return quotas.Most(tenant, quota.Tasks) },
	})
	if err != nil {
		return nil, err
	}
	if n := eng.Invalidated(); n > 0 || cfg.Recovery != engine.KeepLeases { // with KeepLeases, of a store that lessor restore has made
		cfg.Logger.Warn("leases from before the start were revoked", "leases", n, "epoch", eng.Epoch())
	}
	sessions := session.NewRegistry()
	stopping, stop := context.WithCancel(context.Background())
	following, endFollows := context.WithCancel(context.Background())
	submits := newRoom(&cfg, stopping.Done())
	m.watch(sessions, eng, st, submits, cfg)
	m.registry.MustRegister(standbyMetrics{feed})
	c := &Coordinator{
		cfg: cfg, engine: eng, health: health.NewServer(), calls: newCalls(),
		connLimiter: preauth.NewConnLimiter(cfg.Connections, cfg.Auth != nil, cfg.Logger), trail: audit.New(eng, st, cfg.AuditRetention, cfg.Logger), stopAll: stop,
		feed: feed, endFollows: endFollows, storeFile: storeFile,
	}
	m.registry.MustRegister(c.connLimiter.Refused(), c.connLimiter.Evicted(), c.connLimiter.HandshakesFailed())
	tokens := convert.Tokens{Signer: tasktoken.New(eng.DeriveKey(tasktoken.Purpose), cfg.Callbacks.TokenTTL)}
	if c.gate, err = gate.New(gate.Deps{
		Auth: cfg.Auth, Store: st, Keep: keeper(eng), Owner: cfg.Backup.Tenant, Quotas: quotas, Trail: c.trail, OpenToken: tokenOpener(eng, tokens),
	}); err != nil {
		return nil, err
	}
	m.registry.MustRegister(c.gate.Refused())
	m.watchCredentials(c.gate.FirstEnd)
	m.watchCommits(c.commitPending)
	through := newChain(cfg.Logger, c.calls, m.calls, c.gate)
	callLimiter := preauth.NewCallLimiter(c.gate, cfg.Connections.Most)
	received := newReceiveLimit(cfg.Logger)
	m.registry.MustRegister(received.Closed())
	c.grpc = grpc.NewServer(append(serverOptions(&cfg, through, c.connLimiter, received), grpc.StatsHandler(m.frames), grpc.InTapHandle(callLimiter.Tap))...)
	c.assigner = &convert.Assigner{Tokens: tokens, Tracer: tracer}
	if c.services, err = service.New(service.Deps{
		Engine: eng, Store: st, Gate: c.gate, Quotas: quotas, Room: submits, Sessions: sessions, Assigner: c.assigner, Feed: feed,
		Limits: cfg.Limits, SessionConfig: cfg.Sessions, MaxMessage: cfg.maxMessage(), Version: cfg.Version, Owner: cfg.Backup.Tenant, BackupTimeout: cfg.Backup.Timeout,
		BackupStall: cfg.Backup.Stall, StandbyWait: cfg.Standbys.Wait, Logger: cfg.Logger,
		DiskFull: cfg.DiskFull, DiskSpent: cfg.DiskSpent, DiskRoom: cfg.DiskRoom, StoreGone: cfg.StoreGone, ShowBackups: m.showBackups, Stopping: stopping, Following: following,
	}); err != nil {
		return nil, err
	}
	within := newLocal(through)
	c.register(submits, within)
	c.http = c.newHTTP(within, m)
	c.parts = inside.Parts{
		Engine: eng, Gate: c.gate, Quotas: quotas, Services: c.services, Sessions: sessions, Room: submits, GRPC: c.grpc, HTTP: c.http,
		EndCalls: stop, Idle: c.calls.none,
	}
	return c, nil
}

// register adds the services to the gRPC server and to within, which serves calls from within the process. The gRPC handlers are wrapped, see reqcodec.Guard.
func (c *Coordinator) register(submits *submitlimit.Room, within *local) {
	s := c.services
	c.grpc.RegisterService(submits.Unary(reqcodec.Guard(&lessorv1.TaskService_ServiceDesc, true, nil)), s.Tasks)
	c.grpc.RegisterService(reqcodec.Guard(&lessorv1.WorkerService_ServiceDesc, false, s.MalformedReports()), s.Workers)
	c.grpc.RegisterService(reqcodec.Guard(&lessorv1.AdminService_ServiceDesc, true, nil), s.Admin)
	c.grpc.RegisterService(reqcodec.Guard(&lessorv1.AuthService_ServiceDesc, true, nil), s.Auth)
	within.RegisterService(&lessorv1.TaskService_ServiceDesc, s.Tasks)
	within.RegisterService(&lessorv1.WorkerService_ServiceDesc, s.Workers)
	within.RegisterService(&lessorv1.AdminService_ServiceDesc, s.Admin)
	healthv1.RegisterHealthServer(c.grpc, c.health)
	reflection.Register(c.grpc)
	c.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
}

// Serve serves gRPC, and HTTP unless httpLis is nil, until ctx ends. Then it stops in this order: it refuses new calls, ends the streams,
// answers the calls under way, commits everything it has accepted, sends that to the standbys that keep up, and returns nil. An error that wraps
// engine.ErrStore means that the store failed. The process must then exit, because only a new start, which reads the disk, can find out what was
// committed. Serve may be called only once.
func (c *Coordinator) Serve(ctx context.Context, grpcLis, httpLis net.Listener) error {
	c.warnIfOpen(ctx, grpcLis.Addr())
	grpcLis = c.connLimiter.Listener(grpcLis)
	scheme := "http"
	if httpLis != nil {
		httpLis = c.connLimiter.Listener(httpLis)
		if c.cfg.TLS != nil {
			scheme, httpLis = "https", tls.NewListener(httpLis, withProtocol(c.cfg.TLS, "http/1.1"))
		}
	}
	c.assigner.CallbackURL = c.cfg.Callbacks.at(httpLis, scheme)
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	engineEnded := make(chan struct{})
	parts := []func() error{
		func() error { defer close(engineEnded); return c.engine.Run(engineCtx) },
		func() error { return c.untilStoreFails(engineCtx) },
		func() error { return c.serveGRPC(grpcLis) },
	}
	if httpLis != nil {
		parts = append(parts, func() error { return c.serveHTTP(httpLis) })
	}
	defer c.gate.Start()()
	defer every.Interval(storeCheckInterval, c.storeFile.look)()
	defer every.Interval(commitCheckInterval, (&slowCommits{pending: c.commitPending, log: c.cfg.Logger}).look)()
	stopTrail := c.trail.Start()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part() }()
	}
	c.setReady(true)
	if c.cfg.Standbys.Wait > 0 {
		c.cfg.Logger.Warn("no standby follows yet: until one has everything, what is acknowledged may be on this machine only", "standby_wait", c.cfg.Standbys.Wait)
	}
	c.cfg.Logger.Info("serving", "version", c.cfg.Version, "epoch", c.engine.Epoch(), "grpc", addressOf(grpcLis), "http", addressOf(httpLis))

	var errs []error
	select {
	case <-ctx.Done():
	case err := <-ended: // a part that ends before ctx has failed
		errs = append(errs, err)
	}
	c.cfg.Logger.Info("stopping: new calls are refused, calls under way are answered", "cause", cmp.Or(errors.Join(errs...), context.Cause(ctx)))
	c.setReady(false)
	c.stopAll()
	defer time.AfterFunc(lastCommits, c.feed.GiveUp).Stop() // answers need not wait longer for a standby
	defer c.feed.Release()
	endGRPC := c.stopServers() // while the engine still answers
	stopTrail()
	stopEngine()
	<-engineEnded
	endGRPC()
	for range len(parts) - len(errs) {
		errs = append(errs, <-ended)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.cfg.Logger.Info("stopped")
	return nil
}

// addressOf returns the address of a listener, empty if lis is nil.
func addressOf(lis net.Listener) string {
	if lis == nil {
		return ""
	}
	return lis.Addr().String()
}

func (c *Coordinator) setReady(ready bool) {
	c.ready.Store(ready)
	if ready {
		c.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
		return
	}
	c.health.Shutdown()
}

func (c *Coordinator) serveGRPC(lis net.Listener) error {
	if err := c.grpc.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

func (c *Coordinator) serveHTTP(lis net.Listener) error {
	if err := c.http.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// stopServers stops the gRPC server and the HTTP server at the same time: neither needs the other. Both have the time gracefulStop for their calls
// under way. Standbys still follow, until endGRPC.
func (c *Coordinator) stopServers() (endGRPC func()) {
	var both sync.WaitGroup
	both.Go(func() { endGRPC = c.stopGRPC() })
	both.Go(c.stopHTTP)
	both.Wait()
	return endGRPC
}

func (c *Coordinator) stopGRPC() (end func()) {
	hurry := time.AfterFunc(gracefulStop, c.grpc.Stop)
	stopped := make(chan struct{})
	go func() { defer close(stopped); c.grpc.GracefulStop() }()
	waitLastWords := func() {
		select {
		case <-stopped:
		case <-time.After(lastWords):
		}
	}
	select {
	case <-stopped:
	case <-c.calls.none():
		waitLastWords() // only standbys still follow, and calls of health and reflection are open
	}
	hurry.Stop()
	return func() {
		if len(c.feed.Standbys()) > 0 {
			c.letFollow()
			c.endFollows()
			waitLastWords()
		}
		c.grpc.Stop()
		<-stopped
	}
}

// commitPending returns how long the disk has been busy with the commit under way. The time for which a commit waits for a standby does not count.
func (c *Coordinator) commitPending() time.Duration {
	waiting := c.feed.Waiting() // first, so that it is not longer
	return max(0, c.engine.CommitPending()-waiting)
}

// letFollow waits until the standbys that are complete have everything that was committed, but not longer than lastCommits.
func (c *Coordinator) letFollow() {
	ctx, cancel := context.WithTimeout(context.Background(), lastCommits)
	defer cancel()
	c.feed.Settle(ctx)
}

func (c *Coordinator) stopHTTP() {
	ctx, cancel := context.WithTimeout(context.Background(), gracefulStop)
	defer cancel()
	if err := c.http.Shutdown(ctx); err != nil {
		c.cfg.Logger.Warn("HTTP server did not stop in time", "error", err)
	}
}
