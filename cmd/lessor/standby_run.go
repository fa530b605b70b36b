package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/standby"
)

// standbyRunCmd is lessor standby run.
type standbyRunCmd struct {
	server `embed:""`

	Data string  `type:"file" required:"" placeholder:"DIR" help:"Directory of the copy: that of this standby, or an empty or missing one."`
	Name string  `type:"nonempty" placeholder:"NAME" help:"Name under which the coordinator shows the standby, different from that of all others; by default the name of the machine."`
	HTTP string  `name:"http" placeholder:"HOST:PORT" help:"Address on which to serve /metrics, /healthz and /readyz over plain HTTP, to everybody who reaches it; by default there is none."`
	Log  logging `embed:"" prefix:"log-"`
}

// Help is shown below the flags.
func (standbyRunCmd) Help() string {
	return `Copies the whole store of a running coordinator into DIR, and then each commit as soon as it is written there. It prints a line when the copy is
complete. While the coordinator is away, the standby tries again until it is back, and goes on where it was. With serve --auth it
needs the token of an operator of the host tenant (serve --host-tenant). It also needs a lessor with the store format of the coordinator. The copy has
the tasks of all tenants and the keys that sign leases and tokens, so keep it as secret as the store.

When the coordinator is gone for good, lessor standby promote DIR makes the copy a store. The first SIGINT, SIGTERM or SIGHUP stops the standby in
order, the second at once; what it has acknowledged is durable either way. The log goes to standard error.

Examples:
  lessor standby run --addr lessor-1:7420 --tls --token-file ann.token --data /var/lib/lessor-standby
  lessor standby run --data ./copy --name rack-2 --json`
}

// following is what lessor standby run --json prints when the copy is complete.
type following struct {
	Coordinator string `json:"following"`
	Data        string `json:"data"`
	Name        string `json:"name"`
}

func (f following) String() string { return "following " + f.Coordinator + ": complete in " + f.Data }

func (c standbyRunCmd) Run(a *app) error {
	tuneGC()
	defer a.catchSignalsButQuit()()
	log, err := c.Log.logger(a)
	if err != nil {
		return err
	}
	defer context.AfterFunc(a.stopNow, func() { os.Exit(a.end(context.Cause(a.stopNow))) })()
	a.warnStrays(log)
	warnExposed(log, "--token-file", c.TokenFile)
	warnExposed(log, "--tls-key", c.TLSKey)
	var httpLis net.Listener
	if c.HTTP != "" {
		if httpLis, err = listenTCP("http", c.HTTP); err != nil {
			return err
		}
		defer func() { _ = httpLis.Close() }()
		log.Info("serving", "http", httpLis.Addr().String())
	}
	return c.with(a, func(cl *client) error {
		opened := whileOpening(a, coordinator.Config{Logger: log}, httpLis)
		defer opened()
		place, err := boltstore.OpenStandby(c.Data, c.Addr, boltstore.Options{Logger: log})
		opened()
		if err != nil {
			return storeError(c.Data, err)
		}
		tellReady(log, "connecting to "+c.Addr)
		defer tellWhenStopping(a.ctx, log)()
		return errors.Join(c.follow(a, cl, place, httpLis, log), place.Close())
	})
}

// follow follows the coordinator until the command is stopped, and prints when the copy is
// complete: it goes on even if nobody takes the output, or that fails.
func (c standbyRunCmd) follow(
	a *app, cl *client, place *boltstore.Standby, httpLis net.Listener, log *slog.Logger,
) error {
	host, _ := os.Hostname()
	told := following{Coordinator: c.Addr, Data: c.Data, Name: cmp.Or(c.Name, host, "standby")}
	f := newFollower(cl.admin, told.Name, place, log)
	if httpLis != nil {
		defer servePages(httpLis, f.state.pages(), log)()
	}
	var once sync.Once
	f.onComplete = func() {
		once.Do(func() {
			go func() {
				tellManager(log, "STATUS="+told.String())
				a.announce(log, told, told.String())
			}()
		})
	}
	return standbyError(told, cmp.Or(f.run(a.ctx), f.close()))
}

// standbyError returns the error for one with which following ended.
func standbyError(f following, err error) error {
	var other *standby.OtherStoreError
	switch {
	case errors.As(err, new(*failure)):
		return err
	case errors.As(err, new(*store.DamagedError)), errors.As(err, new(*store.CorruptError)):
		return fail(exitStore, "keep "+f.Data+" for analysis if you like, and begin anew with an empty directory", "%v", err)
	case errors.As(err, &other) && other.Older:
		return fail(exitCannotStart, "the copy was kept: to go on with what it has, stop that coordinator for good and promote it; to go on without, begin in an empty directory",
			"%s: %v", f.Coordinator, other)
	case errors.As(err, &other):
		return fail(exitCannotStart, "the copy was kept: promote it if the coordinator has lost its store; to follow the other store, begin in an empty directory",
			"%s: %v", f.Coordinator, other)
	case errors.As(err, new(replicaError)):
		return storeFailed(err)
	}
	return err
}
