package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/coordinator/session"
)

// sessionFlags are the flags for sessions of workers: intervals and timeouts.
type sessionFlags struct {
	HeartbeatInterval time.Duration `type:"positive" placeholder:"DURATION" help:"How often a worker must send a heartbeat (10s)."`
	IdleTimeout       time.Duration `type:"positive" placeholder:"DURATION" help:"How long a session may go without any frame (1m, or six heartbeat intervals)."`
	SendTimeout       time.Duration `type:"positive" placeholder:"DURATION" help:"How long a frame may wait until the worker reads it (30s)."`
	ResourceWait      time.Duration `type:"positive" placeholder:"DURATION" help:"How long a task waits for a disconnected worker that holds its resources (1m)."`
}

// healthFlags say when a worker counts as not well (W9).
type healthFlags struct {
	Mem            float64           `type:"positive" placeholder:"PERCENT" help:"Give a worker no new work while its memory is this full, until it is 5 points lower (90); more than 100 means never."`
	Disk           float64           `type:"positive" placeholder:"PERCENT" help:"Give a worker no new work while its disk is this full, until it is 5 points lower (95); more than 100 means never."`
	Missed         int               `type:"positive" placeholder:"N" help:"Missed heartbeats after which a session is lost (3)."`
	SaturatedAfter time.Duration     `type:"positive" placeholder:"DURATION" help:"Time with all slots in use after which a worker is shown as saturated (1m)."`
	Tenant         map[string]string `placeholder:"TENANT.KEY=VALUE" help:"One of these thresholds for the workers of one tenant: acme.mem=80, with mem, disk, missed or saturated-after. Repeatable."`
}

func (s sessionFlags) with(h healthFlags) (session.Config, error) {
	tenants, err := h.tenants()
	return session.Config{
		HeartbeatInterval: s.HeartbeatInterval,
		IdleTimeout:       s.IdleTimeout,
		SendTimeout:       s.SendTimeout,
		ResourceWait:      s.ResourceWait,
		Health: session.Thresholds{
			MemPct:         h.Mem,
			DiskPct:        h.Disk,
			Missed:         h.Missed,
			SaturatedAfter: h.SaturatedAfter,
		},
		TenantHealth: tenants,
	}, err
}

// tenants parses the thresholds for single tenants.
func (h healthFlags) tenants() (map[string]session.Thresholds, error) {
	all := map[string]session.Thresholds{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(h.Tenant)) {
		at := strings.LastIndexByte(name, '.')
		if at < 1 {
			errs = append(errs, fmt.Errorf("%q is not of the form TENANT.KEY, such as acme.mem", name))
			continue
		}
		t := all[name[:at]]
		if err := setThreshold(&t, name[at+1:], h.Tenant[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", name, h.Tenant[name], err))
			continue
		}
		all[name[:at]] = t
	}
	return all, inFlag("health-tenant", errors.Join(errs...))
}

// setThreshold sets one threshold. It refuses 0, which in Thresholds means the default.
func setThreshold(t *session.Thresholds, key, value string) (err error) {
	want, positive := "a number above 0", false
	switch key {
	case "mem":
		t.MemPct, err = strconv.ParseFloat(value, 64)
		positive = t.MemPct > 0
	case "disk":
		t.DiskPct, err = strconv.ParseFloat(value, 64)
		positive = t.DiskPct > 0
	case "missed":
		want = "a whole number above 0"
		t.Missed, err = strconv.Atoi(value)
		positive = t.Missed > 0
	case "saturated-after":
		want = "a duration such as 90s"
		t.SaturatedAfter, err = time.ParseDuration(value)
		positive = t.SaturatedAfter > 0
	default:
		return fail(exitUsage, "", "unknown key %q; the keys are mem, disk, missed and saturated-after", key)
	}
	if err != nil || !positive {
		return fail(exitUsage, "", "%q is not %s", value, want)
	}
	return nil
}
