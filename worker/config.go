package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"
	"unicode/utf8"
)

// Config is everything about a worker that has a good default. The zero Config runs.
type Config struct {
	// Name is the worker's stable name, the same after a restart; it is shown in listings and in the history of tasks.
	// Default: the name of the machine. At most 256 bytes.
	Name string
	// Version is the version of the worker's software, for listings. Default: none.
	Version string
	// Tenant must be the one that the connection's credentials belong to. Default "default".
	Tenant string
	// Workspace is the namespace of the queues. Default: the coordinator's, "default".
	Workspace string
	// Concurrency is how many handlers run at once, 1 to 10,000. Default: the number of CPUs that Go may use.
	Concurrency int

	// DrainTimeout is how long running handlers may go on after Run's context ended, before their contexts end with
	// ErrDraining. Default 30 s.
	DrainTimeout time.Duration
	// StopTimeout is how long handlers may then take to return, and reports to be answered, before Run gives them up.
	// Default 5 s.
	StopTimeout time.Duration

	// MinBackoff is the first wait before connecting again, drawn from its upper half; each further wait is twice as
	// long. Default 200 ms.
	MinBackoff time.Duration
	// MaxBackoff is the longest wait before connecting again. At least MinBackoff. Default 10 s.
	MaxBackoff time.Duration
	// ReportTries is how often a report is sent when it gets no verdict: a broken stream or an overloaded coordinator
	// (K5). A verdict is never asked for twice. Default 8.
	ReportTries int

	// OutputBuffer is how many bytes of Task.Output one attempt keeps while the stream is slow; beyond, the oldest are
	// dropped. At least 8 KiB, at most a quarter of MaxMessageBytes. Default 64 KiB.
	OutputBuffer int
	// MaxMessageBytes is the largest frame, both ways; the coordinator's limit must not be smaller. An outcome that does
	// not fit is reported as a failure. At least 256 KiB. Default 4 MiB.
	MaxMessageBytes int

	// Logger gets the worker's own words; payloads and lease ids are never among them. Default: slog.Default().
	Logger *slog.Logger
	// Hooks observe. Default: none.
	Hooks Hooks
}

const minMessageBytes = 256 << 10

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = defaultName()
	}
	if c.Tenant == "" {
		c.Tenant = "default"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	setDefault(&c.Concurrency, min(runtime.GOMAXPROCS(0), maxParallel))
	setDefault(&c.DrainTimeout, 30*time.Second)
	setDefault(&c.StopTimeout, 5*time.Second)
	setDefault(&c.MinBackoff, 200*time.Millisecond)
	setDefault(&c.MaxBackoff, max(10*time.Second, c.MinBackoff))
	setDefault(&c.ReportTries, 8)
	setDefault(&c.OutputBuffer, 64<<10)
	setDefault(&c.MaxMessageBytes, 4<<20)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// defaultName is the machine's name: stable, and what an operator would look for.
func defaultName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "worker"
	}
	return clip(name, maxID)
}

// validate checks a Config whose defaults are filled in.
func (c Config) validate() error {
	for _, check := range []error{
		checkName("Name", c.Name),
		checkName("Tenant", c.Tenant),
		checkName("Workspace", cmp.Or(c.Workspace, "default")),
		checkRange("Concurrency", c.Concurrency, 1, maxParallel),
		checkLeast("DrainTimeout", c.DrainTimeout, 1),
		checkLeast("StopTimeout", c.StopTimeout, 1),
		checkLeast("MinBackoff", c.MinBackoff, 1),
		checkLeast("MaxBackoff", c.MaxBackoff, c.MinBackoff),
		checkLeast("ReportTries", c.ReportTries, 1),
		checkLeast("MaxMessageBytes", c.MaxMessageBytes, minMessageBytes),
		checkRange("OutputBuffer", c.OutputBuffer, maxChunk, c.MaxMessageBytes/4),
	} {
		if check != nil {
			return check
		}
	}
	return nil
}

// validateQueues checks the queues of a worker.
func validateQueues(queues []string) error {
	if len(queues) == 0 || len(queues) > maxQueues {
		return fmt.Errorf("worker: %d queues; 1 to %d are allowed", len(queues), maxQueues)
	}
	for _, q := range queues {
		if err := checkName("queue", q); err != nil {
			return err
		}
	}
	return nil
}

func checkName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("worker: %s is empty", field)
	case len(name) > maxID:
		return fmt.Errorf("worker: %s has %d bytes; at most %d are allowed", field, len(name), maxID)
	case !utf8.ValidString(name):
		return fmt.Errorf("worker: %s %q is not valid UTF-8", field, name)
	}
	return nil
}

func checkRange(field string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("worker: Config.%s is %d; %d to %d are allowed", field, value, least, most)
	}
	return nil
}

func checkLeast[T int | time.Duration](field string, value, least T) error {
	if value < least {
		return fmt.Errorf("worker: Config.%s is %v; it must be at least %v", field, value, least)
	}
	return nil
}
