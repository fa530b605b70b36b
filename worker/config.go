package worker

import (
	"cmp"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/lessor-dev/lessor/worker/internal/text"
)

// Config holds the settings of a worker that have a default. The zero Config is usable. Names must
// not contain control characters.
type Config struct {
	// Name is the stable name of the worker, the same after a restart. Listings and the history of
	// tasks show it. Default: the name of the machine. At most 256 bytes.
	Name string
	// Version is the version of the worker's software, for listings; cut to 256 bytes. Default:
	// none.
	Version string
	// Tenant must be the tenant of the connection's credentials. Default: the worker takes over the
	// tenant that the coordinator names when it connects for the first time.
	Tenant string
	// Workspace is the namespace of the queues. Default: "default", the default of the coordinator.
	Workspace string
	// PoolID is the pool that the worker is of; shown to operators, nothing depends on it. Default:
	// none. At most 256 bytes.
	PoolID string
	// Concurrency is how many handlers run at once, 1 to 10,000. Default: the number of CPUs that
	// Go may use.
	Concurrency int

	// PerTypeLimits is how many handlers of a type run at once, 0 to 10,000, within Concurrency. A
	// type that is not in the map is limited by Concurrency alone; a type without a handler is
	// logged as a warning. A handler that still runs after its lease was lost counts until it
	// returns. At most 1,000 types.
	PerTypeLimits map[string]int
	// SingleFlight: at most one task of each concurrency key runs at a time in this worker, even if
	// more of them may run elsewhere. The worker refuses a task while another handler of its key
	// still runs, even if that handler has lost its lease (W14).
	SingleFlight bool
	// MaxBytes limits the total size of the payloads and checkpoints of the tasks in this worker,
	// in bytes. A task that is larger than the limit is given to this worker only while it has no
	// other task. A handler that still runs after its lease was lost is not counted. 0: no limit. A
	// checkpoint may count as up to twice its size. The coordinator passes over a task for which
	// there is no room, for 5 s; then the worker gets nothing else until there is room for it. With
	// MaxBytes or SingleFlight it looks at the first 64 tasks of a line only: if none suits, slots
	// may stay free.
	MaxBytes int64

	// Runtimes, Features, Labels and Resources are what this worker offers and tasks may require
	// (W12). A task that requires something that this worker does not offer goes to another worker.
	// At most 256 of each; names and values have at most 256 bytes. Resources are amounts in units
	// of your choice, such as "vram_gb": 80. They are compared with what a task requires; running
	// tasks do not use them up.
	Runtimes, Features []string
	Labels             map[string]string
	Resources          map[string]float64

	// Packages are what is installed when the worker starts, at most 256, each once; tasks may
	// require one (W13). Default: none.
	Packages []Package
	// Installer installs and removes packages when an operator asks for it. Default: the worker
	// does neither, and whoever asks for it is told.
	Installer Installer
	// InstallerTimeout is how long the Installer may take for one operation, before its context
	// ends; the longest time.Duration is for ever. Default 1 h.
	InstallerTimeout time.Duration

	// DrainTimeout is how long running handlers may go on after Run's context ended, before their
	// contexts end with ErrDraining, unless Worker.Drain says less; the longest time.Duration is
	// for ever. Default 30 s.
	DrainTimeout time.Duration
	// StopTimeout is how long Run then waits for handlers to return and for reports to get their
	// verdicts, before it gives them up. Default 5 s. Whoever kills a process that does not stop
	// must wait longer than DrainTimeout and StopTimeout together; Kubernetes waits for 30 s unless
	// it is told otherwise.
	StopTimeout time.Duration

	// MinBackoff is the first wait before the worker reconnects. Each further wait is twice as
	// long, up to MaxBackoff. The actual wait is random between half of that and all of it, and
	// comes after the wait that the coordinator asks for. While the worker holds leases it waits
	// for at most a quarter of the time that the first of them has left, but for at least half of
	// MinBackoff. Default 200 ms.
	MinBackoff time.Duration
	// MaxBackoff is the longest wait before the worker reconnects. At least MinBackoff. Default 10
	// s, or MinBackoff if that is longer.
	MaxBackoff time.Duration
	// ReportTries is how often a report is sent, while it gets no verdict because a stream broke or
	// the coordinator is overloaded, before it may be given up (K5). An outcome is not given up
	// before its lease has expired by this process's clock, unless the coordinator refuses its
	// frame or fails at it. A report that has its verdict is never sent again. Default 8.
	ReportTries int

	// OutputBuffer is how many bytes of Task.Output one attempt keeps until they are sent, 100 ms
	// later or when the stream is less slow. If there is more, the oldest output is dropped. At
	// least 8 KiB, at most a quarter of MaxMessageBytes. Default: what the largest Chunk takes,
	// some 97 KiB, or a quarter of MaxMessageBytes if that is less.
	OutputBuffer int
	// MaxMessageBytes is the size of the largest frame that the worker sends, in bytes. If the
	// coordinator reads less, it says so, and its limit holds. An outcome that does not fit is
	// reported as a failure that is not retried, with category CONFIGURATION. At least 256 KiB.
	// Default 4 MiB.
	MaxMessageBytes int

	// Disk is a path on the disk that heartbeats report on. When that disk is nearly full, the
	// coordinator gives this worker no new work (W9). It must exist when New is called. Default:
	// the working directory.
	Disk string
	// Metrics changes the gauges that each heartbeat of the worker carries. It gets the measured
	// gauges (mem_pct, disk_pct and cpu_pct, from 0 to 100, and inflight) and returns the gauges to
	// send, at most 64. It is never called twice at once. If it takes more than a second, that
	// heartbeat goes without gauges, the coordinator goes on with the last ones, and the new ones
	// follow. Default: the measured gauges are sent as they are.
	Metrics func(measured map[string]float64) map[string]float64

	// TracerProvider gets a span "execute TYPE" for each call of a handler for a task whose trace
	// is sampled (package go.opentelemetry.io/otel). It is a child of the coordinator's span of the
	// attempt, or of the producer's, and the handler's context has it. Default: the global
	// provider.
	TracerProvider trace.TracerProvider
	// Logger gets the worker's own messages; they never contain payloads or lease ids. Default:
	// slog.Default().
	Logger *slog.Logger
	// Hooks are called when something happens. Default: none.
	Hooks Hooks
}

