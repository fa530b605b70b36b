package lease

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
)

// Requirements are what a worker must have to be granted a task: all of it (W12).
type Requirements struct {
	Runtimes  []string           // must be among the worker's
	Features  []string           // must be among the worker's
	Labels    map[string]string  // must be the worker's, with these values
	Resources map[string]float64 // the worker must have at least this much; finite, > 0
	Package   string             // must be installed (W13): NAME for any version, or NAME@VERSION; empty: none
}

// Capabilities are what a worker registers that it has (W12).
type Capabilities struct {
	Runtimes  []string // sorted when the methods below compare them with requirements, like Features
	Features  []string
	Labels    map[string]string
	Resources map[string]float64 // finite, >= 0
	Packages  []string           // installed, each NAME@VERSION (W13); sorted, like Runtimes
}

// MaxCapabilities is how many runtimes a worker may have, and the same for features, labels,
// resources and packages.
const MaxCapabilities = 256

// Meet reports whether a worker with capabilities c has everything that r requires. A nil r
// requires nothing.
func (c *Capabilities) Meet(r *Requirements) bool {
	return c.Missing(r, 1) == 0
}

// Missing returns how many of the things that r requires a worker with capabilities c does not
// have. It counts no further than to most; 0 is no limit.
func (c *Capabilities) Missing(r *Requirements, most int) (n int) {
	for range c.missing(r) {
		if n++; n == most {
			break
		}
	}
	return n
}

// Lack returns in words, sorted, what r requires and a worker with capabilities c does not have. It
// returns nil if c meets r.
func (c *Capabilities) Lack(r *Requirements) (all []string) {
	for part, name := range c.missing(r) {
		words := fmt.Sprintf("%s %q", part, name)
		switch part {
		case "label":
			words += fmt.Sprintf(" = %q", r.Labels[name])
		case "resource":
			words += fmt.Sprintf(" >= %v", r.Resources[name])
		}
		all = append(all, words)
	}
	slices.Sort(all)
	return all
}

// missing iterates over what r requires and c does not have: the kind ("runtime", "feature",
// "label", "resource" or "package") and the name.
func (c *Capabilities) missing(r *Requirements) iter.Seq2[string, string] {
	return func(yield func(part, name string) bool) {
		if r == nil {
			return
		}
		for _, name := range r.Runtimes {
			if _, has := slices.BinarySearch(c.Runtimes, name); !has && !yield("runtime", name) {
				return
			}
		}
		for _, name := range r.Features {
			if _, has := slices.BinarySearch(c.Features, name); !has && !yield("feature", name) {
				return
			}
		}
		for name, want := range r.Labels {
			if got, ok := c.Labels[name]; (!ok || got != want) && !yield("label", name) {
				return
			}
		}
		// a missing resource counts as 0, and every required amount is greater than 0
		for name, want := range r.Resources {
			if !(c.Resources[name] >= want) && !yield("resource", name) {
				return
			}
		}
		if r.Package != "" && !hasPackage(c.Packages, r.Package) {
			yield("package", r.Package)
		}
	}
}

// Check returns nil or a *FieldError. The path of the field starts at the capabilities, for example
// "runtimes[0]". It does not check the packages, which are a field beside the capabilities.
func (c *Capabilities) Check(l Limits) error {
	r := Requirements{Runtimes: c.Runtimes, Features: c.Features, Labels: c.Labels, Resources: c.Resources}
	if err := r.check(MaxCapabilities, true, l); err != nil {
		return err
	}
	return nil
}

// check allows at most `most` entries of each kind. It allows an amount of 0 only if zero is true.
func (r *Requirements) check(most int, zero bool, l Limits) *FieldError {
	if r.Package != "" {
		name, version, exact := cutPackage(r.Package)
		if err := checkPackage("package", "package", name, version, exact, l); err != nil {
			return err
		}
	}
	if err := checkNames("runtimes", r.Runtimes, most, l); err != nil {
		return err
	}
	if err := checkNames("features", r.Features, most, l); err != nil {
		return err
	}
	if err := checkLabels("labels", r.Labels, most, l); err != nil {
		return err
	}
	if len(r.Resources) > most {
		return bad("resources", "has %d entries; the limit is %d", len(r.Resources), most)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Resources)) {
		if k == "" {
			return bad("resources", "has an empty key")
		}
		field := fmt.Sprintf("resources[%q]", Clip(k, 40))
		if err := CheckID(field, k, l); err != nil {
			return err
		}
		switch v := r.Resources[k]; {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return bad(field, "is %v; it must be finite", v)
		case v < 0 && zero:
			return bad(field, "is %v; it cannot be negative", v)
		case v <= 0 && !zero:
			return bad(field, "is %v; it must be greater than 0", v)
		}
	}
	return nil
}

func checkNames(field string, names []string, most int, l Limits) *FieldError {
	if len(names) > most {
		return bad(field, "has %d entries; the limit is %d", len(names), most)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", field, i)
		if name == "" {
			return bad(at, "must not be empty")
		}
		if err := CheckID(at, name, l); err != nil {
			return err
		}
	}
	return nil
}
