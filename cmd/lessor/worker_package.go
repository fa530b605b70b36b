package main

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker"
)

// workerFilter has the conditions that select sessions of workers. An empty value of a condition is
// refused, as in taskFilter.
type workerFilter struct {
	Worker    string            `typed:"" type:"nonempty" placeholder:"NAME" help:"Only this worker."`
	Session   string            `typed:"" type:"nonempty" placeholder:"ID" help:"Only this session; worker get shows their ids."`
	Queue     string            `typed:"" type:"nonempty" placeholder:"NAME" help:"Only workers that take from this queue."`
	Pool      string            `typed:"" type:"nonempty" placeholder:"ID" help:"Only workers of this pool."`
	Label     map[string]string `typed:"" placeholder:"KEY=VALUE" mapsep:"none" help:"Only workers with this label; a comma belongs to the value. Repeatable."`
	All       bool              `typed:"" help:"Every worker, or every one of --workspace."`
	Workspace string            `shared:"" placeholder:"NAME" help:"Only workers of this workspace; empty is all."`
}

// selected returns the filter. The workspace, which a variable may set for all commands, is not
// enough: a change of all workers must be asked for.
func (f workerFilter) selected() (*lessorv1.WorkerFilter, error) {
	isSet := f.Worker != "" || f.Session != "" || f.Queue != "" || f.Pool != "" || len(f.Label) > 0
	switch {
	case f.All && isSet:
		return nil, fail(exitUsage, "leave out --all, or leave out the conditions",
			"--all: selects every worker and cannot be used with conditions")
	case !f.All && !isSet:
		return nil, fail(exitUsage, "select workers by --worker, --session, --queue, --pool or --label, or with --all", "no workers are selected")
	}
	return &lessorv1.WorkerFilter{
		WorkerId:    f.Worker,
		SessionId:   f.Session,
		Queue:       f.Queue,
		WorkspaceId: f.Workspace,
		PoolId:      f.Pool,
		Labels:      f.Label,
	}, nil
}

// packageChange has what installing and removing a package have in common.
type packageChange struct {
	server       `embed:""`
	workerFilter `embed:""`
	Package      string        `arg:"" name:"name@version" help:"Package, with its version."`
	Wait         time.Duration `default:"10m" placeholder:"DURATION" help:"How long to wait for the workers; 0 does not wait."`
}

// workerInstallCmd is lessor worker install.
type workerInstallCmd struct {
	packageChange `embed:""`
	Source        string `placeholder:"TEXT" help:"Where the workers find it, such as a URL; told to them. The audit keeps it up to a question mark."`
	SHA256        string `name:"sha256" placeholder:"HEX" help:"SHA-256 of what is there; workers refuse anything else."`
}

// Help is shown below the flags.
func (workerInstallCmd) Help() string {
	return `The workers that are connected now install the package, each in its own way, and are waited for. A worker that has it already is asked,
too. "worker get" shows the packages of a worker; tasks wait for one with submit --require-package.

If the command is stopped, or its wait is over, the workers go on.

Examples:
  lessor worker install llama@3.1 --pool gpu --source https://models.example/llama-3.1.tar --sha256 "$(sha256sum < llama-3.1.tar | cut -c-64)"
  lessor worker install tools@7 --all --wait 1h`
}

func (c workerInstallCmd) Run(a *app) error {
	return c.change(a, "installed", func(cl *client, to packageRequest) (packageAnswer, error) {
		return cl.admin.InstallPackage(a.ctx, &lessorv1.InstallPackageRequest{
			Name: to.pkg.Name, Version: to.pkg.Version, Source: c.Source, Sha256: c.SHA256,
			Workers: to.workers, Wait: span(to.wait), RequestId: to.id,
		})
	})
}

// workerUninstallCmd is lessor worker uninstall.
type workerUninstallCmd struct {
	packageChange `embed:""`
}

// Help is shown below the flags.
func (workerUninstallCmd) Help() string {
	return `The workers that are connected now remove the package, and are waited for. One that does not have it has done so.

If the command is stopped, or its wait is over, the workers go on.

Example:
  lessor worker uninstall llama@3.0 --pool gpu`
}

func (c workerUninstallCmd) Run(a *app) error {
	return c.change(a, "uninstalled", func(cl *client, to packageRequest) (packageAnswer, error) {
		return cl.admin.UninstallPackage(a.ctx, &lessorv1.UninstallPackageRequest{
			Name: to.pkg.Name, Version: to.pkg.Version, Workers: to.workers, Wait: span(to.wait), RequestId: to.id,
		})
	})
}

// packageRequest is what a call asks for. A repeat with the same id joins the operation.
type packageRequest struct {
	pkg     worker.Package
	workers *lessorv1.WorkerFilter
	wait    time.Duration
	id      string
}

