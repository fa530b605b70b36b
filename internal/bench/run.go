package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// stuck is how long a phase or limit may take before it is given up.
const stuck = 10 * time.Minute

var errStuck = fmt.Errorf("did not finish within %v", stuck)

// work is a phase or a limit; both take turns in the same way.
type work struct {
	name string
	run  func(context.Context) (samples, error)
}

// garbage is GOGC of this process, unless the environment sets it. The heap of the load is a few
// MiB; collecting it as often as the default does took a quarter of the load's processor time away
// from the coordinator.
const garbage = 400

func relaxGC() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(garbage)
	return func() { debug.SetGCPercent(before) }
}

// Run measures everything, Repeat times in turn. If ctx ends, the error is its cause. If only the
// profiles fail, Run returns the report with the error. No process or directory is left behind, and
// no task, unless the coordinator at Addr does not answer; then Progress is told about them.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.Producers, c.Backlogs = inOrder(c.Producers), inOrder(c.Backlogs)
	if c.Addr != "" {
		c.Backlogs = nil // the phases with a backlog restart the coordinator
	}
	if err := c.validatePhases(); err != nil {
		return nil, err
	}
	c.Backlogs = slices.DeleteFunc(c.Backlogs, func(n int) bool { // the report tells what was measured
		return !slices.ContainsFunc(withBacklog(), func(phase string) bool { return c.asksFor(forBacklog(phase, n)) })
	})
	defer relaxGC()()
	if err := c.checkReachable(ctx); err != nil {
		return nil, err
	}
	if c.Profile != "" {
		if err := os.MkdirAll(c.Profile, 0o755); err != nil {
			return nil, err
		}
	}
	report := c.newReport()
	found, took := map[string][]float64{}, map[string]time.Duration{}
	for round := range c.Repeat {
		for _, w := range c.works() {
			c.progress("%d of %d: %s", round+1, c.Repeat, w.name)
			begin := time.Now()
			got, err := w.do(ctx)
			took[w.name] = time.Since(begin)
			if err != nil {
				return nil, err
			}
			for name, value := range got {
				found[name] = append(found[name], value)
			}
		}
	}
	report.fill(c.limitMetrics(), c.resultMetrics(), found)
	return report, c.profiles(ctx, took)
}

// checkReachable finds out whether there is a coordinator at Addr, and whether it accepts workers
// of Tenant, before anything is measured or submitted.
func (c *Config) checkReachable(ctx context.Context) error {
	if c.Addr == "" {
		return nil
	}
	r, err := c.newRig(c.remoteCoordinator())
	if err != nil {
		return err
	}
	defer func() { _ = r.conn.Close() }()
	if _, err = lessorv1.NewAdminServiceClient(r.conn).GetStatus(ctx, &lessorv1.GetStatusRequest{}); err != nil {
		return err
	}
	workers := workerGroup{rig: r}
	workers.run(ctx)
	workers.ready.Wait()
	return workers.shutdown()
}

// do runs a piece of work. If ctx has ended, the error is the cause of that, whatever else went
// wrong.
func (w work) do(ctx context.Context) (samples, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, stuck, errStuck)
	defer cancel()
	got, err := w.run(bounded)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	return got, nil
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// works returns all limits and phases, in the order of their turns.
func (c *Config) works() []work {
	all := []work{
		{"disk", c.diskLimit},
		{"commit", c.commitLimit},
		{"store, large commits", c.largeCommits},
		{"wire", c.wireLimit},
	}
	for _, n := range c.Producers {
		name := fmt.Sprintf("store, commits of %d", n)
		all = append(all, work{name, func(ctx context.Context) (samples, error) { return c.smallCommits(ctx, n) }})
	}
	for _, p := range c.phases() {
		all = append(all, work{p.name, func(ctx context.Context) (got samples, err error) {
			return got, c.withCoordinator(ctx, func(s *coordinator) error {
				got, err = c.measure(ctx, s, p)
				return err
			})
		}})
	}
	return all
}

// measure runs a phase on a coordinator.
func (c *Config) measure(ctx context.Context, s *coordinator, p phase) (samples, error) {
	r, err := c.newRig(s)
	if err != nil {
		return nil, err
	}
	got, err := p.run(ctx, r)
	if left := r.cleanUp(ctx); left != nil {
		// the error may be another one
		c.progress("%s: its tasks in workspace %s were not deleted; \"lessor task delete --workspace %[2]s --all --force --yes\" does that", p.name, r.workspace)
		err = errors.Join(err, left)
	}
	_ = r.conn.Close() // nothing is under way
	return got, err
}
