package main

import (
	"errors"
	"strings"

	"github.com/lessor-dev/lessor/internal/execworker"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// checkJobs refuses more jobs than a process can have; 0 is the default. Each command that runs
// takes a thread, and Go ends a program with more than 10,000 threads.
func checkJobs(n uint) error {
	const most = 9_000
	if n > most {
		return fail(exitUsage, "", "--jobs: is %d; the limit is %d", n, most)
	}
	return nil
}

// commandOf removes the -- in front of the command.
func commandOf(args []string) execworker.Command {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	return args
}

// workerError returns the error for the end of a worker, or nil for nil.
func workerError(err error) error {
	refused, ok := errors.AsType[*worker.RefusedError](err)
	if !ok {
		return err
	}
	hint := refused.Remediation
	switch {
	case hint != "":
	case refused.Code == "E.AUTH.FORBIDDEN":
		hint = hintRole
	case strings.HasPrefix(refused.Code, "E.AUTH."):
		hint = hintCredential
	}
	return fail(exitFailed, hint, "the coordinator refused the worker: %s: %s", refused.Code, refused.Message)
}

// flagNames replaces the fields of worker.Config by the flags that set them.
var flagNames = strings.NewReplacer(
	"Config.Name", "--name", "Config.Tenant", "--tenant", "Config.Workspace", "--workspace", "Config.PoolID",
	readiness.VarPoolID,
	"Config.Concurrency", "--jobs",
	"Config.PerTypeLimits", "--type-limit", "Config.MaxBytes", "--max-bytes", "Config.Runtimes", "--runtime",
	"Config.Features", "--feature",
	"Config.Labels", "--label", "Config.Resources", "--resource", "Config.Packages", "--package",
	"Config.InstallerTimeout", "--installer-timeout",
	"Config.DrainTimeout", "--drain-timeout", "Config.Disk", "--spool",
)

// configError returns the error for settings that the worker refuses.
func configError(command string, err error) error {
	text := strings.TrimPrefix(err.Error(), "worker: ")
	if !strings.Contains(text, "Config.") { // the queues are no field of it
		text = "--queue: " + text
	}
	return fail(exitUsage, "see lessor "+command+" --help", "%s", flagNames.Replace(text))
}
