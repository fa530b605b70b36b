package session

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Config is what the coordinator asks of workers that have a stream. A field that is 0 takes its default.
type Config struct {
	// HeartbeatInterval is how often a worker is to send a heartbeat frame, as accept tells it: 100 ms to 1 h. Default: 10 c.
	HeartbeatInterval time.Duration
	// IdleTimeout is how long a session may go without any frame: at least twice HeartbeatInterval, at most 24 h. Default: 1 min, or six
	// times HeartbeatInterval where that is more.
	IdleTimeout time.Duration
	// SendTimeout is how long a frame may wait to be read, until the session ends (W11): 1 s to 1 h. Default: 30 c.
	SendTimeout time.Duration
	// ResourceWait is how long a task waits for a worker that holds its resources and is not there, until it is FAILED, RESOURCE_GONE (W12): 1 s to
	// 24 h. Default: 1 min.
	ResourceWait time.Duration
	// Health says from where on a worker is not well (W9).
	Health Thresholds
	// TenantHealth has other thresholds for the workers of single tenants, by tenant. A threshold that is 0 is that of Health.
	TenantHealth map[string]Thresholds
}

// Thresholds say from where on a worker is not well (W9). One that is 0 takes its default.
type Thresholds struct {
	// MemPct and DiskPct are how full its memory and its disk may be, in percent, before it gets no new work; it gets some again when they
	// are 5 points lower. More than 5; more than 100 is never. Default: 90 and 95.
	MemPct, DiskPct float64
	// Missed is how many heartbeats in a row may be missed before the session is lost: 2 to 1,000. With one less the worker is DEGRADED and
	// gets no new work. Default: 3.
	Missed int
	// SaturatedAfter is how long all slots must be in use for the worker to be shown as saturated: up to 24 h. Default: 1 min.
	SaturatedAfter time.Duration
}

// NeverFull has thresholds that no memory and no disk reaches: for workers on the machine of the coordinator, where nobody else could have their work.
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

// Fill sets what was left zero.
func (c *Config) Fill() {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, defaultHeartbeat)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, max(defaultIdle, 6*c.HeartbeatInterval))
	c.SendTimeout = cmp.Or(c.SendTimeout, defaultSend)
	c.ResourceWait = cmp.Or(c.ResourceWait, lease.DefaultResourceWait)
	c.Health = c.Health.or(defaultThresholds())
}

// or is t with the thresholds that it lacks taken from others.
func (t Thresholds) or(others Thresholds) Thresholds {
	return Thresholds{
		MemPct: cmp.Or(t.MemPct, others.MemPct), DiskPct: cmp.Or(t.DiskPct, others.DiskPct),
		Missed: cmp.Or(t.Missed, others.Missed), SaturatedAfter: cmp.Or(t.SaturatedAfter, others.SaturatedAfter),
	}
}

// health are the thresholds for the workers of a tenant.
func (c *Config) health(tenant string) Thresholds { return c.TenantHealth[tenant].or(c.Health) }

// Validate reports the first setting that is out of its range, with the range.
func (c *Config) Validate() error {
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
			return fmt.Errorf("the %s of sessions is %v; the range is %v to %v", f.name, f.value, f.low, f.high)
		}
	}
	if err := c.Health.validate(); err != nil {
		return err
	}
	for tenant, t := range c.TenantHealth {
		if err := t.or(c.Health).validate(); err != nil {
			return fmt.Errorf("tenant %q: %w", tenant, err)
		}
	}
	return nil
}

// lowerBy is how many points a gauge must fall below its threshold before the worker gets new work.
const lowerBy = 5

func (t Thresholds) validate() error {
	for name, pct := range map[string]float64{"memory": t.MemPct, "disk": t.DiskPct} {
		if !(pct > lowerBy) { // also catches NaN
			return fmt.Errorf("the threshold of %s is %v %%; it must be more than %d", name, pct, lowerBy)
		}
	}
	if t.Missed < 2 || t.Missed > 1000 {
		return fmt.Errorf("the number of missed heartbeats is %d; the range is 2 to 1000", t.Missed)
	}
	if t.SaturatedAfter < 0 || t.SaturatedAfter > 24*time.Hour {
		return fmt.Errorf("the time until a worker is saturated is %v; the limit is 24h", t.SaturatedAfter)
	}
	return nil
}
