package coordinator

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Sessions is what the coordinator asks of workers that have a stream. A field that is 0 takes its default.
type Sessions struct {
	// HeartbeatInterval is how often a worker is to send a heartbeat frame, as accept tells it: 100 ms to 1 h. Default: 10 s.
	HeartbeatInterval time.Duration
	// IdleTimeout is how long a session may go without any frame: at least twice HeartbeatInterval, at most 24 h. Default: 1 min, or six
	// times HeartbeatInterval where that is more.
	IdleTimeout time.Duration
	// SendTimeout is how long a frame may wait to be read, until the session ends (W11): 1 s to 1 h. Default: 30 s.
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

// Defaults of Sessions.
const (
	sessionHeartbeat = 10 * time.Second
	sessionIdle      = time.Minute
	sendTimeout      = 30 * time.Second
)

func defaultThresholds() Thresholds {
	return Thresholds{MemPct: 90, DiskPct: 95, Missed: 3, SaturatedAfter: time.Minute}
}

func (s *Sessions) fill() {
	s.HeartbeatInterval = cmp.Or(s.HeartbeatInterval, sessionHeartbeat)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, max(sessionIdle, 6*s.HeartbeatInterval))
	s.SendTimeout = cmp.Or(s.SendTimeout, sendTimeout)
	s.ResourceWait = cmp.Or(s.ResourceWait, lease.DefaultResourceWait)
	s.Health = s.Health.or(defaultThresholds())
}

// or is t with the thresholds that it lacks taken from others.
func (t Thresholds) or(others Thresholds) Thresholds {
	return Thresholds{
		MemPct: cmp.Or(t.MemPct, others.MemPct), DiskPct: cmp.Or(t.DiskPct, others.DiskPct),
		Missed: cmp.Or(t.Missed, others.Missed), SaturatedAfter: cmp.Or(t.SaturatedAfter, others.SaturatedAfter),
	}
}

// health are the thresholds for the workers of a tenant.
func (s *Sessions) health(tenant string) Thresholds { return s.TenantHealth[tenant].or(s.Health) }

func (s *Sessions) validate() error {
	for _, f := range []struct {
		name             string
		value, low, high time.Duration
	}{
		{"heartbeat interval", s.HeartbeatInterval, 100 * time.Millisecond, time.Hour},
		{"idle timeout", s.IdleTimeout, 2 * s.HeartbeatInterval, 24 * time.Hour},
		{"send timeout", s.SendTimeout, time.Second, time.Hour},
		{"resource wait", s.ResourceWait, time.Second, 24 * time.Hour},
	} {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("the %s of sessions is %v; the range is %v to %v", f.name, f.value, f.low, f.high)
		}
	}
	if err := s.Health.validate(); err != nil {
		return err
	}
	for tenant, t := range s.TenantHealth {
		if err := t.or(s.Health).validate(); err != nil {
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
