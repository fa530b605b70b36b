package bench

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
)

// Config is what to measure, and with how much load. Validate gives the ranges.
type Config struct {
	// Command starts a coordinator, without the arguments that say where: the program, then "serve".
	Command []string
	// Dir is where temporary directories are made, which decides the disk that is measured. Empty: the system's directory for them.
	Dir string
	// Addr is a coordinator that runs already, as HOST:PORT. Empty: each phase starts one by Command. What needs the process is left out
	// then: its processor time, memory and restart.
	Addr string
	// Options of connections to Addr: TLS and credentials.
	Options []grpc.DialOption
	// Tenant of the credentials, for the workers. Empty: "default".
	Tenant string

	Producers []int // numbers of goroutines that submit single tasks, one after the other
	Workers   int   // workers, each with a connection of its own
	Slots     int   // handlers that a worker runs at once
	Payload   int   // bytes of a task
	Tasks     int   // tasks of a phase
	// Backlogs are numbers of waiting tasks with which memory and restart are measured, one after the other. 0 adds nothing.
	Backlogs []int
	Repeat   int // repetitions
	// LimitSpan is how long each limit of the machine is measured in a repetition, 1 ms to 1 min.
	LimitSpan time.Duration

	// Profile is a directory for profiles of a run that does not count, three for each phase: CPU and heap of the coordinator, and CPU of the
	// load. Empty: none.
	Profile string
	// Version of the program, for the report.
	Version string
	// Progress is told what begins; nil: nobody.
	Progress func(string)
}

// RangeError refuses a field of Config by the name of its flag. The values are ints, or time.Durations.
type RangeError struct {
	Flag               string
	Value, Least, Most any
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("--%s: is %v; the range is %v to %v", e.Flag, e.Value, e.Least, e.Most)
}

// Validate returns a *RangeError for the first field that is out of its range.
func (c *Config) Validate() error {
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

// inOrder returns each of the numbers once, rising and without 0: two phases of one name would mix their figures.
func inOrder(numbers []int) []int {
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers)))
	return slices.DeleteFunc(sorted, func(n int) bool { return n == 0 })
}
