package coordinator

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/lease"
)

// withWarnings returns the callbacks, nil ones of which are skipped, with a warning in the log
// about each slow commit, about each time for which the coordinator stood still that is as long,
// about each jump of the wall clock, and about each task that has failed because its workers were
// lost: otherwise leases would expire, or deadlines pass, without a word.
func withWarnings(told engine.Events, log *slog.Logger) engine.Events {
	events := told
	events.Committed = func(tasks int, took time.Duration) {
		if took >= engine.SlowCommit {
			log.Warn("the disk is slow", "commit", took)
		}
		if told.Committed != nil {
			told.Committed(tasks, took)
		}
	}
	events.StoodStill = func(by time.Duration) {
		if by >= engine.SlowCommit {
			log.Warn("the coordinator stood still: it was stopped, or had no processor time or memory", "for", by)
		}
		if told.StoodStill != nil {
			told.StoodStill(by)
		}
	}
	events.WallClockSet = func(by time.Duration) {
		log.Warn("the wall clock was set, or the machine slept: run_at, deadlines, retention and credentials follow it, leases do not", "by", by)
		if told.WallClockSet != nil {
			told.WallClockSet(by)
		}
	}
	events.Changed = func(before, after *lease.Task) {
		if before != nil && after != nil && before.Rest != after.Rest {
			warnOfLoss(log, after)
		}
		if told.Changed != nil {
			told.Changed(before, after)
		}
	}
	return events
}

// warnOfLoss says in the log that a task has just failed, if it did not fail by a report: nobody
// else tells of that.
func warnOfLoss(log *slog.Logger, t *lease.Task) {
	if t.Rest != lease.Failed {
		return
	}
	log = log.With("tenant", t.Tenant, "task_id", t.ID.String(), "queue", t.Spec.Queue)
	switch t.Reason {
	case lease.HeartbeatTimeout:
		log.Warn("a task is quarantined: too many workers were lost with it",
			"worker", t.Last.Worker, "losses", t.Losses, "cause", t.Last.Cause.String())
	case lease.DispatchUnavailable:
		log.Warn("a task has failed: no worker acknowledged it", "worker", t.Last.Worker, "grants", t.Unacked)
	case lease.ResourceGone:
		log.Warn("a task has failed: the worker that has its resources is gone")
	}
}

// commitCheckInterval is how often the commit under way is looked at.
const commitCheckInterval = time.Second

// slowCommits warns of a slow commit while it is under way: one on a disk that never answers has no
// end at which withWarnings could tell of it. It warns once when the commit is slow, and once when
// it is stuck.
type slowCommits struct {
	pending func() time.Duration // age of the commit under way
	log     *slog.Logger
	seen    time.Duration // what look saw last
	told    time.Duration // of which age of this commit the log tells: engine.SlowCommit, stuckCommit, or 0 for neither
}

func (s *slowCommits) look() {
	pending := s.pending()
	if pending < s.seen { // another commit
		s.told = 0
	}
	s.seen = pending
	switch {
	case pending >= stuckCommit && s.told < stuckCommit:
		s.told = stuckCommit
		s.log.Warn("the disk does not answer: nothing is acknowledged until the commit under way has ended",
			"under_way_for", pending)
	case pending >= engine.SlowCommit && s.told == 0:
		s.told = engine.SlowCommit
		s.log.Warn("the disk is slow: a commit is under way", "under_way_for", pending)
	}
}

// warnIfOpen says in the log that no credentials are required, if none are.
func (c *Coordinator) warnIfOpen(ctx context.Context, listen net.Addr) {
	if !c.gate.Open() {
		return
	}
	level := slog.LevelInfo // a socket in a directory, or one in memory, is for those who made it
	if _, ok := listen.(*net.TCPAddr); ok {
		level = slog.LevelWarn
	}
	c.cfg.Logger.Log(ctx, level, "no credentials are required: everyone who reaches the listener acts for the default tenant; use --auth to require credentials",
		"tenant", gate.DefaultTenant, "listen", listen.String())
}

// warnIfTokenless says in the log that callers need a token and that none is valid, if so. Only an
// operator issues tokens while the coordinator runs, so this does not change by itself.
func (c *Coordinator) warnIfTokenless() {
	if c.gate.Open() || c.takesCertificates() || c.gate.Keyring().AnyValid(time.Now()) {
		return
	}
	c.cfg.Logger.Warn("credentials are required and no token is valid, so every caller is refused. " +
		"Stop the coordinator, and run lessor token create --data DIR --tenant NAME --role operator --subject NAME --out FILE")
}

// takesCertificates reports whether client certificates are credentials.
func (c *Coordinator) takesCertificates() bool {
	current := currentTLS(c.cfg.TLS)
	return current != nil && current.ClientCAs != nil
}

// warnIfHostless says in the log that no operator of the host tenant has a valid token, if so: its
// name may be misspelled. While the coordinator runs, only an operator of a tenant issues tokens of
// it, so this does not change by itself. Whether there is a client certificate is not known before
// it is shown.
func (c *Coordinator) warnIfHostless() {
	host := c.cfg.HostTenant
	if host == "" || c.gate.Open() || c.gate.Keyring().HasOperator(host, time.Now()) {
		return
	}
	log := c.cfg.Logger.With("host_tenant", host)
	if c.takesCertificates() {
		log.Info("no operator of the host tenant has a valid token, so only one with a client certificate can take backups", "names", "lessor://"+host+"/operator/SUBJECT")
		return
	}
	log.Warn("no operator of the host tenant has a valid token, so nobody can take backups. " +
		"Correct --host-tenant, or stop the coordinator and run lessor token create --data DIR --tenant NAME --role operator")
}

// commitPending returns how long the disk has been busy with the commit under way. The time for
// which a commit waits for a standby does not count.
func (c *Coordinator) commitPending() time.Duration {
	waiting := c.feed.Waiting() // first, so that it is not longer
	return max(0, c.engine.CommitPending()-waiting)
}