// packageAnswer is the answer to a call that installs or removes a package.
type packageAnswer interface {
	proto.Message
	GetOperation() *lessorv1.PackageOperation
}

// packageWait is how long one call waits: as long as the coordinator lets it, because the audit has
// an entry for each.
const packageWait = time.Minute

const hintPackages = `"lessor worker get NAME" shows the packages of a worker`

// change makes the change and prints what became of it.
func (c packageChange) change(a *app, done string, call func(*client, packageRequest) (packageAnswer, error)) error {
	to, err := c.request()
	if err != nil {
		return err
	}
	defer a.catchSignals()()
	return c.with(a, func(cl *client) error {
		answer, err := c.follow(a, done, func(wait time.Duration) (packageAnswer, error) {
			to.wait = wait
			return call(cl, to)
		})
		if answer == nil {
			return err
		}
		op := answer.GetOperation()
		if unheard := unheard(printOperation(a, answer), hintPackages, "%s", packageText(done, op)); unheard != nil {
			return unheard
		}
		if err != nil {
			return err
		}
		return c.outcome(a, done, op)
	})
}

func (c packageChange) request() (packageRequest, error) {
	pkg, versioned := packageOf(c.Package)
	if !versioned {
		return packageRequest{}, fail(exitUsage, "say which one: NAME@VERSION", "%q has no version", c.Package)
	}
	if c.Wait < 0 {
		return packageRequest{}, fail(exitUsage, "", "--wait: is %v; it must not be negative", c.Wait)
	}
	workers, err := c.selected()
	return packageRequest{pkg: pkg, workers: workers, id: strings.ToLower(rand.Text())}, err
}

// follow repeats the call until each session has a result or the wait is over, and returns the last
// answer; nil if there is none.
func (c packageChange) follow(
	a *app, done string, call func(wait time.Duration) (packageAnswer, error),
) (last packageAnswer, err error) {
	shown := uint32(0)
	for end := time.Now().Add(c.Wait); ; {
		answer, err := call(min(max(time.Until(end), 0), packageWait))
		if err != nil {
			return last, workersGoOn(a, last != nil, err)
		}
		last = answer
		op := answer.GetOperation()
		if underWay(op) == 0 || time.Until(end) <= 0 { // a coordinator that stops answers early
			return last, nil
		}
		if ended := op.GetDone() + op.GetFailed(); ended != shown {
			shown = ended
			a.note("%s so far", packageText(done, op))
		}
	}
}

// workersGoOn returns an error that also says that the workers go on, if they have been asked; when
// a signal ends the first call, they probably have. When the first call is lost, nobody knows.
func workersGoOn(a *app, asked bool, err error) error {
	f := *explain(stopped(a.ctx, err))
	switch {
	case asked || a.ctx.Err() != nil:
		f.text += "; the workers go on with what they were asked"
		f.hint = hintPackages
	case onlyTryMayBeDone(err):
		f.text += "; if workers were asked, they go on"
		f.hint = hintPackages + `, "lessor audit list" whether they were asked`
	default:
		return err
	}
	return &f
}

// outcome returns the error for an operation that not all sessions have done.
func (c packageChange) outcome(a *app, done string, op *lessorv1.PackageOperation) error {
	text := packageText(done, op)
	switch {
	case op.GetFailed() > 0:
		return fail(exitFailed, "", "%s", text)
	case underWay(op) > 0 && c.Wait > 0:
		return fail(exitUnavailable, "they go on; "+hintPackages, "%s after %v", text, c.Wait)
	}
	a.note("%s", text)
	return nil
}

// underWay returns how many sessions have no result yet.
func underWay(op *lessorv1.PackageOperation) int {
	return int(op.GetSessions()) - int(op.GetDone()) - int(op.GetFailed())
}

// packageText says how many sessions have done it.
func packageText(done string, op *lessorv1.PackageOperation) string {
	text := fmt.Sprintf("%d %s", op.GetDone(), done)
	if n := op.GetFailed(); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	if n := underWay(op); n > 0 {
		text += fmt.Sprintf(", %d under way", n)
	}
	return text
}

func printOperation(a *app, answer packageAnswer) error {
	if a.json {
		return printJSON(a.out, answer)
	}
	op := answer.GetOperation()
	t := newTable(a.out, "WORKER", "SESSION", "STATUS", "DETAIL")
	for _, r := range op.GetResults() {
		detail := r.GetCode()
		if detail != "" && r.GetDetail() != "" {
			detail += ": "
		}
		t.row(r.GetWorkerId(), r.GetSessionId(), words.Name(r.GetStatus()), detail+r.GetDetail())
	}
	if err := t.flush(); err != nil {
		return err
	}
	if shown, n := len(op.GetResults()), int(op.GetSessions()); n > shown {
		_, err := fmt.Fprintf(a.out, "\nthe first %d of %d sessions\n", shown, n)
		return err
	}
	return nil
}
