package pool

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// DefaultListen is where the workers notify the supervisor unless the file says otherwise.
const DefaultListen = "127.0.0.1:9200"

// Limits of a file.
const (
	maxPools   = 64
	maxWorkers = 256  // of a pool
	maxInAll   = 1024 // each running process takes a thread, of which a Go program has at most 10,000
	maxGPU     = 1023
	maxID      = 64
	maxTime    = 24 * time.Hour
)

// defaultDrain is more than the 30 s that lessor worker run and the SDK give their tasks, so that
// the last reports get their verdicts.
const defaultDrain = 40 * time.Second

// Config is what a pool file says.
type Config struct {
	// Listen is the address for the notifications and lists: on the loopback interface, host:port.
	// Empty: DefaultListen.
	Listen string `yaml:"listen"`
	// Pools are from 1 to 64.
	Pools []Entry `yaml:"pools"`
}

// Entry describes workers that run the same command.
type Entry struct {
	// ID is the name of the pool: letters, digits, dots, dashes and underscores, at most 64.
	ID string `yaml:"id"`
	// Command is the program and its arguments. The program is found as a shell finds it; a path
	// with a slash is relative to Dir.
	Command []string `yaml:"command"`
	// Dir is the working directory of the processes. Empty: the supervisor's.
	Dir string `yaml:"dir"`
	// Env is added to the environment of the supervisor.
	Env map[string]string `yaml:"env"`
	// Workers is how many there are, from 1 to 256, in a pool without GPUs; 1 unless set.
	Workers number `yaml:"workers"`
	// GPUs are the indexes of the GPUs on the machine, from 0 to 1023. Each has one worker.
	GPUs []number `yaml:"gpus"`
	// ReadyTimeout is how long a process may take until it notifies that it is ready, at most 24 h.
	// 0: a process counts as ready when it runs.
	ReadyTimeout time.Duration `yaml:"ready_timeout"`
	// DrainTimeout is how long a process has for its end after SIGTERM, before SIGKILL: from 1 s to
	// 24 h; 40 s unless set.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// Restart says when the next process follows. Empty: OnFailure.
	Restart Restart `yaml:"restart"`
	// RestartBackoff is the wait before the second process; it doubles with each further one, up to
	// RestartBackoffMax, and begins anew once a process was ready for longer than that. From 10 ms
	// to 24 h; 1 s unless set.
	RestartBackoff time.Duration `yaml:"restart_backoff"`
	// RestartBackoffMax is the longest wait, from RestartBackoff to 24 h; unless set a minute, or
	// RestartBackoff if that is longer.
	RestartBackoffMax time.Duration `yaml:"restart_backoff_max"`
}

// number is a whole number: package yaml would take 1.5 for 1.
type number int

// UnmarshalYAML implements yaml.Unmarshaler.
func (n *number) UnmarshalYAML(from *yaml.Node) error {
	if from.ShortTag() != "!!int" {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is not a whole number", from.Line, from.Value)}}
	}
	return from.Decode((*int)(n))
}

// Restart says when a process of a worker is followed by the next one.
type Restart string

// The values of Restart.
const (
	// OnFailure restarts a worker unless its process ended with exit code 0. So a worker that an
	// operator has drained stays down.
	OnFailure Restart = "on_failure"
	// Always restarts a worker however its process ended.
	Always Restart = "always"
)

// Parse reads a pool file. The error names the line or the field that is wrong, and the limit.
func Parse(data []byte) (*Config, error) {
	docs := yaml.NewDecoder(bytes.NewReader(data))
	docs.KnownFields(true)
	c := &Config{}
	var root yaml.Node
	_ = yaml.Unmarshal(data, &root) // where the file is not YAML, the error is that of docs
	if item := emptyItem(&root); item != nil {
		return nil, fmt.Errorf("line %d: an item of a list has no value; text like ~ or null needs quotes", item.Line)
	}
	if err := docs.Decode(c); errors.Is(err, io.EOF) {
		return nil, errors.New("pools: there are none; the file is empty")
	} else if err != nil {
		return nil, errors.New(yamlProblem(err))
	}
	if err := docs.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("a second YAML document follows; the file may have only one")
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	keys, err := keysOfPools(&root)
	if err != nil {
		return nil, errors.New(yamlProblem(err))
	}
	return c, c.check(keys)
}

// emptyItem returns an item of a list below n that has no value, or nil: a dash too many, or a ~
// that was meant as a directory. Package yaml would leave it out without a word.
func emptyItem(n *yaml.Node) *yaml.Node {
	for _, item := range n.Content {
		if value := cmp.Or(item.Alias, item); n.Kind == yaml.SequenceNode && value.ShortTag() == "!!null" {
			return item
		}
		if found := emptyItem(item); found != nil {
			return found
		}
	}
	return nil
}

// keysOfPools returns which keys each pool of a file has: a 0 that is written there is no default.
func keysOfPools(root *yaml.Node) ([]map[string]any, error) {
	var file struct {
		Pools []map[string]any `yaml:"pools"`
	}
	err := root.Decode(&file)
	return file.Pools, err
}

// goType matches what package yaml says about the types of this package.
var goType = regexp.MustCompile(` (in type|into) \S+`)

// yamlProblem returns the message of package yaml on one line, without the Go types.
func yamlProblem(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*yaml.TypeError](err); ok {
		text = strings.Join(e.Errors, "; ")
	}
	text = strings.NewReplacer("!!str", "text", "!!int", "number", "!!seq", "list", "!!map", "table",
		"!!bool", "yes or no", "!!float", "number").Replace(text)
	return strings.TrimPrefix(goType.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case strings.HasSuffix(s, " time.Duration"):
			return " into a duration such as 30s"
		case strings.HasPrefix(s, " into []"):
			return " into a list"
		}
		return ""
	}), "yaml: ")
}

