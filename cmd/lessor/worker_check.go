package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/workercheck"
)

// workerCheckCmd is lessor worker check.
type workerCheckCmd struct {
	Type     string        `default:"check" placeholder:"NAME" help:"Type of the tasks."`
	Queue    string        `default:"check" placeholder:"NAME" help:"Queue of the tasks."`
	Quick    string        `required:"" placeholder:"PAYLOAD" help:"Payload of a task that takes less than a second."`
	Long     string        `required:"" placeholder:"PAYLOAD" help:"Payload of a task that takes four seconds or somewhat more."`
	Failing  *string       `placeholder:"PAYLOAD" help:"Payload of a task that fails. Without it, what needs one is skipped."`
	Case     []string      `placeholder:"NAME" help:"Run only this case, after the first one. Repeatable."`
	Patience time.Duration `type:"positive" default:"15s" placeholder:"DURATION" help:"How long the worker may take for each thing it has to do, its start included."`
	Jobs     int           `short:"j" type:"positive" placeholder:"N" help:"Cases to run at once; by default four for each processor."`
	Verbose  bool          `short:"v" help:"Show for each failed case what worker and coordinator said."`

	Command []string `type:"bytes" arg:"" passthrough:"partial" help:"Command that starts the worker."`
}

// Help is shown below the flags.
func (workerCheckCmd) Help() string {
	return `Checks that a worker in any language keeps the rules: renews leases, obeys verdicts, repeats what had no answer and nothing else, and survives lost
connections, restarts, cancels and signals. Each case starts the worker anew, against a coordinator in memory of its own, and ends it.

In the command, {addr} stands for the address for gRPC, HOST:PORT, which is also in LESSOR_ADDR, {url} for that for HTTP, http://HOST:PORT, and
{queue} for the queue. The worker is the one of production: only the payloads say what it does, and how long. It must be one worker, in the process
group of the command, and not a supervisor of several.

Exit code 0: nothing is wrong; 1: a case has failed.

Examples:
  lessor worker check --quick 0 --long 5 --failing x -- lessor worker run --addr {addr} --queue {queue} -- sh -c 'sleep $(cat)'
  lessor worker check --type count --quick 1 --long 50 --failing x -v -- node main.js --addr {addr} --queue {queue}`
}

func (c workerCheckCmd) Run(a *app) error {
	defer a.catchSignals()()
	command := commandOf(c.Command)
	if err := command.Check(""); err != nil {
		return fail(exitUsage, "write the worker and its arguments after --", "%v", err)
	}
	cfg := workercheck.Config{
		Command: command, Queue: c.Queue, Type: c.Type, Quick: c.Quick, Long: c.Long, Failing: c.Failing,
		Patience: c.Patience, Cases: c.Case, Parallel: c.Jobs,
	}
	if !a.json {
		cfg.Tell = func(res workercheck.Result) { c.print(a.out, res) }
	}
	report, err := workercheck.Check(a.ctx, cfg)
	if unknown, ok := errors.AsType[*workercheck.UnknownCaseError](err); ok {
		return fail(exitUsage, "", "--case: %v", unknown)
	}
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	if err != nil {
		return err
	}
	if a.json {
		if err := json.NewEncoder(a.out).Encode(report); err != nil {
			return err
		}
	}
	if n := report.Count(workercheck.Failed); n > 0 {
		return fail(exitFailed, c.hint(), "%d of %d cases failed", n, len(report.Results))
	}
	a.note("nothing is wrong: %d cases passed, %d skipped; the worker speaks by %s",
		report.Count(workercheck.Passed), report.Count(workercheck.Skipped), report.Way)
	return nil
}

func (c workerCheckCmd) hint() string {
	if c.Verbose {
		return ""
	}
	return "-v shows what worker and coordinator said"
}

func (c workerCheckCmd) print(w io.Writer, res workercheck.Result) {
	fmt.Fprintf(w, "%-8s %-15s %-9s %s\n", strings.ToUpper(string(res.Status)), res.Case, res.Rules, res.Expected)
	if res.Problem != "" {
		fmt.Fprintf(w, "%8s %s\n", "", res.Problem)
	}
	if c.Verbose {
		for _, line := range res.Transcript {
			fmt.Fprintf(w, "%8s %s\n", "", line)
		}
	} else if res.Case != workercheck.Cases()[0] { // why it cannot be checked at all is always shown
		return
	}
	for _, line := range res.Output {
		fmt.Fprintf(w, "%8s | %s\n", "", line)
	}
}
