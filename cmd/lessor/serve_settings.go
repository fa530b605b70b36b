package main

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/standby"
)

// maxReserve is the largest disk reserve, in MiB.
const maxReserve = 1 << 20

var recoveries = map[string]engine.Recovery{
	"keep": engine.KeepLeases, "invalidate": engine.InvalidateLeases, "restored": engine.RestoredStore,
}

// settings returns the configuration of the coordinator. The configuration is checked before serve
// changes anything on the machine: with wrong settings, serve opens no port and makes no store.
func (c serveCmd) settings(log *slog.Logger) (cfg coordinator.Config, err error) {
	switch {
	case c.Data == "": // type:"file" would refuse an empty LESSOR_DATA even if the flag is given
		return cfg, fail(exitUsage, "name a directory", "--data: must not be empty")
	case c.HTTP == "" && c.Pprof:
		return cfg, fail(exitUsage, "", "--pprof: needs --http")
	case c.HTTP == "" && c.CallbackURL != "":
		return cfg, fail(exitUsage, "", "--callback-url: needs --http")
	case c.Reserve < 0 || c.Reserve > maxReserve:
		return cfg, fail(exitUsage, "a plain number is MiB; name the unit, such as 512MiB or 2GB",
			"--disk-reserve: is %d MiB; the range is 0 to %d MiB", c.Reserve, maxReserve)
	}
	if recoveries[c.Recovery] == engine.RestoredStore {
		if err := requireClock(time.Now()); err != nil {
			return cfg, err
		}
	}
	cfg = coordinator.Config{
		Logger:   log,
		Version:  buildVersion(),
		Recovery: recoveries[c.Recovery],
		Pprof:    c.Pprof,
		Callbacks: coordinator.Callbacks{
			URL: c.CallbackURL, TokenTTL: c.TaskTokenTTL,
		},
		Backup:   coordinator.Backup(c.Backup),
		Standbys: standby.Options{Buffer: int64(c.Standby.Buffer), Wait: c.Standby.Wait},
		Limits: lease.Limits{
			Payload:    int(c.Limit.Payload),
			Output:     int(c.Limit.Output),
			Checkpoint: int(c.Limit.Checkpoint),
			Discarded:  int(c.Limit.Discarded),
			Batch:      c.Limit.Batch,
		},
		Connections: c.Max.connections(),
	}
	var ofSessions, ofQuotas error
	cfg.Sessions, ofSessions = c.Session.with(c.Health)
	cfg.Quotas, ofQuotas = c.Quotas.read()
	if err = c.Access.apply(&cfg); err != nil {
		return cfg, err
	}
	if err = errors.Join(ofQuotas, ofSessions, withFlags(cfg.Validate())); err != nil {
		return cfg, fail(exitUsage, "", "%s", err)
	}
	return cfg, nil
}

// inFlag returns an error, which may have several lines, with the name of a flag before each line.
func inFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	begin := "--" + flag + ": "
	return errors.New(begin + strings.ReplaceAll(err.Error(), "\n", "\n"+begin))
}

// settingFlags are what the errors of coordinator.Config.Validate begin with, and the flags that
// set that.
var settingFlags = [][2]string{
	{"the payload limit is", "--limit-payload: is"},
	{"the output limit is", "--limit-output: is"},
	{"the checkpoint limit is", "--limit-checkpoint: is"},
	{"the discarded limit is", "--limit-discarded: is"},
	{"the batch limit is", "--limit-batch: is"},
	{"the audit retention is", "--audit-retention: is"},
	{"the backup timeout is", "--backup-timeout: is"},
	{"the backup stall time is", "--backup-stall: is"},
	{"task token ttl is", "--task-token-ttl: is"},
	{"callback URL", "--callback-url:"},
	// either may be wrong
	{"the limit of connections is", "--max-connections, --max-connections-of-address: the limit of connections is"},
	{"the heartbeat interval of sessions is", "--session-heartbeat-interval: is"},
	{"the idle timeout of sessions is", "--session-idle-timeout: is"},
	{"the send timeout of sessions is", "--session-send-timeout: is"},
	{"the resource wait of sessions is", "--session-resource-wait: is"},
	{"the memory threshold is", "--health-mem: is"},
	{"the disk threshold is", "--health-disk: is"},
	{"the number of missed heartbeats is", "--health-missed: is"},
	{"the time until a worker is saturated is", "--health-saturated-after: is"},
	{"tenant ", "--health-tenant: tenant "}, // the flags of quotas are checked one by one
}

// withFlags returns an error of coordinator.Config.Validate with the flags that set what is wrong.
func withFlags(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		for _, names := range settingFlags {
			if rest, ok := strings.CutPrefix(line, names[0]); ok {
				lines[i] = names[1] + rest
			}
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}