// check returns an error for each field that is wrong, and sets the defaults of those that no pool
// has.
func (c *Config) check(keys []map[string]any) error {
	var errs []error
	if err := checkListen(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("listen: %w", err))
	}
	if n := len(c.Pools); n == 0 || n > maxPools {
		errs = append(errs, fmt.Errorf("pools: there are %d; from 1 to %d are allowed", n, maxPools))
	}
	all := 0
	ids := make(map[string]bool)
	for i := range c.Pools {
		p := &c.Pools[i]
		for _, err := range p.check(keys[i]) {
			errs = append(errs, fmt.Errorf("pools[%d].%w", i, err))
		}
		if ids[p.ID] {
			errs = append(errs, fmt.Errorf("pools[%d].id: there is another pool %q", i, p.ID))
		}
		ids[p.ID] = true
		all += max(int(p.Workers), len(p.GPUs))
	}
	if all > maxInAll {
		errs = append(errs, fmt.Errorf("pools: have %d workers in all; at most %d are allowed", all, maxInAll))
	}
	return errors.Join(errs...)
}

// checkListen refuses an address that others than this machine may reach: what is notified there is
// not encrypted.
func checkListen(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not an address such as %s", addr, DefaultListen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q has no port from 0 to 65535", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%q is not on the loopback interface, such as %s; only processes of this machine may notify", addr, DefaultListen)
	}
	return nil
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// check sets the defaults of what is not among the keys, and returns what is wrong; each error
// begins with its field.
func (p *Entry) check(keys map[string]any) (errs []error) {
	bad := func(field, problem string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+problem, args...))
	}
	if !idPattern.MatchString(p.ID) || len(p.ID) > maxID {
		bad("id", "%q must have from 1 to %d letters, digits, dots, dashes and underscores", p.ID, maxID)
	}
	if p.checkDir(bad) {
		p.checkCommand(bad)
	}
	if keys["workers"] == nil && len(p.GPUs) == 0 {
		p.Workers = 1
	}
	if keys["gpus"] != nil && len(p.GPUs) == 0 {
		bad("gpus", "is empty")
	}
	p.checkWorkers(bad)
	for _, name := range ourVariables {
		if _, set := p.Env[name]; set && (name != cudaDevices || len(p.GPUs) > 0) {
			bad("env", "%s is set by the supervisor", name)
		}
	}
	for name := range p.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(p.Env[name], "\x00") {
			bad("env", "%q cannot be an environment variable", name)
		}
	}
	if p.Restart == "" {
		p.Restart = OnFailure
	}
	if p.Restart != OnFailure && p.Restart != Always {
		bad("restart", "%q must be %s or %s", p.Restart, OnFailure, Always)
	}
	span := func(field string, d *time.Duration, unset, least time.Duration) {
		if keys[field] == nil {
			*d = unset
		}
		if *d < least || *d > maxTime {
			bad(field, "%v must be from %v to %v", *d, least, maxTime)
		}
	}
	span("ready_timeout", &p.ReadyTimeout, 0, 0)
	span("drain_timeout", &p.DrainTimeout, defaultDrain, time.Second)
	span("restart_backoff", &p.RestartBackoff, time.Second, 10*time.Millisecond)
	span("restart_backoff_max", &p.RestartBackoffMax, max(time.Minute, p.RestartBackoff), p.RestartBackoff)
	return errs
}

// checkDir returns false if the processes cannot run there, and so the program need not be looked
// for.
func (p *Entry) checkDir(bad func(field, problem string, args ...any)) bool {
	info, err := os.Stat(cmp.Or(p.Dir, "."))
	switch {
	case err != nil:
		bad("dir", "%w", err)
	case !info.IsDir():
		bad("dir", "%q is not a directory", p.Dir)
	default:
		return true
	}
	return false
}

func (p *Entry) checkCommand(bad func(field, problem string, args ...any)) {
	switch {
	case len(p.Command) == 0 || p.Command[0] == "":
		bad("command", "is required: the program and its arguments, as a list")
		return
	case strings.ContainsRune(strings.Join(p.Command, ""), 0):
		bad("command", "cannot have a zero byte")
		return
	}
	program := p.Command[0]
	if p.Dir != "" && strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		program = p.Dir + string(filepath.Separator) + program // filepath.Join would make "sh" of "./sh"
	}
	if _, err := exec.LookPath(program); err != nil {
		bad("command", "%w", err)
	}
}

func (p *Entry) checkWorkers(bad func(field, problem string, args ...any)) {
	switch {
	case len(p.GPUs) > 0 && p.Workers != 0:
		bad("workers", "cannot be set beside gpus: each GPU has one worker")
	case len(p.GPUs) == 0 && (p.Workers < 1 || p.Workers > maxWorkers):
		bad("workers", "%d must be from 1 to %d", p.Workers, maxWorkers)
	}
	if len(p.GPUs) > maxWorkers {
		bad("gpus", "there are %d; at most %d are allowed", len(p.GPUs), maxWorkers)
	}
	for i, gpu := range p.GPUs {
		if gpu < 0 || gpu > maxGPU {
			bad("gpus", "%d must be from 0 to %d", gpu, maxGPU)
		}
		if slices.Contains(p.GPUs[:i], gpu) {
			bad("gpus", "%d is there twice", gpu)
		}
	}
}
