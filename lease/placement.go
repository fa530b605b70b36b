package lease

import (
	"fmt"
	"time"
)

// ResourceRef names something that a task needs and that only one worker has.
type ResourceRef struct {
	ResourceID string
	Worker     string // the worker that has it
	Type       string
	Scope      string
	ExpiresAt  Wall // 0: not stated
	Metadata   map[string]string
}

// Affinity keeps the tasks with the same key on one worker.
type Affinity struct {
	Key  string
	Mode AffinityMode
	TTL  time.Duration // how long the key stays bound to the worker after the key's last lease has ended
}

// AffinityMode says what happens to a task while the worker of its key has no room.
type AffinityMode uint8

// The modes have the same numbers as on the wire.
const (
	Sticky    AffinityMode = iota + 1 // the task waits for that worker
	Preferred                         // the task goes to another worker
)

// Trace is the place of a task in a graph that the producer keeps (trace_meta). The rules ignore
// it.
type Trace struct {
	// Host is the task_key or task id of the host of this middleware, a task of the same run;
	// empty: the task is no middleware.
	Host  string
	Chain []string // names of middlewares
	Index *uint32  // position of this task in Chain; nil: not sent
}

// Pinned returns the only worker that may be granted the task, or "" if the task is not pinned.
func (s *Spec) Pinned() string {
	if len(s.ResourceRefs) == 0 {
		return ""
	}
	return s.ResourceRefs[0].Worker
}

// firstExpiry returns the earliest expires_at of the resources; 0 if none expires.
func (s *Spec) firstExpiry() (first Wall) {
	for i := range s.ResourceRefs {
		if at := s.ResourceRefs[i].ExpiresAt; at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// checkNotExpired returns an error if a resource of the task has expired. A retry cannot help then:
// a spec never changes, so only a new task can name other resources.
func (s *Spec) checkNotExpired(now Wall) error {
	if first := s.firstExpiry(); first != 0 && first <= now {
		return bad("resource_refs", "a resource expired at %s; submit a new task", first.Time().Format(clockTime))
	}
	return nil
}

// checkPlacement checks the fields that decide which worker gets the task.
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

// checkRefs checks the references, and that all of them name the same worker (W12).
func (s *Spec) checkRefs(l Limits) *FieldError {
	if len(s.ResourceRefs) > MaxResourceRefs {
		return bad("resource_refs", "has %d entries; the limit is %d", len(s.ResourceRefs), MaxResourceRefs)
	}
	for i := range s.ResourceRefs {
		r := &s.ResourceRefs[i]
		err := r.check(l)
		if err == nil && r.Worker != s.Pinned() {
			err = bad("worker_id", "is %q; resource_refs[0] names %q, and all must name the same worker",
				r.Worker, s.Pinned())
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
		return bad("resource_id", "must not be empty")
	case r.Worker == "":
		return bad("worker_id", "must not be empty; name the worker that holds the resource")
	}
	for _, f := range []struct{ name, value string }{
		{"resource_id", r.ResourceID}, {"worker_id", r.Worker}, {"type", r.Type}, {"scope", r.Scope},
	} {
		if err := CheckID(f.name, f.value, l); err != nil {
			return err
		}
	}
	if r.ExpiresAt < 0 {
		return bad("expires_at", "is before 1970")
	}
	return checkLabels("metadata", r.Metadata, MaxRefMetadata, l)
}

func (a *Affinity) check(l Limits) *FieldError {
	switch {
	case a == nil:
		return nil
	case a.Key == "":
		return bad("key", "must not be empty")
	case a.Mode > Preferred:
		return bad("mode", "is %d, which is not a known value", a.Mode)
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

// PlacementSize returns roughly how many bytes requirements, references, affinity and trace take in
// a message.
func (s *Spec) PlacementSize() (n int) {
	const each = 8 // estimate of the bytes that the wire format adds to a value
	if r := s.Requirements; r != nil {
		n += namesSize(r.Runtimes) + namesSize(r.Features) + len(r.Package) + each
		for k, v := range r.Labels {
			n += len(k) + len(v) + 2*each
		}
		for k := range r.Resources {
			n += len(k) + 2*each
		}
	}
	for i := range s.ResourceRefs {
		r := &s.ResourceRefs[i]
		n += len(r.ResourceID) + len(r.Worker) + len(r.Type) + len(r.Scope) + 6*each
		for k, v := range r.Metadata {
			n += len(k) + len(v) + 2*each
		}
	}
	if a := s.Affinity; a != nil {
		n += len(a.Key) + 4*each
	}
	if t := s.Trace; t != nil {
		n += len(t.Host) + namesSize(t.Chain) + 2*each
	}
	return n
}

func namesSize(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 4
	}
	return n
}
