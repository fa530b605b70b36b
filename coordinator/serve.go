package coordinator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/lessor-dev/lessor/internal/every"
)

const (
	gracefulStop = 10 * time.Second       // time for calls under way to end
	lastWords    = 500 * time.Millisecond // time for the last answer to reach its client
	lastCommits  = 3 * time.Second        // time for the last commits to reach the standbys
)

// Serve serves gRPC, and HTTP unless httpLis is nil, until ctx ends. Then it stops in this order:
// it refuses new calls, ends the streams, answers the calls under way, commits everything it has
// accepted, sends that to the standbys that keep up, and returns nil. An error that wraps
// engine.ErrStore means that the store failed. The process must then exit, because only a new
// start, which reads the disk, can find out what was committed. Serve may be called only once.
func (c *Coordinator) Serve(ctx context.Context, grpcLis, httpLis net.Listener) error {
	c.warnIfOpen(ctx, grpcLis.Addr())
	c.warnIfTokenless()
	c.warnIfHostless()
	grpcLis, httpLis = c.prepare(grpcLis, httpLis)
	defer c.startChecks()()
	parts := c.start(ctx, grpcLis, httpLis)
	c.setReady(true)
	if c.cfg.Standbys.Wait > 0 {
		c.cfg.Logger.Warn("no standby follows yet: until one has everything, what is acknowledged may be on this machine only", "standby_wait", c.cfg.Standbys.Wait)
	}
	c.cfg.Logger.Info("serving", "version", c.cfg.Version, "epoch", c.engine.Epoch(), "grpc",
		addressOf(grpcLis), "http", addressOf(httpLis))

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-parts.ended: // a part that ends before ctx has failed
		parts.left--
	}
	c.cfg.Logger.Info("stopping: new calls are refused, calls under way are answered",
		"cause", cmp.Or(failed, context.Cause(ctx)))
	if err := errors.Join(failed, c.stop(parts)); err != nil {
		return err
	}
	c.cfg.Logger.Info("stopped")
	return nil
}

// prepare returns the listeners with their limits and TLS, and notes where workers reach HTTP.
func (c *Coordinator) prepare(grpcLis, httpLis net.Listener) (preparedGRPC, preparedHTTP net.Listener) {
	grpcLis = c.connLimiter.Listener(grpcLis)
	scheme := "http"
	if httpLis != nil {
		httpLis = c.connLimiter.Listener(httpLis)
		if c.cfg.TLS != nil {
			scheme, httpLis = "https", tls.NewListener(httpLis, withProtocol(c.cfg.TLS, "http/1.1"))
		}
	}
	c.assigner.CallbackURL = c.cfg.Callbacks.at(httpLis, scheme)
	return grpcLis, httpLis
}

// startChecks starts what looks at the coordinator and its callers again and again.
func (c *Coordinator) startChecks() (end func()) {
	ends := []func(){
		c.gate.Start(),
		every.Interval(storeCheckInterval, c.storeFile.look),
		every.Interval(commitCheckInterval, (&slowCommits{pending: c.commitPending, log: c.cfg.Logger}).look),
		every.Interval(time.Second, c.unreported.look),
	}
	return func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
}

// parts are the engine, the watch on its store and the servers, each in its goroutine.
type parts struct {
	ended      chan error // gets how each of them has ended
	left       int        // how many are still to come from ended
	stopEngine func()     // returns when everything that the engine has accepted is committed
	stopTrail  func()
}

func (c *Coordinator) start(ctx context.Context, grpcLis, httpLis net.Listener) *parts {
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	engineEnded := make(chan struct{})
	all := []func() error{
		func() error { defer close(engineEnded); return c.engine.Run(engineCtx) },
		func() error { return c.untilStoreFails(engineCtx) },
		func() error { return c.serveGRPC(grpcLis) },
	}
	if httpLis != nil {
		all = append(all, func() error { return c.serveHTTP(httpLis) })
	}
	p := &parts{
		ended:      make(chan error, len(all)),
		left:       len(all),
		stopEngine: func() { stopEngine(); <-engineEnded },
		stopTrail:  c.trail.Start(),
	}
	for _, part := range all {
		go func() { p.ended <- part() }()
	}
	return p
}

// stop stops the parts that are left, in the order that Serve promises.
func (c *Coordinator) stop(p *parts) error {
	c.setReady(false)
	c.stopAll()
	defer time.AfterFunc(lastCommits, c.feed.GiveUp).Stop() // answers need not wait longer for a standby
	defer c.feed.Release()
	endGRPC := c.stopServers() // while the engine still answers
	p.stopTrail()
	p.stopEngine()
	c.unreported.look()
	endGRPC()
	var errs []error
	for range p.left {
		errs = append(errs, <-p.ended)
	}
	return errors.Join(errs...)
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

// stopServers stops the gRPC server and the HTTP server at the same time: neither needs the other.
// Both have the time gracefulStop for their calls under way. Standbys still follow, until endGRPC.
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

// letFollow waits until the standbys that are complete have everything that was committed, but not
// longer than lastCommits.
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
