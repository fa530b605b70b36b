package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/reserve"
)

// serveCmd is lessor serve. A coordinator usually runs unattended, set up by its environment, so
// its variables have the shortest names.
type serveCmd struct {
	Data     string       `type:"bytes" required:"" placeholder:"DIR" help:"Directory of the store; created if it is missing."`
	Existing bool         `help:"Refuse to start if there is no store in --data, instead of making an empty one: its disk may not be mounted."`
	Listen   string       `default:"127.0.0.1:7420" placeholder:"HOST:PORT" help:"Address on which to serve gRPC."`
	HTTP     string       `name:"http" default:"127.0.0.1:7421" placeholder:"HOST:PORT" help:"Address on which to serve HTTP: a page for browsers, the API in plain JSON, /metrics, /healthz and /readyz; empty serves no HTTP."`
	Reserve  mebibytes    `name:"disk-reserve" default:"64" placeholder:"MIB" help:"Space to keep free on the disk of the store, in MiB, or with a unit as in 1GiB. With less free space, new tasks are refused; when the disk is almost full, this space is released for verdicts, cancels and expiries, and once it is used up, no task is granted. 0 keeps none."`
	Pprof    bool         `help:"Serve Go profiles under /debug/pprof/ on the HTTP listener."`
	Insecure bool         `help:"Allow listening on other addresses than loopback without TLS and credentials."`
	Access   accessFlags  `embed:""`
	Recovery string       `enum:"keep,invalidate,restored" default:"keep" placeholder:"HOW" help:"What to do with leases from before the start: keep keeps them; invalidate ends them all; restored is for a store from a backup and also ends leases that were granted after the backup."`
	Log      logging      `embed:"" prefix:"log-"`
	Limit    limits       `embed:"" prefix:"limit-"`
	Session  sessionFlags `embed:"" prefix:"session-"`
	Health   healthFlags  `embed:"" prefix:"health-"`
	Quotas   quotaFlags   `embed:""`
	Max      maxFlags     `embed:"" prefix:"max-"`
	Backup   backupFlags  `embed:"" prefix:"backup-"`
	Standby  standbyFlags `embed:"" prefix:"standby-"`

	CallbackURL  string        `name:"callback-url" placeholder:"URL" help:"URL at which workers that report over HTTP reach this coordinator (the address of --http, with https:// if TLS is on)."`
	TaskTokenTTL time.Duration `name:"task-token-ttl" type:"positive" placeholder:"DURATION" help:"How long a task token is valid, at most 2h (1h); at least ten minutes longer than its lease."`
}

// Help is shown below the flags.
func (serveCmd) Help() string {
	return `Prints the addresses once it listens. The first SIGINT, SIGTERM or SIGHUP stops it gracefully: calls under way are answered. The
second stops it at once, which loses nothing that was acknowledged. The log goes to standard error.

Examples:
  lessor serve --data /var/lib/lessor
  LESSOR_DATA=./data lessor serve --listen 127.0.0.1:0 --json`
}

// backupFlags bound AdminService.Backup.
type backupFlags struct {
	Timeout time.Duration `type:"positive" default:"1h" placeholder:"DURATION" help:"Longest time of a backup; while a backup runs, the file of the store grows with every change."`
	Stall   time.Duration `type:"positive" default:"30s" placeholder:"DURATION" help:"How long the reader of a backup, or a standby, may stall."`
}

// standbyFlags are about standbys that follow.
type standbyFlags struct {
	Buffer size          `type:"positive" default:"64MiB" placeholder:"SIZE" help:"Most bytes of commits that are kept in memory for standbys; one that lacks more gets a new copy."`
	Wait   time.Duration `type:"positive" placeholder:"DURATION" help:"Tell no result before a standby has it on its disk, too; if one takes longer than DURATION, stop waiting, until a standby has caught up again. Without it, nothing waits."`
}

// limits are the sizes that an operator may set (S7).
type limits struct {
	Payload    size `type:"positive" placeholder:"SIZE" help:"Largest payload (1MiB), in bytes or as 512KiB; up to 64MiB, as the next three."`
	Output     size `type:"positive" placeholder:"SIZE" help:"Largest output inside a report (1MiB)."`
	Checkpoint size `type:"positive" placeholder:"SIZE" help:"Largest checkpoint (64KiB)."`
	Discarded  size `type:"positive" placeholder:"SIZE" help:"Largest late result that is kept for task adopt (64KiB)."`
	Batch      int  `type:"positive" placeholder:"N" help:"Most tasks in a batch (1000), up to 10,000."`
}

