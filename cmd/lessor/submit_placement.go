package main

import (
	"strings"
	"time"

	"github.com/alecthomas/kong"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// placementFlags are the flags that say which workers may take a task, and its place in a trace.
type placementFlags struct {
	RequireRuntime  []string           `sep:"none" placeholder:"NAME" help:"Only workers with this runtime take the task. Repeatable."`
	RequireFeature  []string           `sep:"none" placeholder:"NAME" help:"Only workers with this feature take the task. Repeatable."`
	RequireLabel    map[string]string  `mapsep:"none" placeholder:"KEY=VALUE" help:"Only workers with this label take the task. Repeatable."`
	RequireResource map[string]float64 `mapsep:"none" placeholder:"NAME=AMOUNT" help:"Only workers with at least this amount of the resource take the task. Repeatable."`
	RequirePackage  string             `type:"nonempty" placeholder:"NAME[@VERSION]" help:"Only workers on which this package is installed take the task, in this version or, without one, in any."`
	ResourceRef     []string           `sep:"none" placeholder:"ID@WORKER" help:"Only the worker that holds this resource takes the task. Repeatable, for the same worker."`
	Affinity        string             `placeholder:"KEY" help:"Affinity key: tasks with the same key go to the worker that had the last of them, if it has a free slot."`
	Sticky          bool               `help:"With --affinity: wait for that worker if it has no free slot."`
	AffinityTTL     time.Duration      `name:"affinity-ttl" type:"positive" placeholder:"DURATION" help:"With --affinity: how long the binding lasts after the last task (10m)."`

	HostNode   string   `placeholder:"ID" help:"Node that the task is mounted on: the key or id of its task, in the same run."`
	ChainIndex *uint32  `placeholder:"N" help:"Position among the tasks that are mounted on that node, from 0."`
	Middleware []string `sep:"none" placeholder:"NAME" help:"Name of a middleware that is mounted on this task, for people. Repeatable, outermost first."`
}

// apply sets the fields of the spec from the flags.
func (p placementFlags) apply(spec *lessorv1.TaskSpec) (err error) {
	if len(p.RequireRuntime)+len(p.RequireFeature)+len(p.RequireLabel)+len(p.RequireResource) > 0 ||
		p.RequirePackage != "" {
		spec.Requirements = &lessorv1.Requirements{
			Runtimes: p.RequireRuntime, Features: p.RequireFeature, Labels: p.RequireLabel,
			Resources: p.RequireResource, Package: p.RequirePackage,
		}
	}
	if spec.ResourceRefs, err = p.refs(); err != nil {
		return err
	}
	spec.Affinity = p.affinity()
	if p.HostNode != "" || p.ChainIndex != nil || len(p.Middleware) > 0 {
		spec.TraceMeta = &lessorv1.TraceMeta{
			HostNodeId: p.HostNode, ChainIndex: p.ChainIndex,
			MiddlewareChain: p.Middleware,
		}
	}
	return nil
}

func (p placementFlags) refs() (all []*lessorv1.ResourceRef, err error) {
	for _, ref := range p.ResourceRef {
		at := strings.LastIndexByte(ref, '@')
		if at < 0 {
			return nil, fail(exitUsage, "say which worker holds it: ID@WORKER", "--resource-ref: %q has no @", ref)
		}
		all = append(all, &lessorv1.ResourceRef{ResourceId: ref[:at], WorkerId: ref[at+1:]})
	}
	return all, nil
}

// refuseIdle refuses flags that do nothing without --affinity.
func (p placementFlags) refuseIdle(line *kong.Context) error {
	return refuseIdle(line, "only with --affinity", func(flag *kong.Flag) bool {
		return p.Affinity == "" && (flag.Name == "sticky" || flag.Name == "affinity-ttl")
	})
}

func (p placementFlags) affinity() *lessorv1.Affinity {
	if p.Affinity == "" {
		return nil
	}
	a := &lessorv1.Affinity{Key: p.Affinity, Ttl: span(p.AffinityTTL)}
	if p.Sticky {
		a.Mode = lessorv1.AffinityMode_AFFINITY_MODE_STICKY
	}
	return a
}
