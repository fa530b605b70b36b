package lease

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"
)

// Requirements are what a worker must have to be granted a task: all of it (W12).
type Requirements struct {
	Runtimes  []string           // must be among the worker's
	Features  []string           // must be among the worker's
	Labels    map[string]string  // must be the worker's, with these values
	Resources map[string]float64 // the worker must have at least so much; finite, > 0
}

// Capabilities are what a worker has, by its own word (W12).
type Capabilities struct {
	Runtimes  []string
	Features  []string
	Labels    map[string]string
	Resources map[string]float64 // finite, >= 0
}

// MaxCapabilities is how many runtimes, features, labels or resources a worker may have, of each.
const MaxCapabilities = 256

// ResourceRef is something that a task needs and that lies on one worker.
type ResourceRef struct {
	ResourceID string
	Worker     string // that holds it
	Type       string
	Scope      string
	ExpiresAt  Wall // 0: not stated
	Metadata   map[string]string
}

// Affinity keeps tasks of one key on one worker.
type Affinity struct {
	Key  string
	Mode AffinityMode
	TTL  time.Duration // for which the key stays bound after its last lease has ended
}

// AffinityMode is what happens while the worker of the key has no room.
type AffinityMode uint8

// The modes, with the numbers of the wire.
const (
	Sticky    AffinityMode = iota + 1 // the task waits for it
	Preferred                         // the task goes to another
)

// Trace says where a task stands in a graph of the producer's. Nothing here looks at it.
type Trace struct {
	Host  string   // task_key or task id of the task that this one is mounted on, in the same run; empty: none
	Chain []string // names of middlewares
	Index *uint32  // of this one in the chain; nil: not sent
}

// Pinned is the only worker that may be granted the task; empty: it is not pinned.
func (s *Spec) Pinned() string {
	if len(s.ResourceRefs) == 0 {
		return ""
	}
	return s.ResourceRefs[0].Worker
}

// firstExpiry is when the first of the resources expires; 0: none does.
func (s *Spec) firstExpiry() (first Wall) {
	for i := range s.ResourceRefs {
		if at := s.ResourceRefs[i].ExpiresAt; at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// gone refuses a retry of a task whose resources have expired. The spec can not be changed, so that only a new task can name others.
func (s *Spec) gone(now Wall) error {
	if first := s.firstExpiry(); first != 0 && first <= now {
		return bad("resource_refs", "one of them expired at %s; submit a new task", first.Time().Format(clockTime))
	}
	return nil
}

// Meet reports whether a worker with c has all that r requires; nil requires nothing.
func (c *Capabilities) Meet(r *Requirements) bool {
	for range c.lacks(r) {
		return false
	}
	return true
}

// Lack tells in words what r requires and a worker with c does not have, in order; none if they meet.
func (c *Capabilities) Lack(r *Requirements) (all []string) {
	for part, name := range c.lacks(r) {
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

// lacks goes over what r requires and a worker with c does not have, by the part of r and the name.
func (c *Capabilities) lacks(r *Requirements) iter.Seq2[string, string] {
	return func(yield func(part, name string) bool) {
		if r == nil {
			return
		}
		for _, name := range r.Runtimes {
			if !slices.Contains(c.Runtimes, name) && !yield("runtime", name) {
				return
			}
		}
		for _, name := range r.Features {
			if !slices.Contains(c.Features, name) && !yield("feature", name) {
				return
			}
		}
		for name, want := range r.Labels {
			if got, ok := c.Labels[name]; (!ok || got != want) && !yield("label", name) {
				return
			}
		}
		for name, want := range r.Resources { // what is not there is 0, and less than anything that may be required
			if !(c.Resources[name] >= want) && !yield("resource", name) {
				return
			}
		}
	}
}

// Check finds what is wrong with capabilities. It returns a *FieldError, whose paths begin within them.
func (c *Capabilities) Check(l Limits) error {
	if err := (*Requirements)(c).check(MaxCapabilities, true, l); err != nil {
		return err
	}
	return nil
}

// check allows at most so many of each, and amounts of 0 only where zero says so.
func (r *Requirements) check(most int, zero bool, l Limits) *FieldError {
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
		field := fmt.Sprintf("resources[%q]", clip(k, 40))
		if err := CheckID(field, k, l); err != nil {
			return err
		}
		switch v := r.Resources[k]; {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return bad(field, "is %v; it must be finite", v)
		case v < 0 && zero:
			return bad(field, "is %v; it can not be negative", v)
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
			return bad(at, "is empty")
		}
		if err := CheckID(at, name, l); err != nil {
			return err
		}
	}
	return nil
}

// checkPlacement checks what decides about the worker.
func (s *Spec) checkPlacement(l Limits) *FieldError {
	if r := s.Requirements; r != nil {
		if err := r.check(MaxRequired, false, l); err != nil {
			return err.Under("requirements")
		}
	}
	if err := s.checkRefs(l); err != nil {
		return err
	}
	if err := s.Affinity.check(l); err != nil {
		return err.Under("affinity")
	}
	return nil
}

// checkRefs sees to it that all resources lie on one worker (W12).
func (s *Spec) checkRefs(l Limits) *FieldError {
	if len(s.ResourceRefs) > MaxResourceRefs {
		return bad("resource_refs", "has %d entries; the limit is %d", len(s.ResourceRefs), MaxResourceRefs)
	}
	for i := range s.ResourceRefs {
		r := &s.ResourceRefs[i]
		err := r.check(l)
		if err == nil && r.Worker != s.Pinned() {
			err = bad("worker_id", "is %q, but that of resource_refs[0] is %q; a task runs on one worker", r.Worker, s.Pinned())
		}
		if err != nil {
			return err.Under(fmt.Sprintf("resource_refs[%d]", i))
		}
	}
	return nil
}

func (r *ResourceRef) check(l Limits) *FieldError {
	switch {
	case r.ResourceID == "":
		return bad("resource_id", "is empty")
	case r.Worker == "":
		return bad("worker_id", "is empty; a resource lies on a worker")
	}
	for _, f := range []struct{ name, value string }{
		{"resource_id", r.ResourceID}, {"worker_id", r.Worker}, {"type", r.Type}, {"scope", r.Scope},
	} {
		if err := CheckID(f.name, f.value, l); err != nil {
			return err
		}
	}
	if r.ExpiresAt < 0 {
		return bad("expires_at", "lies before 1970")
	}
	return checkLabels("metadata", r.Metadata, MaxRefMetadata, l)
}

func (a *Affinity) check(l Limits) *FieldError {
	switch {
	case a == nil:
		return nil
	case a.Key == "":
		return bad("key", "is empty")
	case a.Mode > Preferred:
		return bad("mode", "is %d, which is none of its values", a.Mode)
	case a.TTL < MinAffinityTTL || a.TTL > MaxAffinityTTL:
		return bad("ttl", "is %v; the range is %v to %v", a.TTL, MinAffinityTTL, MaxAffinityTTL)
	}
	return CheckID("key", a.Key, l)
}

func (t *Trace) check(l Limits) *FieldError {
	if t == nil {
		return nil
	}
	if err := CheckID("host_node_id", t.Host, l); err != nil {
		return err
	}
	if err := checkNames("middleware_chain", t.Chain, MaxMiddlewares, l); err != nil {
		return err
	}
	if t.Index != nil && len(t.Chain) > 0 && uint64(*t.Index) >= uint64(len(t.Chain)) {
		return bad("chain_index", "is %d; middleware_chain has %d entries", *t.Index, len(t.Chain))
	}
	return nil
}