const minMessageBytes = 256 << 10

// withDefaults returns c with the default for each field that is zero.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = defaultName()
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	c.Disk = cmp.Or(c.Disk, ".")
	c.Concurrency = cmp.Or(c.Concurrency, min(runtime.GOMAXPROCS(0), maxParallel))
	c.InstallerTimeout = cmp.Or(c.InstallerTimeout, time.Hour)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 5*time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, 200*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, max(10*time.Second, c.MinBackoff))
	c.ReportTries = cmp.Or(c.ReportTries, 8)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, leastLimit)
	c.OutputBuffer = cmp.Or(c.OutputBuffer, min(largestChunk, c.MaxMessageBytes/4))
	return c
}

// defaultName returns the host name of the machine, which is stable and which operators know.
func defaultName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "worker"
	}
	return clipID(name)
}

// validate checks a Config whose defaults are filled in.
func (c Config) validate() error {
	return cmp.Or(
		checkName("Config.Name", c.Name),
		checkName("Config.Tenant", cmp.Or(c.Tenant, firstTenant)),
		checkName("Config.Workspace", cmp.Or(c.Workspace, "default")),
		checkID("Config.PoolID", c.PoolID),
		checkRange("Config.Concurrency", c.Concurrency, 1, maxParallel),
		checkTypeLimits("Config.PerTypeLimits", c.PerTypeLimits),
		checkLeast("Config.MaxBytes", c.MaxBytes, 0),
		checkCapabilities(c),
		checkPackages(c.Packages),
		checkLeast("Config.InstallerTimeout", c.InstallerTimeout, 1),
		checkLeast("Config.DrainTimeout", c.DrainTimeout, 1),
		checkLeast("Config.StopTimeout", c.StopTimeout, 1),
		checkLeast("Config.MinBackoff", c.MinBackoff, 1),
		checkLeast("Config.MaxBackoff", c.MaxBackoff, c.MinBackoff),
		checkLeast("Config.ReportTries", c.ReportTries, 1),
		checkLeast("Config.MaxMessageBytes", c.MaxMessageBytes, minMessageBytes),
		checkRange("Config.OutputBuffer", c.OutputBuffer, maxChunk, c.MaxMessageBytes/4),
		checkDisk(c.Disk),
	)
}

