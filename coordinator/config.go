package coordinator

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/standby"
)

// Config configures a coordinator. The zero value is valid.
type Config struct {
	// Logger receives the log; nil: slog.Default. Payloads and lease ids are never logged.
	Logger *slog.Logger
	// Limits holds the limits of sizes (S7). A field that is 0 takes its default from
	// lease.DefaultLimits.
	Limits lease.Limits
	// Version is the software version that GetStatus and the sessions of workers report. Empty:
	// "dev".
	Version string
	// Sessions configures the streams of workers.
	Sessions session.Config
	// Callbacks configures how workers without gRPC report over HTTP.
	Callbacks Callbacks
	// Recovery says what New does with leases that were granted before this start. The zero value
	// keeps them (A9).
	Recovery engine.Recovery
	// Backup configures AdminService.Backup.
	Backup Backup
	// Standbys says what is kept for standbys, which AdminService.FollowStore serves.
	Standbys standby.Options
	// Auth says which credentials callers need. nil: none; then every caller belongs to the tenant
	// gate.DefaultTenant and may call everything.
	Auth *gate.Auth
	// HostTenant is the tenant whose operators run the coordinator itself. Only they may take
	// backups and run standbys, which hold the data of all tenants; and only they and its viewers
	// read what each tenant has, and the metrics of all. Empty: nobody may, but metrics and
	// profiles are for every tenant. Without Auth it has no meaning.
	HostTenant string
	// TLS is the TLS configuration of both listeners, client certificates included. nil: plain
	// text.
	TLS *tls.Config
	// DiskFull reports whether the disk of the store is so full that no new tasks should be
	// accepted. nil: always false.
	DiskFull func() bool
	// DiskSpent reports whether it is so full that no tasks should be granted, either. nil: always
	// false.
	DiskSpent func() bool
	// DiskRoom returns the free space of the disk of the store, from how much on new tasks are
	// accepted whatever room is inside the store, and with how much room inside they are accepted
	// if the disk has no more than now: all in bytes. nil: unknown.
	DiskRoom func() (free, needed, inside int64)
	// StoreGone reports whether the file of the store was moved or removed while it is open. nil:
	// always false.
	StoreGone func() bool
	// Wall returns what the wall clock shows when that of the machine shows t; only tests of faults
	// set it. nil: the same.
	Wall func(t time.Time) time.Time
	// LogDropped returns how many lines of the log were dropped since the start, for example
	// because nobody took them. nil: none.
	LogDropped func() uint64
	// AuditRetention is how long entries of the audit are kept (X4). The minimum is
	// audit.MinRetention; 0 means audit.DefaultRetention.
	AuditRetention time.Duration
	// Quotas says what tenants and their credentials may use (X5). The limits of the zero value are
	// high enough for a single user.
	Quotas quota.Config
	// Connections bounds the connections that may be open (X5).
	Connections preauth.Connections
	// TracerProvider receives the spans of calls and of tasks (package tracing); the ids of its
	// spans must come from tracing.IDs. nil: none are made.
	TracerProvider trace.TracerProvider
	// Pprof serves Go profiles under /debug/pprof/ of the HTTP listener. A CPU profile or an
	// execution trace must be shorter than httpserver.WriteTimeout: in whole seconds, at most 29 s.
	Pprof bool

	fakeTime bool // see package bubble
}

// fill gives each field that is zero its default.
func (c *Config) fill() {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Version = cmp.Or(c.Version, "dev")
	c.AuditRetention = cmp.Or(c.AuditRetention, audit.DefaultRetention)
	if c.DiskFull == nil {
		c.DiskFull = func() bool { return false }
	}
	if c.DiskSpent == nil {
		c.DiskSpent = func() bool { return false }
	}
	if c.StoreGone == nil {
		c.StoreGone = func() bool { return false }
	}
	if c.LogDropped == nil {
		c.LogDropped = func() uint64 { return 0 }
	}
	c.Sessions.Fill()
	c.Callbacks.fill()
	c.Connections.Fill()
	c.Backup.fill()
	l, d := &c.Limits, lease.DefaultLimits()
	l.Payload, l.Output = cmp.Or(l.Payload, d.Payload), cmp.Or(l.Output, d.Output)
	l.ID, l.Labels = cmp.Or(l.ID, d.ID), cmp.Or(l.Labels, d.Labels)
	l.Checkpoint, l.Stack = cmp.Or(l.Checkpoint, d.Checkpoint), cmp.Or(l.Stack, d.Stack)
	l.Discarded, l.Batch = cmp.Or(l.Discarded, d.Discarded), cmp.Or(l.Batch, d.Batch)
}

// Validate returns an error that names settings that are out of range, and the range. New returns
// the same error. Validate checks only the settings themselves: it does not touch files or the
// network.
func (c Config) Validate() error {
	c.fill()
	return c.validate()
}

// maxInline is the greatest limit that may be set for each of payload, output, checkpoint and
// discarded result, in bytes. A call holds them in memory as a whole, in several copies.
const maxInline = 64 << 20

func (c *Config) validate() error {
	return errors.Join(
		validateLimits(c.Limits), validateAudit(c.AuditRetention), c.Backup.validate(),
		validateStandbys(c.Standbys), c.Callbacks.validate(),
		c.Quotas.Validate(), c.Connections.Validate(), c.Sessions.Validate(),
	)
}

func validateLimits(l lease.Limits) error {
	var errs []error
	for _, f := range []struct {
		name, unit       string
		value, low, high int
	}{
		{"payload", "bytes", l.Payload, 1, maxInline},
		{"output", "bytes", l.Output, 1, maxInline},
		{"id", "bytes", l.ID, 32, 4096},
		{"labels", "labels", l.Labels, 1, 1024},
		{"checkpoint", "bytes", l.Checkpoint, 1, maxInline},
		{"stack", "bytes", l.Stack, 1, 1 << 20},
		{"discarded", "bytes", l.Discarded, 1, maxInline},
		{"batch", "tasks", l.Batch, 1, 10_000},
	} {
		if f.value < f.low || f.value > f.high {
			errs = append(errs, fmt.Errorf("the %s limit is %d %s; the range is %d to %d",
				f.name, f.value, f.unit, f.low, f.high))
		}
	}
	return errors.Join(errs...)
}

func validateAudit(retention time.Duration) error {
	if retention < audit.MinRetention {
		return fmt.Errorf("the audit retention is %v; it must be at least %v", retention, audit.MinRetention)
	}
	return nil
}

func validateStandbys(o standby.Options) error {
	var errs []error
	if o.Buffer < 0 {
		errs = append(errs, fmt.Errorf("the buffer for standbys is %d bytes; it cannot be negative", o.Buffer))
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"hold time for standbys", o.Hold},
		{"check interval of standbys", o.Check},
		{"wait for standbys", o.Wait},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("the %s is %v; it cannot be negative", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// minMessage is the smallest value that maxMessage returns, in bytes (S7).
const minMessage = 4 << 20

// maxMessage returns the largest message that is read or sent, in bytes. It leaves room for two
// cases. A Complete whose output is over the limit must arrive, so that the answer can name the
// limit (V11). And a task must fit with everything that the store keeps of it.
func (c *Config) maxMessage() int {
	const rest = 512 << 10 // history, error and the like
	l := &c.Limits
	return max(minMessage, 2*(l.Payload+l.Output),
		l.Payload+l.Output+2*l.Checkpoint+lease.MaxDiscarded*l.Discarded+rest)
}
