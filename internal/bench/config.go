package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// Config says what to measure, and with how much load. validate has the ranges.
type Config struct {
	// Command starts a coordinator: the program, then "serve". The benchmark adds the arguments for
	// the directory and the addresses.
	Command []string
	// Dir is where temporary directories are made. So Dir decides which disk is measured. Empty:
	// the system's directory for temporary files.
	Dir string
	// Addr is the address of a running coordinator, as HOST:PORT. Empty: each phase starts a
	// coordinator with Command. With Addr, the benchmark does not measure processor time, memory
	// and restart, because these need access to the process.
	Addr string
	// Options are for connections to Addr: TLS and credentials.
	Options []grpc.DialOption
	// Tenant is the tenant of the credentials, which workers need. Empty: the one that the
	// coordinator names.
	Tenant string

	Producers []int // numbers of goroutines that submit single tasks; each number is measured in turn
	Workers   int   // workers, each with a connection of its own
	Slots     int   // handlers that a worker runs at once
	Payload   int   // payload of a task, in bytes
	Tasks     int   // tasks of a phase
	// Backlogs are numbers of waiting tasks with which memory and restart are measured; each number
	// in turn. 0 is ignored.
	Backlogs []int
	Repeat   int // repetitions
	// Phases are names of phases, such as "drain", or what several names begin with, such as
	// "enqueue" or "enqueue_shared"; only these phases are measured. Empty: all.
	Phases []string
	// LimitSpan is how long each limit of the machine is measured in a repetition, 1 ms to 1 min.
	LimitSpan time.Duration

	// Profile is a directory for profiles, of an additional run that is not measured. There are
	// three for each phase: CPU and heap of the coordinator, and CPU of the load, all during what
	// is measured. Empty: none.
	Profile string
	// Kill is closed if a run whose context has ended should not even delete its tasks. nil: never.
	Kill <-chan struct{}
	// Version is the version of the program, for the report.
	Version string
	// Progress is called with a description of each step that begins. It may be nil.
	Progress func(string)
}

// RangeError says that a field of Config is out of its range; it names the field's flag. The values
// are ints, or time.Durations.
type RangeError struct {
	Flag               string
	Value, Least, Most any
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("--%s: is %v; the range is %v to %v", e.Flag, e.Value, e.Least, e.Most)
}

// PhaseError says that Config.Phases has a name that no phase has or begins with.
type PhaseError struct {
	Name  string
	Known []string // the names of all phases
	Local bool     // there is such a phase, but not with Addr
}

func (e *PhaseError) Error() string {
	if e.Local {
		return fmt.Sprintf("--phases: %s cannot be measured with --addr: it restarts the coordinator", e.Name)
	}
	return fmt.Sprintf("--phases: no phase is called %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// validate returns a *RangeError for the first field that is out of its range.
func (c *Config) validate() error {
	for _, f := range []struct {
		flag        string
		values      []int
		least, most int
	}{
		{"producers", c.Producers, 1, 10_000},
		{"workers", []int{c.Workers}, 1, 1000},
		{"slots", []int{c.Slots}, 1, 10_000},
		{"payload", []int{c.Payload}, 0, 1 << 20},
		{"tasks", []int{c.Tasks}, 1, 1_000_000},
		{"backlog", c.Backlogs, 0, 10_000_000},
		{"repeat", []int{c.Repeat}, 1, 100},
	} {
		for _, value := range f.values {
			if value < f.least || value > f.most {
				return &RangeError{f.flag, value, f.least, f.most}
			}
		}
	}
	if c.LimitSpan < time.Millisecond || c.LimitSpan > time.Minute {
		return &RangeError{"limit-span", c.LimitSpan, time.Millisecond, time.Minute}
	}
	return nil
}

// validatePhases returns a *PhaseError for the first name in Phases that fits no phase.
func (c *Config) validatePhases() error {
	var known []string
	for _, p := range c.allPhases() {
		known = append(known, p.name)
	}
	for _, name := range c.Phases {
		if !slices.ContainsFunc(known, func(phase string) bool { return matches(phase, name) }) {
			return &PhaseError{name, known, c.Addr != "" &&
				slices.ContainsFunc(withBacklog(), func(phase string) bool { return matches(name, phase) })}
		}
	}
	return nil
}

// matches reports whether a phase has the given name, or a name that begins with its words.
func matches(phase, name string) bool { return strings.HasPrefix(phase+"_", name+"_") }

// inOrder returns the numbers sorted, each once and without 0: two phases of the same name would
// mix their figures.
func inOrder(numbers []int) []int {
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers)))
	return slices.DeleteFunc(sorted, func(n int) bool { return n == 0 })
}