// checkDisk checks that there is something to measure.
func checkDisk(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("worker: Config.Disk: %w", err)
	}
	return nil
}

// checkTypeLimits checks limits of types, which field names.
func checkTypeLimits(field string, limits map[string]int) error {
	return cmp.Or(
		checkCount(field, len(limits), maxTypes),
		firstError(maps.Keys(limits), func(t string) error {
			return cmp.Or(checkID("a type in "+field, t), checkRange(entry(field, t), limits[t], 0, maxParallel))
		}),
	)
}

// checkCapabilities checks Runtimes, Features, Labels and Resources.
func checkCapabilities(c Config) error {
	return cmp.Or(
		checkCount("Config.Runtimes", len(c.Runtimes), maxCapabilities),
		checkCount("Config.Features", len(c.Features), maxCapabilities),
		checkCount("Config.Labels", len(c.Labels), maxCapabilities),
		checkCount("Config.Resources", len(c.Resources), maxCapabilities),
		firstError(slices.Values(c.Runtimes),
			func(name string) error { return checkName("a name in Config.Runtimes", name) }),
		firstError(slices.Values(c.Features),
			func(name string) error { return checkName("a name in Config.Features", name) }),
		firstError(maps.Keys(c.Labels), func(name string) error {
			const field = "a name in Config.Labels"
			return cmp.Or(checkNotEmpty(field, name), checkText(field, name),
				checkText("a value in Config.Labels", c.Labels[name]))
		}),
		firstError(maps.Keys(c.Resources), func(name string) error {
			return cmp.Or(checkName("a name in Config.Resources", name),
				checkAmount(entry("Config.Resources", name), c.Resources[name]))
		}),
	)
}

// entry names one entry of a map.
func entry(field, key string) string { return fmt.Sprintf("%s[%q]", field, key) }

func firstError(names iter.Seq[string], check func(string) error) error {
	for name := range names {
		if err := check(name); err != nil {
			return err
		}
	}
	return nil
}

func checkAmount(field string, amount float64) error {
	if !(amount >= 0) || math.IsInf(amount, 0) { // also NaN
		return fmt.Errorf("worker: %s is %v; it must be finite and not negative", field, amount)
	}
	return nil
}

// validateQueues checks the queues of a worker.
func validateQueues(queues []string) error {
	if len(queues) == 0 || len(queues) > maxQueues {
		return fmt.Errorf("worker: there are %d queues; 1 to %d are allowed", len(queues), maxQueues)
	}
	return firstError(slices.Values(queues), func(name string) error { return checkName("queue", name) })
}

// checkName checks an identifier that must not be empty.
func checkName(field, name string) error {
	return cmp.Or(checkNotEmpty(field, name), checkID(field, name))
}

func checkNotEmpty(field, text string) error {
	if text == "" {
		return fmt.Errorf("worker: %s must not be empty", field)
	}
	return nil
}

// checkID checks an identifier, which may be empty.
func checkID(field, id string) error { return text.CheckID("worker: "+field, id) }

// checkText checks free text.
func checkText(field, free string) error { return text.Check("worker: "+field, free) }

func checkCount(field string, n, most int) error {
	if n > most {
		return fmt.Errorf("worker: %s has %d entries; at most %d are allowed", field, n, most)
	}
	return nil
}

func checkRange(field string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("worker: %s is %d; %d to %d are allowed", field, value, least, most)
	}
	return nil
}

func checkLeast[T int | int64 | time.Duration](field string, value, least T) error {
	if value < least {
		return fmt.Errorf("worker: %s is %v; it must be at least %v", field, value, least)
	}
	return nil
}
