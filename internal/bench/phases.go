package bench

import (
	"context"
	"errors"
)

// samples are what one run of a phase or limit measured, by the name of the metric.
type samples map[string]float64

// phase is a measurement on a coordinator of its own.
type phase struct {
	name string
	run  func(context.Context, *rig) (samples, error)
}

// phases returns those that the configuration asks for. The backlog restarts its coordinator, so that it is not for one that runs elsewhere.
func (c *Config) phases() []phase {
	all := []phase{
		{"enqueue_bulk", enqueue("enqueue_bulk", submitBulk)},
		{"enqueue_shared", enqueue("enqueue_shared", submitShared)},
		{"enqueue_unary", enqueue("enqueue_unary", submitUnary)},
		{"drain", drain},
		{"end_to_end_shared", endToEnd("end_to_end_shared", submitShared)},
		{"end_to_end_bulk", endToEnd("end_to_end_bulk", submitBulk)},
		{"latency", idleLatency},
	}
	if c.Backlog > 0 && c.Addr == "" {
		all = append(all, phase{"backlog", backlog})
	}
	return all
}

// throughput is the samples of a phase about tasks per second.
func (r *rig) throughput(name string, n int) samples {
	return samples{name: r.ran.rate(n), cpuOf(name): r.ran.cpuOf(n)}
}

// enqueue measures the submits while no worker is there.
func enqueue(name string, submit submitter) func(context.Context, *rig) (samples, error) {
	return func(ctx context.Context, r *rig) (samples, error) {
		end := r.server.begin()
		acknowledged, err := submit(ctx, r, r.Tasks)
		r.ran = end()
		if err != nil {
			return nil, err
		}
		return r.throughput(name, acknowledged), r.checkWaiting(ctx, r.Tasks)
	}
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
	return r.throughput("drain", r.Tasks), r.checkCompleted(ctx, acknowledged, committed)
}

// drainTasks measures workers from their start to verdict n, and lets them finish what they have. It returns how many verdicts there were.
func (r *rig) drainTasks(ctx context.Context, n int) (committed int, err error) {
	c := crew{rig: r, target: int64(n)}
	end := r.server.begin()
	c.run(ctx)
	err = c.wait(ctx)
	r.ran = end()
	err = errors.Join(err, c.dismiss())
	return int(c.committed.Load()), err
}

// endToEnd measures producers and workers at once, from the first submit to the last verdict; the workers wait already.
func endToEnd(name string, submit submitter) func(context.Context, *rig) (samples, error) {
	return func(ctx context.Context, r *rig) (samples, error) {
		c := crew{rig: r, target: int64(r.Tasks)}
		c.run(ctx)
		c.ready.Wait()
		end := r.server.begin()
		acknowledged, err := submit(ctx, r, r.Tasks)
		if err == nil {
			err = c.wait(ctx)
		}
		r.ran = end()
		if err = errors.Join(err, c.dismiss()); err != nil {
			return nil, err
		}
		return r.throughput(name, acknowledged), r.checkCompleted(ctx, acknowledged, int(c.committed.Load()))
	}
}
