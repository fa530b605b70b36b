package bench

import (
	"cmp"
	"context"
	"slices"
)

// samples are the results of one run of a phase or limit, by the name of the metric.
type samples map[string]float64

// phase is a measurement on a coordinator of its own.
type phase struct {
	name string
	run  func(context.Context, *rig) (samples, error)
}

// phases returns the phases that the configuration asks for.
func (c *Config) phases() []phase {
	return slices.DeleteFunc(c.allPhases(), func(p phase) bool { return !c.asksFor(p.name) })
}

// asksFor reports whether Phases selects a phase.
func (c *Config) asksFor(phase string) bool {
	return len(c.Phases) == 0 || slices.ContainsFunc(c.Phases, func(name string) bool { return matches(phase, name) })
}

// allPhases returns all phases that there are with this number of producers and waiting tasks.
func (c *Config) allPhases() []phase {
	all := []phase{
		enqueue("enqueue_bulk", c.Tasks, submitBulk),
		{"drain", drain},
		endToEnd("end_to_end_bulk", c.Tasks, submitBulk),
		{"latency", idleLatency},
	}
	for _, n := range c.Producers {
		tasks := min(c.Tasks, n*tasksOfProducer)
		all = append(all,
			enqueue(forProducers("enqueue_shared", n), tasks, submitShared(n)),
			enqueue(forProducers("enqueue_unary", n), tasks, submitUnary(n)),
			endToEnd(forProducers("end_to_end_shared", n), tasks, submitShared(n)),
		)
	}
	for _, n := range c.Backlogs {
		all = append(all, phase{forBacklog("backlog", n), backlog(n)})
		for _, k := range scatteredKinds {
			all = append(all, k.phase(n))
		}
	}
	return all
}

// withBacklog returns the names of the phases that there are once for each number of waiting tasks.
// They restart the coordinator.
func withBacklog() []string {
	names := []string{"backlog"}
	for _, k := range scatteredKinds {
		names = append(names, k.name)
	}
	return names
}

// tasksOfProducer bounds how many tasks one producer submits that waits for each: a single producer
// is a hundred times slower than frames.
const tasksOfProducer = 2000

// enqueue measures submits without workers.
func enqueue(name string, tasks int, submit submitter) phase {
	return phase{name, func(ctx context.Context, r *rig) (samples, error) {
		end := r.server.begin()
		acknowledged, err := submit(ctx, r, tasks)
		r.ran = end()
		if err != nil {
			return nil, err
		}
		return r.ran.rate(name, acknowledged), r.checkWaiting(ctx, tasks)
	}}
}

// drain measures workers that find all tasks waiting.
func drain(ctx context.Context, r *rig) (samples, error) {
	acknowledged, err := submitBulk(ctx, r, r.Tasks)
	if err != nil {
		return nil, err
	}
	committed, err := r.drainTasks(ctx, r.Tasks)
	if err != nil {
		return nil, err
	}
	return r.ran.rate("drain", r.Tasks), r.checkCompleted(ctx, acknowledged, committed)
}

// drainTasks measures workers from their start to verdict n, and lets them finish the tasks that
// they have. It returns the number of verdicts.
func (r *rig) drainTasks(ctx context.Context, n int) (committed int, err error) {
	c := workerGroup{rig: r, target: int64(n)}
	end := r.server.begin()
	c.run(ctx)
	err = c.wait(ctx)
	r.ran = end()
	err = cmp.Or(err, c.shutdown()) // the same one, if the workers ended too early
	return int(c.committed.Load()), err
}

// endToEnd measures producers and workers at the same time, from the first submit to the last
// verdict; the workers wait already.
func endToEnd(name string, tasks int, submit submitter) phase {
	return phase{name, func(ctx context.Context, r *rig) (samples, error) {
		c := workerGroup{rig: r, target: int64(tasks)}
		c.run(ctx)
		c.ready.Wait()
		end := r.server.begin()
		acknowledged, err := submit(ctx, r, tasks)
		if err == nil {
			err = c.wait(ctx)
		}
		r.ran = end()
		if err = cmp.Or(err, c.shutdown()); err != nil {
			return nil, err
		}
		return r.ran.rate(name, acknowledged), r.checkCompleted(ctx, acknowledged, int(c.committed.Load()))
	}}
}
