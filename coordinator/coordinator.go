package coordinator

import (
	"context"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/recvlimit"
	"github.com/lessor-dev/lessor/coordinator/service"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/coordinator/submitlimit"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	"github.com/lessor-dev/lessor/coordinator/tracing"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
)

// Coordinator is the authority on tasks, leases and results over one store. Make one with New and
// run it with Serve.
type Coordinator struct {
	cfg     Config
	metrics *metrics

	// What is behind the edge.
	storeFile  *storeFile
	feed       *standby.Feed // the store, as standbys can follow it
	quotas     *quota.Book
	tracer     *tracing.Tracer // nil: no spans are made
	engine     *engine.Engine
	unreported *unreportedLog

	// Who may come in, with how much.
	connLimiter   *preauth.ConnLimiter
	recvLimiter   *recvlimit.Limiter
	submitLimiter *submitlimit.Limiter
	trail         *audit.Trail
	gate          *gate.Gate

	// What is served.
	assigner *convert.Assigner
	sessions *session.Registry
	services *service.Services
	calls    *calls
	health   *health.Server
	grpc     *grpc.Server
	http     *http.Server

	ready      atomic.Bool
	stopping   context.Context // of streams and waits
	stopAll    context.CancelFunc
	following  context.Context // of the streams of standbys
	endFollows context.CancelFunc
}

// New returns a coordinator over a store, and reads the state of the store. The caller closes the
// store after Serve has returned.
func New(st store.Store, cfg Config) (*Coordinator, error) {
	cfg.fill()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Logger = paced(cfg.Logger)
	c := &Coordinator{storeFile: &storeFile{check: cfg.StoreGone, log: cfg.Logger}, metrics: newMetrics()}
	cfg.StoreGone = c.storeFile.gone.Load // the parts need not look at the file themselves
	c.cfg = cfg
	c.stopping, c.stopAll = context.WithCancel(context.Background())
	c.following, c.endFollows = context.WithCancel(context.Background())
	// Each part needs those before it.
	if err := c.openEngine(st); err != nil {
		return nil, err
	}
	if err := c.newGate(); err != nil {
		return nil, err
	}
	if err := c.newServices(); err != nil {
		return nil, err
	}
	c.newServers()
	c.watchParts()
	c.watchDisk()
	return c, nil
}

// openEngine makes the engine, which reads the state of the store.
func (c *Coordinator) openEngine(st store.Store) (err error) {
	cfg := &c.cfg
	if c.feed, err = newFeed(st, cfg.Standbys, cfg.Logger); err != nil {
		return err
	}
	c.quotas = newQuotas(cfg, c.metrics)
	c.tracer = tracing.New(cfg.TracerProvider)
	c.unreported = &unreportedLog{log: cfg.Logger}
	c.engine, err = engine.Open(c.feed, engine.Config{
		Limits:       cfg.Limits,
		Recovery:     cfg.Recovery,
		ResourceWait: cfg.Sessions.ResourceWait,
		Events:       c.events(),
		DiskFull:     cfg.DiskFull,
		DiskSpent:    cfg.DiskSpent,
		StoreGone:    cfg.StoreGone,
		MaxTasks:     func(tenant string) int { return c.quotas.Most(tenant, quota.Tasks) },
		Wall:         cfg.Wall,
		FakeTime:     cfg.fakeTime,
	})
	if err != nil {
		return err
	}
	// with KeepLeases, of a store that lessor restore has made
	if n := c.engine.Invalidated(); n > 0 || cfg.Recovery != engine.KeepLeases {
		cfg.Logger.Warn("leases from before the start were revoked", "leases", n, "epoch", c.engine.Epoch())
	}
	return nil
}

// events returns what observes the engine: the metrics, the spans, and what the log has of it.
func (c *Coordinator) events() engine.Events {
	events := c.metrics.events()
	events.Changed = func(before, after *lease.Task) {
		c.unreported.changed(before, after)
		if c.tracer != nil {
			c.tracer.Changed(before, after)
		}
	}
	return withWarnings(events, c.cfg.Logger)
}

// newGate makes the gate, and what limits callers before it knows who they are.
func (c *Coordinator) newGate() (err error) {
	cfg := &c.cfg
	c.connLimiter = preauth.NewConnLimiter(cfg.Connections, cfg.Auth != nil, cfg.Logger)
	c.recvLimiter = recvlimit.New(withinMemory(mostRecvBytes), cfg.Logger)
	c.trail = audit.New(c.engine, c.feed, cfg.AuditRetention, cfg.Logger)
	signer := tasktoken.New(c.engine.DeriveKey(tasktoken.Purpose), cfg.Callbacks.TokenTTL)
	c.assigner = &convert.Assigner{Tokens: convert.Tokens{Signer: signer}, Tracer: c.tracer}
	c.gate, err = gate.New(gate.Deps{
		Auth: cfg.Auth, Store: c.feed, Keep: keeper(c.engine), Host: cfg.HostTenant, Quotas: c.quotas, Trail: c.trail,
		OpenToken: tokenOpener(c.engine, c.assigner.Tokens),
	})
	return err
}

// newServices makes the services, which serve the calls that the gate has let in.
func (c *Coordinator) newServices() (err error) {
	cfg := &c.cfg
	c.sessions = session.NewRegistry()
	c.submitLimiter = submitlimit.New(int(withinMemory(int64(mostSubmitBytes))), cfg.maxMessage(), c.stopping.Done())
	c.services, err = service.New(service.Deps{
		Engine:        c.engine,
		Store:         c.feed,
		Gate:          c.gate,
		Quotas:        c.quotas,
		SubmitLimiter: c.submitLimiter,
		Sessions:      c.sessions,
		Assigner:      c.assigner,
		Feed:          c.feed,
		Limits:        cfg.Limits,
		SessionConfig: cfg.Sessions,
		MaxMessage:    cfg.maxMessage(),
		Version:       cfg.Version,
		BackupTimeout: cfg.Backup.Timeout,
		BackupStall:   cfg.Backup.Stall,
		StandbyWait:   cfg.Standbys.Wait,
		Logger:        cfg.Logger,
		DiskFull:      cfg.DiskFull,
		DiskSpent:     cfg.DiskSpent,
		DiskRoom:      cfg.DiskRoom,
		StoreGone:     cfg.StoreGone,
		ShowBackups:   c.metrics.showBackups,
		Stopping:      c.stopping,
		Following:     c.following,
	})
	return err
}

// newServers makes the gRPC server and the HTTP server. Calls from either, and from within the
// process, pass the same interceptors.
func (c *Coordinator) newServers() {
	c.calls, c.health = newCalls(), health.NewServer()
	through := newChain(c.cfg.Logger, c.calls, c.metrics.calls, c.gate)
	within := newLocal(through)
	c.grpc = c.newGRPC(through)
	c.register(within)
	c.http = c.newHTTP(within)
}