func (c serveCmd) Run(a *app) error {
	tuneGC()
	defer a.catchSignalsButQuit()()
	log, err := c.Log.logger(a)
	if err != nil {
		return err
	}
	defer context.AfterFunc(a.stopNow, func() { os.Exit(a.end(context.Cause(a.stopNow))) })()
	cfg, err := c.settings(log)
	if err != nil {
		return err
	}
	a.warnStrays(log)
	warnExposed(log, "--tls-key", c.Access.Key)
	c.Max.warnFewFiles(log, openFiles())
	spans, flush, err := a.traces("lessor", log)
	if err != nil {
		return err
	}
	defer flush()
	cfg.TracerProvider = spans
	grpcLis, httpLis, err := c.listenBoth()
	if err != nil {
		return err
	}
	defer closeBoth(grpcLis, httpLis)
	opened := whileOpening(a, cfg, httpLis)
	defer opened()
	return c.openStore(log, func(bolt *boltstore.Store) error {
		st, err := c.watchDisk(bolt, &cfg, log)
		if err != nil {
			return err
		}
		cfg.StoreGone, cfg.LogDropped, cfg.Wall = bolt.Gone, a.log.total.Load, wallClock
		co, err := coordinator.New(st, cfg)
		if err != nil {
			return startError(c.Data, err)
		}
		opened()
		defer tellWhenStopping(a.ctx, log)()
		return serveAnnounced(a, co, grpcLis, httpLis, log)
	})
}

// openStore opens the store for use, or makes it, unless it must exist.
func (c serveCmd) openStore(log *slog.Logger, use func(*boltstore.Store) error) error {
	begins := !boltstore.Exists(c.Data)
	if begins && c.Existing {
		return fail(exitCannotStart, "mount its disk, name the right directory, or leave out --existing to begin with an empty store", "there is no store in %s", c.Data)
	}
	return withStore(c.Data, log, func(bolt *boltstore.Store) error {
		if begins { // an operator whose disk is not mounted should not have to guess
			log.Warn("there was no store: a new, empty one was made", "data", c.Data)
		}
		return use(bolt)
	})
}

// watchDisk returns the store with its disk reserve, and lets cfg tell how full the disk is.
func (c serveCmd) watchDisk(
	bolt *boltstore.Store, cfg *coordinator.Config, log *slog.Logger,
) (guarded store.Store, err error) {
	guarded, kept, err := c.reserve(killable(bolt), log)
	if err != nil {
		return nil, err
	}
	cfg.DiskRoom = func() (free, needed, inside int64) {
		free, _ = reserve.Free(boltstore.DiskDir(c.Data)) // the next commit reports the fault of the disk
		return free, 0, 0
	}
	if kept != nil {
		cfg.DiskFull, cfg.DiskSpent, cfg.DiskRoom = kept.Full, kept.Spent, kept.Room
	}
	return guarded, nil
}

// serveAnnounced serves, and meanwhile prints where: it serves even if nobody takes the output, or
// that fails.
func serveAnnounced(a *app, co *coordinator.Coordinator, grpcLis, httpLis net.Listener, log *slog.Logger) error {
	go func() {
		at := addresses(grpcLis, httpLis)
		tellReady(log, at.String())
		a.announce(log, at, at.String())
	}()
	return serveError(co.Serve(a.ctx, grpcLis, httpLis))
}

// listen opens a listener. A listener that is not on the loopback needs TLS and credentials (X1),
// or --insecure.
func (c serveCmd) listen(flag, addr string) (net.Listener, error) {
	lis, err := listenTCP(flag, addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := lis.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && !c.Insecure && !c.Access.secure() {
		_ = lis.Close()
		risk := "everybody who reaches it could read and change every task"
		if c.Access.requiresCredential() {
			risk = "without TLS, tokens and tasks would go over the network unencrypted"
		}
		return nil, fail(exitUsage, "listen on a loopback address, use --auth with --tls-cert and --tls-key, or use --insecure if the network is trusted",
			"%s is not a loopback address: %s", addr, risk)
	}
	return lis, nil
}

// listenBoth opens the listeners; that of HTTP is nil if none is wanted.
func (c serveCmd) listenBoth() (grpcLis, httpLis net.Listener, err error) {
	if grpcLis, err = c.listen("listen", c.Listen); err != nil || c.HTTP == "" {
		return grpcLis, nil, err
	}
	if httpLis, err = c.listen("http", c.HTTP); err != nil {
		_ = grpcLis.Close()
		return nil, nil, err
	}
	return grpcLis, httpLis, nil
}

func closeBoth(grpcLis, httpLis net.Listener) {
	_ = grpcLis.Close()
	if httpLis != nil {
		_ = httpLis.Close()
	}
}

// serving is what lessor serve --json prints when it serves.
type serving struct {
	GRPC string `json:"grpc"`
	HTTP string `json:"http,omitempty"`
}

func addresses(grpcLis, httpLis net.Listener) serving {
	at := serving{GRPC: grpcLis.Addr().String()}
	if httpLis != nil {
		at.HTTP = httpLis.Addr().String()
	}
	return at
}

func (s serving) String() string {
	text := "serving gRPC on " + s.GRPC
	if s.HTTP != "" {
		text += ", HTTP on " + s.HTTP
	}
	return text
}

// reserve makes sure that the store has its disk reserve. With --disk-reserve=0, it releases the
// space of an earlier reserve, and returns no reserve.
func (c serveCmd) reserve(st store.Store, log *slog.Logger) (guarded store.Store, kept *reserve.Reserve, err error) {
	if c.Reserve == 0 {
		return st, nil, reserve.Release(boltstore.DiskDir(c.Data))
	}
	kept = reserve.Open(boltstore.DiskDir(c.Data), int64(c.Reserve)<<20, st.Stats, log)
	return reserve.Guard(st, kept), kept, nil
}
