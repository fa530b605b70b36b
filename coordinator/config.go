package coordinator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/porch"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/lease"
)

// Config of a coordinator. The zero value runs.
type Config struct {
	// Logger takes the log; nil: slog.Default. Payloads and lease ids never reach it.
	Logger *slog.Logger
	// Limits of sizes (S7). A field that is 0 takes its default from lease.DefaultLimits.
	Limits lease.Limits
	// Version of the software, told by GetStatus and to workers. Empty: "dev".
	Version string
	// Sessions governs the streams of workers.
	Sessions session.Config
	// Callbacks governs what workers without gRPC say over HTTP.
	Callbacks Callbacks
	// Recovery is what becomes of the leases of before the start; the zero value lets them live on (A9).
	Recovery engine.Recovery
	// Backup governs AdminService.Backup.
	Backup Backup
	// Auth asks every caller for a credential. nil: everyone who reaches the listeners is gate.DefaultTenant and may do everything.
	Auth *gate.Auth
	// TLS is the transport of both listeners, client certificates included. nil: plain text.
	TLS *tls.Config
	// DiskFull reports whether the disk of the store is so full that no tasks should be taken in. nil: it never is.
	DiskFull func() bool
	// StoreGone reports whether the file of the store was moved or removed while it is open. nil: it never is.
	StoreGone func() bool
	// AuditRetention is how long entries of the audit are kept (X4); 0: audit.DefaultRetention, at least audit.MinRetention.
	AuditRetention time.Duration
	// Quotas say what tenants and their credentials may use (X5). The zero value never comes into the way of a single user.
	Quotas quota.Config
	// Connections bounds what is open before anybody has said who calls (X5).
	Connections porch.Connections
	// Pprof serves Go profiles under /debug/pprof/ of the HTTP listener; one of the processor is of at most 29 s.
	Pprof bool
}

// fill sets what was left zero.
func (c *Config) fill() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.DiskFull == nil {
		c.DiskFull = func() bool { return false }
	}
	if c.AuditRetention == 0 {
		c.AuditRetention = audit.DefaultRetention
	}
	c.Sessions.Fill()
	c.Callbacks.fill()
	c.Connections.Fill()
	c.Backup.fill()
	d := lease.DefaultLimits()
	for _, f := range []struct {
		field *int
		value int
	}{
		{&c.Limits.Payload, d.Payload},
		{&c.Limits.Output, d.Output},
		{&c.Limits.ID, d.ID},
		{&c.Limits.Labels, d.Labels},
		{&c.Limits.Checkpoint, d.Checkpoint},
		{&c.Limits.Stack, d.Stack},
		{&c.Limits.Discarded, d.Discarded},
		{&c.Limits.Batch, d.Batch},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
}

// Validate reports the first setting that is out of its range, with the range; New refuses what it refuses. Nothing but the settings
// is looked at.
func (c Config) Validate() error {
	c.fill()
	return c.validate()
}

// maxInline bounds payload and output, which lie in memory whole, several times over, while they pass.
const maxInline = 64 << 20

func (c *Config) validate() error {
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"payload", c.Limits.Payload, 1, maxInline},
		{"output", c.Limits.Output, 1, maxInline},
		{"id", c.Limits.ID, 32, 4096},
		{"labels", c.Limits.Labels, 1, 1024},
		{"checkpoint", c.Limits.Checkpoint, 1, maxInline},
		{"stack", c.Limits.Stack, 1, 1 << 20},
		{"discarded", c.Limits.Discarded, 1, maxInline},
		{"batch", c.Limits.Batch, 1, 10_000},
	} {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("limit %s is %d; the range is %d to %d", f.name, f.value, f.low, f.high)
		}
	}
	if c.AuditRetention < audit.MinRetention {
		return fmt.Errorf("audit retention is %v; at least %v", c.AuditRetention, audit.MinRetention)
	}
	return errors.Join(c.Backup.validate(), c.Callbacks.validate(), c.Quotas.Validate(), c.Connections.Validate(), c.Sessions.Validate())
}

// minMessage is the largest message where the limits ask for no larger one (S7).
const minMessage = 4 << 20

// maxMessage is the largest message that is read or sent. It leaves room for an output that is over its limit, which has to
// arrive to be refused by name (V11), and for a task with all that is kept of it.
func (c *Config) maxMessage() int {
	const rest = 512 << 10 // history, error and the like
	l := &c.Limits
	return max(minMessage, 2*(l.Payload+l.Output), l.Payload+l.Output+2*l.Checkpoint+lease.MaxDiscarded*l.Discarded+rest)
}
