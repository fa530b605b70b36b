package coordinator

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
)

// withWarnings returns the callbacks with a warning in the log about each slow commit, about each time for which the coordinator stood still that is as long, and
// about each jump of the wall clock: otherwise leases would expire, or deadlines pass, without a word.
func withWarnings(events engine.Events, log *slog.Logger) engine.Events {
	committed := events.Committed
	events.Committed = func(tasks int, took time.Duration) {
		if took >= engine.SlowCommit {
			log.Warn("the disk is slow", "commit", took)
		}
		committed(tasks, took)
	}
	events.StoodStill = func(by time.Duration) {
		if by >= engine.SlowCommit {
			log.Warn("the coordinator stood still: it was stopped, or had no processor time or memory", "for", by)
		}
	}
	set := events.WallClockSet
	events.WallClockSet = func(by time.Duration) {
		log.Warn("the wall clock was set, or the machine slept: run_at, deadlines, retention and credentials follow it, leases do not", "by", by)
		set(by)
	}
	return events
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
