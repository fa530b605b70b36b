package main

import (
	"fmt"
	"io"
	"maps"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker"
)

// oneSession is the flag that selects one of several sessions of a worker.
type oneSession struct {
	Session string `typed:"" type:"nonempty" placeholder:"ID" help:"Only this session of the worker; worker get shows their ids."`
}

// workerGetCmd is lessor worker get.
type workerGetCmd struct {
	server     `embed:""`
	oneSession `embed:""`
	Name       string `arg:"" help:"Worker to show."`
}

// Help is shown below the flags.
func (workerGetCmd) Help() string {
	return `A worker with several streams is shown once for each stream.

Example:
  lessor worker get host-7 --json | jq '.workers[].task_ids'`
}

func (c workerGetCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		answer, err := cl.admin.GetWorker(a.ctx, &lessorv1.GetWorkerRequest{WorkerId: c.Name, SessionId: c.Session})
		if err != nil {
			return withID(c.Name, err)
		}
		if a.json {
			return printJSON(a.out, answer)
		}
		for i, w := range answer.GetWorkers() {
			if i > 0 {
				if _, err := io.WriteString(a.out, "\n"); err != nil {
					return err
				}
			}
			if err := printWorker(a.out, w); err != nil {
				return err
			}
		}
		if shown, n := len(answer.GetWorkers()), int(answer.GetSessions()); n > shown {
			_, err = fmt.Fprintf(a.out, "\nthe first %d of %d sessions; worker list has all\n", shown, n)
		}
		return err
	})
}

func printWorker(w io.Writer, m *lessorv1.Worker) error {
	d := newDetails(w)
	d.add("worker", m.GetWorkerId())
	d.add("session", m.GetSessionId())
	d.add("state", words.Name(m.GetState()))
	d.add("health", healthText(m))
	d.add("drain", drainText(m.GetDrain()))
	d.add("instance", m.GetInfo().GetInstanceId())
	d.add("version", m.GetInfo().GetVersion())
	d.add("host", m.GetInfo().GetHostname())
	d.add("pool", m.GetPoolId())
	d.add("connected", clock(m.GetConnectedAt()))
	d.add("last frame", clock(m.GetLastSeenAt()))
	d.add("workspace", m.GetWorkspaceId())
	d.add("queues", strings.Join(m.GetQueues(), ", "))
	d.add("types", strings.Join(m.GetCapabilities().GetTypes(), ", "))
	d.addCapabilities(m.GetCapabilities())
	d.addPackages(m)
	d.add("slots", fmt.Sprint(m.GetCapabilities().GetConcurrency().GetMaxParallel()))
	d.add("leases", fmt.Sprint(m.GetLeases()))
	gauges := maps.Clone(m.GetMetrics())
	delete(gauges, "inflight") // of the last heartbeat; leases are of now
	d.addGauges(gauges)
	d.add("tasks", strings.Join(m.GetTaskIds(), "\n"))
	return d.flush()
}

// addCapabilities shows what tasks may require of the worker.
func (d details) addCapabilities(c *lessorv1.Capabilities) {
	d.add("runtimes", strings.Join(c.GetRuntimes(), ", "))
	d.add("features", strings.Join(c.GetFeatures(), ", "))
	addEach(d, "label", "%s=%s", c.GetLabels())
	addEach(d, "resource", "%s %g", c.GetResources())
}

// addPackages shows the packages of a worker, and that it takes orders to install them.
func (d details) addPackages(m *lessorv1.Worker) {
	for _, p := range m.GetPackages() {
		text := worker.Package{Name: p.GetName(), Version: p.GetVersion()}.String() + " " + words.Name(p.GetStatus())
		if p.GetDetail() != "" {
			text += ": " + p.GetDetail()
		}
		d.add("package", text)
	}
	if m.GetInstallsPackages() {
		d.add("installs", "packages, when an operator asks for it")
	}
}

func healthText(m *lessorv1.Worker) string {
	text := words.Name(m.GetHealth())
	if m.GetHealthDetail() != "" {
		text += ": " + m.GetHealthDetail()
	}
	return text
}

func drainText(d *lessorv1.Drain) string {
	if d == nil {
		return ""
	}
	parts := []string{"asked by an operator"}
	if d.GetDeadline() != nil {
		parts = append(parts, "until "+clock(d.GetDeadline()))
	}
	if d.GetReason() != "" {
		parts = append(parts, d.GetReason())
	}
	return strings.Join(parts, ", ")
}
