package execworker

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/traceparent"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// environment returns the environment of the command of a task. The command may go on with the
// trace of ctx.
func environment(ctx context.Context, t *worker.Task) []string {
	return slices.Concat(ownEnvironment(), variables(t, traceparent.Of(ctx)))
}

// withheld are the variables of the worker that its commands do not get: its credentials, those for
// the collector of its spans included, and the address of its pool. A command that needs
// credentials must get them in another way, and must not speak for the worker to a pool that did
// not start it.
var withheld = []string{
	"LESSOR_TOKEN", "LESSOR_TOKEN_FILE", "LESSOR_TLS_CERT", "LESSOR_TLS_KEY", readiness.VarPoolToken,
	readiness.VarPoolURL,
	"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
}

// ownEnvironment returns the worker's environment without those. They are not set to empty, because
// there are exporters for which an empty OTEL_EXPORTER_OTLP_TRACES_HEADERS replaces what a command
// sets as OTEL_EXPORTER_OTLP_HEADERS.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(withheld, name)
	})
}

// Variables returns the names of the environment variables in which a command finds its task, or
// the package that it has to install.
func Variables() (names []string) {
	for _, variable := range append(variables(&worker.Task{}, ""), packageVariables("", worker.PackageInstall{})...) {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	return names
}

// variables returns the variables of a task. A variable for which the task has no value is set to
// empty: otherwise a worker that itself runs as a task would pass on the value of that task.
func variables(t *worker.Task, trace string) []string {
	deadline := ""
	if !t.Deadline.IsZero() {
		deadline = t.Deadline.UTC().Format(time.RFC3339Nano)
	}
	return []string{
		"LESSOR_TASK_ID=" + t.ID,
		"LESSOR_ATTEMPT=" + strconv.FormatUint(uint64(t.Attempt), 10),
		"LESSOR_ATTEMPT_ID=" + t.AttemptID,
		"LESSOR_FENCING_TOKEN=" + strconv.FormatUint(t.FencingToken, 10),
		"LESSOR_WORKSPACE=" + t.Workspace,
		"LESSOR_QUEUE=" + t.Queue,
		"LESSOR_TYPE=" + t.Type,
		"LESSOR_RUN_ID=" + t.RunID,
		"LESSOR_TASK_KEY=" + t.Key,
		"LESSOR_ASSET_ID=" + t.AssetID,
		"LESSOR_DEADLINE=" + deadline,
		"TRACEPARENT=" + trace,
	}
}
