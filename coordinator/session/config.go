package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Config holds the settings of sessions. A field that is 0 takes its default.
type Config struct {
	// HeartbeatInterval is how often a worker has to send a heartbeat frame: 100 ms to 1 h. The
	// accept frame carries it. Default: 10 s.
	HeartbeatInterval time.Duration
	// IdleTimeout is how long a session may go without any frame from the worker: at least twice
	// HeartbeatInterval, at most 24 h. Default: 1 min, or six times HeartbeatInterval if that is
	// more.
	IdleTimeout time.Duration
	// SendTimeout is how long the worker may take to read a frame before the session ends (W11): 1
	// s to 1 h. Default: 30 s.
	SendTimeout time.Duration
	// ResourceWait is how long a task waits for an absent worker that holds its resources before it
	// is FAILED with RESOURCE_GONE (W12): 1 s to 24 h. Default: 1 min.
	ResourceWait time.Duration
	// Health says when a worker is not well (W9).
	Health Thresholds
	// TenantHealth has the thresholds for the workers of some tenants, by tenant. A threshold that
	// is 0 is taken from Health.
	TenantHealth map[string]Thresholds
}

// Thresholds say when a worker is not well (W9). A threshold that is 0 takes its default.
type Thresholds struct {
	// MemPct and DiskPct are limits for how full the memory and the disk of the worker are, in
	// percent. A worker that reaches a limit gets no new work until it is 5 points below. They must
	// be more than 5; with more than 100, no worker reaches them. Default: 90 and 95.
	MemPct, DiskPct float64
	// Missed is the number of missed heartbeats in a row at which the session ends: 2 to 1,000. At
	// one less, the worker is DEGRADED and gets no new work. Default: 3.
	Missed int
	// SaturatedAfter is how long all slots must be in use before the worker is shown as saturated:
	// up to 24 h. Default: 1 min.
	SaturatedAfter time.Duration
}

// NeverFull has thresholds that no memory and no disk reaches. It is for workers on the
// coordinator's own machine: if these stopped, no other worker could take their work.
var NeverFull = Thresholds{MemPct: 101, DiskPct: 101}

// Defaults of Config.
const (
	defaultHeartbeat = 10 * time.Second
	defaultIdle      = time.Minute
	defaultSend      = 30 * time.Second
)

func defaultThresholds() Thresholds {
	return Thresholds{MemPct: 90, DiskPct: 95, Missed: 3, SaturatedAfter: time.Minute}
}

// Fill sets the fields that are 0 to their defaults.
func (c *Config) Fill() {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, defaultHeartbeat)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, max(defaultIdle, 6*c.HeartbeatInterval))
	c.SendTimeout = cmp.Or(c.SendTimeout, defaultSend)
	c.ResourceWait = cmp.Or(c.ResourceWait, lease.DefaultResourceWait)
	c.Health = c.Health.or(defaultThresholds())
}

// or returns t, with the thresholds that are 0 taken from others.
func (t Thresholds) or(others Thresholds) Thresholds {
	return Thresholds{
		MemPct: cmp.Or(t.MemPct, others.MemPct), DiskPct: cmp.Or(t.DiskPct, others.DiskPct),
		Missed: cmp.Or(t.Missed, others.Missed), SaturatedAfter: cmp.Or(t.SaturatedAfter, others.SaturatedAfter),
	}
}

// health returns the thresholds for the workers of a tenant.
func (c *Config) health(tenant string) Thresholds { return c.TenantHealth[tenant].or(c.Health) }

// Validate reports the settings that are out of their range, each with the range.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name             string
		value, low, high time.Duration
	}{
		{"heartbeat interval", c.HeartbeatInterval, 100 * time.Millisecond, time.Hour},
		{"idle timeout", c.IdleTimeout, 2 * c.HeartbeatInterval, 24 * time.Hour},
		{"send timeout", c.SendTimeout, time.Second, time.Hour},
		{"resource wait", c.ResourceWait, time.Second, 24 * time.Hour},
	} {
		if f.value < f.low || f.value > f.high {
			errs = append(errs, fmt.Errorf("the %s of sessions is %v; the range is %v to %v", f.name, f.value, f.low, f.high))
		}
	}
	errs = append(errs, c.Health.validate()...)
	for _, tenant := range slices.Sorted(maps.Keys(c.TenantHealth)) {
		own := c.TenantHealth[tenant]
		for _, err := range own.or(defaultThresholds()).validate() { // not c.Health, which is reported already
			errs = append(errs, fmt.Errorf("tenant %q: %w", tenant, err))
		}
	}
	return errors.Join(errs...)
}

// lowerBy is how many percentage points a gauge must fall below its threshold before the worker
// gets new work again.
const lowerBy = 5

func (t Thresholds) validate() (errs []error) {
	for _, f := range []struct {
		name string
		pct  float64
	}{{"memory", t.MemPct}, {"disk", t.DiskPct}} {
		if !(f.pct > lowerBy) { // also catches NaN
			errs = append(errs, fmt.Errorf("the %s threshold is %v %%; it must be more than %d %%", f.name, f.pct, lowerBy))
		}
	}
	if t.Missed < 2 || t.Missed > 1000 {
		errs = append(errs, fmt.Errorf("the number of missed heartbeats is %d; the range is 2 to 1000", t.Missed))
	}
	if t.SaturatedAfter < 0 || t.SaturatedAfter > 24*time.Hour {
		errs = append(errs, fmt.Errorf("the time until a worker is saturated is %v; the limit is 24h", t.SaturatedAfter))
	}
	return errs
}
