package main

import (
	"strings"

	"github.com/lessor-dev/lessor/worker"
)

// capabilities are the flags for the capabilities of a worker, and for how much work it takes at
// once.
type capabilities struct {
	Jobs         uint               `type:"positive" short:"j" default:"1" placeholder:"N" help:"Commands that run at the same time, 1 to 9,000."`
	TypeLimit    map[string]int     `mapsep:"none" placeholder:"TYPE=N" help:"Commands of a type that run at the same time, within --jobs. Repeatable."`
	SingleFlight bool               `help:"Run at most one task of each concurrency key at a time in this worker."`
	MaxBytes     size               `type:"positive" placeholder:"SIZE" help:"Most bytes (no limit) of payloads and checkpoints of all tasks that the worker holds at once, in bytes or as 64MiB; a larger task is granted alone."`
	Runtime      []string           `sep:"none" placeholder:"NAME" help:"Runtime that tasks may require. Repeatable."`
	Feature      []string           `sep:"none" placeholder:"NAME" help:"Feature that tasks may require. Repeatable."`
	Label        map[string]string  `mapsep:"none" placeholder:"KEY=VALUE" help:"Label that tasks may require. Repeatable."`
	Resource     map[string]float64 `mapsep:"none" placeholder:"NAME=AMOUNT" help:"How much the worker has of something, in a unit of its own; tasks may require an amount. Repeatable."`
	Package      []string           `sep:"none" placeholder:"NAME@VERSION" help:"Package that is installed when the worker starts; tasks may require one. Repeatable."`
}

// apply sets the worker's settings from the flags. The worker checks them.
func (c capabilities) apply(cfg *worker.Config) {
	cfg.Concurrency = int(c.Jobs)
	cfg.PerTypeLimits = c.TypeLimit
	cfg.SingleFlight = c.SingleFlight
	cfg.MaxBytes = int64(c.MaxBytes)
	cfg.Runtimes, cfg.Features = c.Runtime, c.Feature
	cfg.Labels, cfg.Resources = c.Label, c.Resource
	for _, p := range c.Package {
		pkg, _ := packageOf(p) // the worker misses the version
		cfg.Packages = append(cfg.Packages, pkg)
	}
}

// packageOf divides a package into name and version at the last "@". That is not the first byte,
// which may be part of a name. versioned says whether there is such an "@".
func packageOf(p string) (pkg worker.Package, versioned bool) {
	at := strings.LastIndexByte(p, '@')
	if at <= 0 {
		return worker.Package{Name: p}, false
	}
	return worker.Package{Name: p[:at], Version: p[at+1:]}, true
}
