package convert

import (
	"errors"
	"fmt"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The fields that decide which worker gets a task (W12), in both directions. The rules check counts
// and lengths.

// ParseCapabilities reads the capabilities of a worker into w. It does not read the number of its
// slots; the caller does.
func ParseCapabilities(f *Fields, name string, m *lessorv1.Capabilities, w *engine.Wants) {
	w.Types = f.types(name+".types", m.GetTypes())
	w.Capabilities = lease.Capabilities{
		Runtimes: m.GetRuntimes(), Features: m.GetFeatures(), Labels: m.GetLabels(), Resources: m.GetResources(),
	}
	if bad, ok := errors.AsType[*lease.FieldError](w.Capabilities.Check(f.Limits)); ok {
		f.keep(bad.Under(name))
	}
	c := m.GetConcurrency()
	w.TypeLimits = f.TypeLimits(name+".concurrency.per_type_limits", c.GetPerTypeLimits())
	w.SingleFlight, w.MaxBytes = c.GetSingleFlight(), c.GetMaxBytes()
}

func parseRequirements(m *lessorv1.Requirements) *lease.Requirements {
	if m == nil {
		return nil
	}
	return &lease.Requirements{
		Runtimes: m.GetRuntimes(), Features: m.GetFeatures(), Labels: m.GetLabels(),
		Resources: m.GetResources(), Package: m.GetPackage(),
	}
}

func requirementsProto(r *lease.Requirements) *lessorv1.Requirements {
	if r == nil {
		return nil
	}
	return &lessorv1.Requirements{
		Runtimes: r.Runtimes, Features: r.Features, Labels: r.Labels,
		Resources: r.Resources, Package: r.Package,
	}
}

func parseRefs(f *Fields, sent []*lessorv1.ResourceRef) []lease.ResourceRef {
	f.Count("resource_refs", len(sent), lease.MaxResourceRefs)
	var all []lease.ResourceRef
	for i, m := range sent[:min(len(sent), lease.MaxResourceRefs)] {
		all = append(all, lease.ResourceRef{
			ResourceID: m.GetResourceId(),
			Worker:     m.GetWorkerId(),
			Type:       m.GetType(),
			Scope:      m.GetScope(),
			ExpiresAt:  f.Wall(fmt.Sprintf("resource_refs[%d].expires_at", i), m.GetExpiresAt()),
			Metadata:   m.GetMetadata(),
		})
	}
	return all
}

func refsProto(all []lease.ResourceRef) (out []*lessorv1.ResourceRef) {
	for _, r := range all {
		out = append(out, &lessorv1.ResourceRef{
			ResourceId: r.ResourceID, WorkerId: r.Worker, Type: r.Type, Scope: r.Scope,
			ExpiresAt: Stamp(r.ExpiresAt), Metadata: r.Metadata,
		})
	}
	return out
}

func parseAffinity(f *Fields, m *lessorv1.Affinity) *lease.Affinity {
	if m == nil {
		return nil
	}
	return &lease.Affinity{
		Key: m.GetKey(), Mode: enum(f, "affinity.mode", m.GetMode(), lease.Preferred),
		TTL: f.Span("affinity.ttl", m.GetTtl(), lease.MaxAffinityTTL),
	}
}

func affinityProto(a *lease.Affinity) *lessorv1.Affinity {
	if a == nil {
		return nil
	}
	return &lessorv1.Affinity{Key: a.Key, Mode: lessorv1.AffinityMode(a.Mode), Ttl: Span(a.TTL)}
}

func parseTrace(m *lessorv1.TraceMeta) *lease.Trace {
	if m == nil {
		return nil
	}
	return &lease.Trace{Host: m.GetHostNodeId(), Chain: m.GetMiddlewareChain(), Index: m.ChainIndex}
}

func traceProto(t *lease.Trace) *lessorv1.TraceMeta {
	if t == nil {
		return nil
	}
	return &lessorv1.TraceMeta{HostNodeId: t.Host, MiddlewareChain: t.Chain, ChainIndex: t.Index}
}
