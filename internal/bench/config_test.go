package bench

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func smallest() Config {
	return Config{
		Producers: []int{1, 1}, Workers: 1, Slots: 1, Payload: 0, Tasks: 1, Backlogs: []int{0, 0}, Repeat: 1,
		LimitSpan: time.Millisecond,
	}
}

// Each number is refused just outside of its range and accepted at both ends of it. The error names
// the flag and the largest value.
func TestValidate(t *testing.T) {
	fields := map[string]func(*Config) *int{
		"producers": func(c *Config) *int { return &c.Producers[1] },
		"workers":   func(c *Config) *int { return &c.Workers },
		"slots":     func(c *Config) *int { return &c.Slots },
		"payload":   func(c *Config) *int { return &c.Payload },
		"tasks":     func(c *Config) *int { return &c.Tasks },
		"backlog":   func(c *Config) *int { return &c.Backlogs[1] },
		"repeat":    func(c *Config) *int { return &c.Repeat },
	}
	good := smallest()
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for flag, field := range fields {
		c := smallest()
		*field(&c)--
		out := (*RangeError)(nil)
		if err := c.validate(); !errors.As(err, &out) || out.Flag != flag {
			t.Fatalf("%s below its range: error %v, want a RangeError of that flag", flag, err)
		}
		*field(&c), _ = out.Most.(int)
		if err := c.validate(); err != nil {
			t.Error(err)
		}
		*field(&c)++
		if err := c.validate(); !errors.As(err, &out) || out.Flag != flag {
			t.Errorf("%s above its range: error %v, want a RangeError of that flag", flag, err)
		}
	}
}

func TestValidateTheSpanOfLimits(t *testing.T) {
	for span, ok := range map[time.Duration]bool{time.Millisecond - 1: false, time.Millisecond: true, time.Minute: true, time.Minute + 1: false} {
		c := smallest()
		c.LimitSpan = span
		if err := c.validate(); (err == nil) != ok {
			t.Errorf("%v: error %v, want accepted: %t", span, err, ok)
		}
	}
}

// A name selects the phases that have it or begin with its words. A name that selects none is
// refused, with the names that there are.
func TestPhasesByName(t *testing.T) {
	for name, want := range map[string][]string{
		"drain":              {"drain"},
		"enqueue":            {"enqueue_bulk", "enqueue_shared_p1", "enqueue_unary_p1", "enqueue_shared_p12", "enqueue_unary_p12"},
		"enqueue_shared":     {"enqueue_shared_p1", "enqueue_shared_p12"},
		"enqueue_shared_p1":  {"enqueue_shared_p1"},
		"backlog":            {"backlog_b7"},
		"keys":               {"keys_b7"},
		"delayed_b7":         {"delayed_b7"},
		"enqueue_shared_p":   nil,
		"drai":               nil,
		"":                   nil,
		"enqueue_shared_p12": {"enqueue_shared_p12"},
	} {
		c := smallest()
		c.Producers, c.Backlogs, c.Phases = []int{1, 12}, []int{7}, []string{name}
		var got []string
		for _, p := range c.phases() {
			got = append(got, p.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q selects %v, want %v", name, got, want)
		}
		unknown := (*PhaseError)(nil)
		if err := c.validatePhases(); errors.As(err, &unknown) != (want == nil) || want == nil && (unknown.Name != name || len(unknown.Known) != 13 || unknown.Local) {
			t.Errorf("%q: error %v, want one: %t", name, err, want == nil)
		}
	}
}

// The shares of the streams add up to all tasks.
func TestShares(t *testing.T) {
	for n := range 3*bulkStreams + 1 {
		sum := 0
		for i := range bulkStreams {
			sum += share(n, i)
		}
		if sum != n {
			t.Errorf("the shares of %d tasks add up to %d, want all of them", n, sum)
		}
	}
}

// inOrder sorts the numbers, keeps each once, and drops 0.
func TestInOrder(t *testing.T) {
	if got, want := inOrder([]int{64, 0, 1, 64}), []int{1, 64}; !slices.Equal(got, want) {
		t.Errorf("inOrder = %v, want %v", got, want)
	}
}
