package main

import (
	"context"
	"net"
	"time"

	"github.com/lessor-dev/lessor/store/boltstore"
)

// standbyPromoteCmd is lessor standby promote.
type standbyPromoteCmd struct {
	Dir   string `type:"file" arg:"" placeholder:"DIR" help:"Directory of a standby that does not run."`
	Force bool   `typed:"" help:"Promote the copy even if something listens at the address that the standby followed."`
}

// Help is shown below the flags.
func (standbyPromoteCmd) Help() string {
	return `Makes the copy in DIR a store, for lessor serve --data DIR. Stop the old coordinator for good first, and then the standby: two coordinators with copies
of one store would grant the same tasks. While something still listens at the address that
the standby followed, the command refuses. The copy is verified. The store begins a new epoch, as after lessor restore: leases that were open in the copy
end at the first start, which does not count as a loss, and holders of leases that were granted later get COORDINATOR_RECOVERED. What the old coordinator
acknowledged after the last commit of the copy is missing.

Example:
  lessor standby promote /var/lib/lessor-standby`
}

func (c standbyPromoteCmd) Run(a *app) error {
	if err := requireClock(time.Now()); err != nil {
		return err
	}
	if err := c.requireSilence(a.ctx); err != nil {
		return err
	}
	done := restored{Data: c.Dir}
	err := boltstore.Promote(c.Dir, boltstore.Options{}, done.prepare(a))
	if f, broken := brokenStore(err); broken {
		return fail(exitFailed, "promote another standby, or restore a backup",
			"the copy in %s cannot be promoted: %s", c.Dir, f.Problem)
	}
	if err != nil {
		return storeError(c.Dir, err)
	}
	return unheard(a.line(done, done.text("copy")), "", "the copy in %s was promoted", c.Dir)
}

// requireSilence refuses to promote the copy of a coordinator that still listens. It does not
// notice one that this machine cannot reach.
func (c standbyPromoteCmd) requireSilence(ctx context.Context) error {
	source := boltstore.StandbySource(c.Dir)
	if c.Force || source == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", source)
	if err != nil {
		return nil //nolint:nilerr // an address at which nobody answers is what we want
	}
	_ = conn.Close()
	return fail(exitFailed, "stop the old coordinator for good first; if it is not what listens there, but for example a proxy, use --force",
		"something listens at %s, which the standby followed", source)
}

// sourceTimeout is how long a promotion waits for an answer from the old coordinator.
const sourceTimeout = 2 * time.Second
