package workercheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says what is checked.
type Config struct {
	// Command is the worker with its arguments. In each argument {addr} is replaced by the address
	// for gRPC, HOST:PORT, {url} by that for HTTP, http://HOST:PORT, and {queue} by the queue.
	// Required.
	Command []string
	// Queue and Type are those of the tasks. Required.
	Queue, Type string
	// Quick is the payload of a task that takes less than a second, Long that of one that takes
	// four seconds or more, and can be stopped.
	Quick, Long string
	// Failing is the payload of a task that fails; nil: no task does, and what is checked with one
	// is left out.
	Failing *string
	// Patience is how long the worker may take for each thing that it has to do. Default 15 s.
	Patience time.Duration
	// Cases are the names of those to run, beside the first one, which shows how the worker works
	// while all is well. Empty: all.
	Cases []string
	// Parallel is how many cases run at once. Default: four for each processor.
	Parallel int
	// Tell is called with each result as it comes, by one goroutine at a time; nil: nothing is
	// called.
	Tell func(Result)
}

// MinLong is how long the long task must take.
const MinLong = 2 * ttl

func (c *Config) patience() time.Duration { return cmp.Or(c.Patience, 15*time.Second) }

// Status is how a case ended.
type Status string

// The statuses.
const (
	Passed  Status = "ok"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is the result of a case.
type Result struct {
	Case  string `json:"case"`
	Rules string `json:"rules"` // numbers, as in docs/rules.md
	// Expected says what the worker must do.
	Expected string `json:"expected"`
	Status   Status `json:"status"`
	// Problem is what was wrong, or why the case was skipped; else empty.
	Problem string `json:"problem,omitempty"`
	// Transcript is what worker and coordinator said, a line each, and Output the last lines that
	// the worker printed. Both are there only if the case failed.
	Transcript []string `json:"transcript,omitempty"`
	Output     []string `json:"output,omitempty"`
}

// Report has the results, in the order of the cases.
type Report struct {
	// Way is how the worker speaks with the coordinator.
	Way     string   `json:"way"`
	Results []Result `json:"results"`
}

// Count returns how many cases ended so.
func (r *Report) Count(as Status) (n int) {
	for i := range r.Results {
		if r.Results[i].Status == as {
			n++
		}
	}
	return n
}

// Cases returns the names of all cases.
func Cases() []string {
	var names []string
	for i := range cases {
		names = append(names, cases[i].name)
	}
	return names
}

// UnknownCaseError is the error for a name that no case has.
type UnknownCaseError struct{ Name string }

func (e *UnknownCaseError) Error() string {
	return fmt.Sprintf("there is no case %q; there are %s", e.Name, strings.Join(Cases(), ", "))
}

// Check checks the worker. If the first case fails, in which all is well, there are no others. The
// error is about what is needed to check, such as the end of ctx, and never about the worker.
func Check(ctx context.Context, cfg Config) (*Report, error) {
	for _, name := range cfg.Cases {
		if !slices.Contains(Cases(), name) {
			return nil, &UnknownCaseError{name}
		}
	}
	c := &check{cfg: &cfg}
	first, rec, err := c.run(ctx, &cases[0])
	if err != nil {
		return nil, err
	}
	c.way, c.starts = rec.spoken(), rec.heard(start)
	report := &Report{Way: string(c.way), Results: []Result{first}}
	if first.Status == Failed {
		return report, nil
	}
	rest, err := c.runAll(ctx)
	report.Results = append(report.Results, rest...)
	return report, err
}

// check is one run of Check.
type check struct {
	cfg *Config
	mu  sync.Mutex // held while Tell is called

	// How the worker speaks, and whether it reports starts, as seen in the first case.
	way    way
	starts bool
}

// runAll runs all chosen cases after the first one, some at once.
func (c *check) runAll(ctx context.Context) ([]Result, error) {
	var chosen []*testCase
	for i := range cases[1:] {
		if t := &cases[1+i]; len(c.cfg.Cases) == 0 || slices.Contains(c.cfg.Cases, t.name) {
			chosen = append(chosen, t)
		}
	}
	results, errs := make([]Result, len(chosen)), make([]error, len(chosen))
	slots := make(chan struct{}, cmp.Or(c.cfg.Parallel, 4*runtime.NumCPU()))
	var running sync.WaitGroup
	for i, t := range chosen {
		slots <- struct{}{}
		running.Go(func() {
			results[i], _, errs[i] = c.run(ctx, t)
			<-slots
		})
	}
	running.Wait()
	return results, errors.Join(errs...)
}

// run runs a case.
func (c *check) run(ctx context.Context, t *testCase) (res Result, rec *record, err error) {
	res = Result{Case: t.name, Rules: t.rules, Expected: t.expected, Status: Passed}
	if why := t.leftOut(c); why != "" {
		res.Status, res.Problem = Skipped, why
		c.tell(res)
		return res, nil, nil
	}
	if err := ctx.Err(); err != nil {
		return res, nil, err
	}
	r, err := newRig(ctx, c.cfg, t.sessionBeat())
	if err != nil {
		return res, nil, fmt.Errorf("start a coordinator for the case %s: %w", t.name, err)
	}
	defer r.end()
	err = t.run(r)
	if f, ok := errors.AsType[finding](err); ok {
		res.Status, res.Problem = Failed, string(f)
		res.Transcript = r.rec.transcript()
		if r.worker != nil {
			res.Output = r.worker.output.lines(lastLines)
		}
		err = nil
	}
	if err != nil {
		return res, nil, fmt.Errorf("case %s: %w", t.name, err)
	}
	c.tell(res)
	return res, r.rec, nil
}

// lastLines is how many lines of the worker's output a result has.
const lastLines = 20

func (c *check) tell(res Result) {
	if c.cfg.Tell == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Tell(res)
}
