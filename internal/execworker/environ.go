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

// environment returns the environment of the command of a task. The command may go on with the trace of ctx.
func environment(ctx context.Context, t *worker.Task) []string {
	return slices.Concat(ownEnvironment(), variables(t, traceparent.Of(ctx)))
}

// ownEnvironment returns the worker's environment. The worker's credentials are set to empty: a command that needs credentials must get them in another way.
// So is the address of the worker's pool: no pool has started the command, and it must not speak for the worker.
func ownEnvironment() []string {
	return append(os.Environ(),
		"LESSOR_TOKEN=", "LESSOR_TOKEN_FILE=", "LESSOR_TLS_CERT=", "LESSOR_TLS_KEY=", readiness.VarPoolToken+"=", readiness.VarPoolURL+"=",
	)
}

// Variables returns the names of the environment variables in which a command finds its task, or the package that it has to install.
func Variables() (names []string) {
	for _, variable := range append(variables(&worker.Task{}, ""), packageVariables("", worker.PackageInstall{})...) {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	return names
}

// variables returns the variables of a task. A variable for which the task has no value is set to empty: otherwise a worker that itself runs as a task
// would pass on the value of that task.
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
